package idem

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// What is recorded comes back byte for byte; what cannot be a header is refused.
func FuzzHeadersSurvive(f *testing.F) {
	f.Add("Location", "/a", "caf\xe9")
	f.Add("X-Tab", "a\tb", "")
	f.Add("X-Split", "a\r\nSet-Cookie: b", "c")
	f.Add("no token", "a", "b")
	f.Add("", "\x7f", "\x00")
	f.Add("X-Unicode", "\u20ac\U0001f600", "\\u0041<>&")
	f.Fuzz(func(t *testing.T, name, value, second string) {
		header := http.Header{name: {value, second}, "X-None": {}}
		encoded, err := encodeHeader(header)
		if valid := isName(name) && isValue(value) && isValue(second); valid != (err == nil) {
			t.Fatalf("valid: %v, error: %v", valid, err)
		}
		if err != nil {
			return
		}
		if !utf8.ValidString(encoded) || strings.Contains(encoded, `\u0000`) {
			t.Errorf("PostgreSQL has no jsonb for %q", encoded)
		}
		if decoded, err := decodeHeader([]byte(encoded)); err != nil || !reflect.DeepEqual(decoded, header) {
			t.Errorf("%q became %q, %v", header, decoded, err)
		}
	})
}

// isName and isValue repeat RFC 9110 in other words than the code.
func isName(s string) bool {
	return s != "" && strings.Trim(s, "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == "" &&
		!strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) })
}

func isValue(s string) bool {
	for _, b := range []byte(s) {
		if b < 0x20 && b != 0x09 || b == 0x7f {
			return false
		}
	}
	return true
}

// Whatever a record holds, reading it ends in headers or an error.
func FuzzDecodeHeader(f *testing.F) {
	for _, seed := range []string{`{"A": ["b"]}`, `{"A": "b"}`, `{"A": [1]}`, `null`, ``, `{"A": ["\u0100\ud800"]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		if header, err := decodeHeader(encoded); err != nil && header != nil {
			t.Errorf("%q is %q and an error: %v", encoded, header, err)
		}
	})
}
