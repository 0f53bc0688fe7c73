package fibermw

import (
	"strings"
	"testing"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 255)
	for _, tc := range []struct {
		name  string
		lines []string
		want  string
		fails string
	}{
		{"no header", nil, "", ""},
		{"bare", []string{"abc-123"}, "abc-123", ""},
		{"bare, white space around", []string{" \tabc-123 "}, "abc-123", ""},
		{"String", []string{`"abc-123"`}, "abc-123", ""},
		{"String with escapes", []string{`"a\"b\\c"`}, `a"b\c`, ""},
		{"String with parameters", []string{`"abc";v=1;w`}, "abc", ""},
		{"case matters", []string{"AbC"}, "AbC", ""},
		{"quotation mark inside a bare value", []string{`a"b`}, `a"b`, ""},
		{"255 bytes", []string{long}, long, ""},
		{"255 bytes as a String", []string{`"` + long + `"`}, long, ""},
		{"256 bytes", []string{long + "k"}, "", "256 bytes"},
		{"empty", []string{""}, "", "is empty"},
		{"white space", []string{" \t "}, "", "is empty"},
		{"empty String", []string{`""`}, "", "is empty"},
		{"two lines", []string{"a", "a"}, "", "2 lines"},
		{"unterminated", []string{`"abc`}, "", "RFC 8941"},
		{"lone quotation mark", []string{`"`}, "", "RFC 8941"},
		{"text after the String", []string{`"abc"def`}, "", "RFC 8941"},
		{"list of Strings", []string{`"a", "b"`}, "", "RFC 8941"},
		{"bad escape", []string{`"a\n"`}, "", "RFC 8941"},
		{"space inside", []string{"a b"}, "", "visible ASCII"},
		{"space inside a String", []string{`"a b"`}, "", "visible ASCII"},
		{"control character", []string{"a\x00b"}, "", "visible ASCII"},
		{"DEL", []string{"a\x7f"}, "", "visible ASCII"},
		{"UTF-8", []string{"schlüssel"}, "", "visible ASCII"},
		{"not UTF-8", []string{"a\xff"}, "", "visible ASCII"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseKey(tc.lines)
			switch {
			case tc.fails == "" && (err != nil || got != tc.want):
				t.Errorf("parseKey(%q) = %q, %v, want %q", tc.lines, got, err, tc.want)
			case tc.fails != "" && (err == nil || !strings.Contains(err.Error(), tc.fails)):
				t.Errorf("parseKey(%q) = %q, %v, want an error with %q", tc.lines, got, err, tc.fails)
			}
		})
	}
}

// Whatever a client sends, the result is a key within the limits or an error,
// and a key written as a String is the same key.
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{"a", `"a"`, `"a\"";b=1`, `"`, "", "\xff", `"a";b="`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		key, err := parseKey([]string{line})
		if err != nil {
			if strings.Contains(err.Error(), "\x00") {
				t.Errorf("the error repeats what the client sent: %q", err)
			}
			return
		}
		if key == "" || len(key) > 255 {
			t.Fatalf("parseKey(%q) = %q", line, key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := parseKey([]string{quoted}); err != nil || again != key {
			t.Errorf("parseKey(%q) = %q, %v, want %q", quoted, again, err, key)
		}
	})
}
