package fibermw

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dunglas/httpsfv"
	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/idem"
)

// headerLines returns copies of the values of all lines of a request header.
// Names are compared here, because Fiber does it with case when
// DisableHeaderNormalizing is set.
func headerLines(c *fiber.Ctx, name string) (lines []string) {
	c.Request().Header.VisitAll(func(key, value []byte) {
		if strings.EqualFold(string(key), name) {
			lines = append(lines, string(value))
		}
	})
	return lines
}

// parseKey reads the key from the lines of its header: "" when there are none,
// else an RFC 8941 String, whose parameters are ignored, or the bare value. The
// error completes a sentence that begins with the header's name. It does not
// repeat what the client sent.
func parseKey(lines []string) (string, error) {
	switch len(lines) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", fmt.Errorf("has %d lines: send one", len(lines))
	}
	key := strings.Trim(lines[0], " \t")
	if strings.HasPrefix(key, `"`) {
		item, err := httpsfv.UnmarshalItem([]string{key})
		if err != nil {
			return "", errors.New(`begins with a quotation mark and is not an RFC 8941 String, such as "8e03978e-40d5-43dd-bc93-6894a57f9324"`)
		}
		key, _ = item.Value.(string) // what begins with a quotation mark is a String
	}
	switch {
	case key == "":
		return "", errors.New("is empty")
	case len(key) > idem.KeyBytesMax:
		return "", fmt.Errorf("has a key of %d bytes: at most %d", len(key), idem.KeyBytesMax)
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "", errors.New("has a key with other characters than visible ASCII")
	}
	return key, nil
}
