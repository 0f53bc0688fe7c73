package fibermw

import (
	"strings"
	"testing"
)

// Goal: the header means what RFC 8941 says. Method: a second reading of it.
func FuzzKeySyntax(f *testing.F) {
	for _, seed := range []string{
		"abc", `"abc"`, `"a\"b\\c"`, `"a\b"`, `"abc`, `"abc" `, "\t\"abc\"\t", `"abc";v=1`, `"abc" ;v=1`, `"abc"x`,
		`""`, `" "`, "a b", "\"a\tb\"", `"a", "b"`, "\"\x7f\"", "é", `"é"`, `a"b"`, "\v\"a\"",
		strings.Repeat("k", 255), `"` + strings.Repeat("k", 256) + `"`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		want, rest, ok := referenceKey(line)
		key, err := parseKey([]string{line})
		switch {
		case strings.HasPrefix(rest, ";"): // parameters: the reference does not read them
			if err == nil && key != want {
				t.Errorf("parseKey(%q) = %q, want %q", line, key, want)
			}
		case ok != (err == nil), ok && key != want:
			t.Errorf("parseKey(%q) = %q, %v, want %q, %v", line, key, err, want, ok)
		}
	})
}

// referenceKey reads one line of the header, and returns what follows a String.
func referenceKey(line string) (key, rest string, ok bool) {
	line = strings.Trim(line, " \t")
	if !strings.HasPrefix(line, `"`) {
		return line, "", isKey(line)
	}
	for i := 1; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			rest = line[i+1:] // line has no spaces at its end
			return key, rest, rest == "" && isKey(key)
		case c == '\\':
			if i++; i == len(line) || line[i] != '"' && line[i] != '\\' {
				return "", "", false
			}
			key += string(line[i])
		case c < ' ' || c > '~':
			return "", "", false
		default:
			key += string(c)
		}
	}
	return "", "", false
}

func isKey(s string) bool {
	for _, b := range []byte(s) {
		if b <= ' ' || b > '~' {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 255
}
