package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/idempg/idempg/examples/ledger/book"
)

// body reads the members of a JSON object by name. The first error sticks, and
// end returns it. It is stricter than encoding/json on its own: names are
// matched by case, a duplicate or unknown name is refused, and an integer is
// written in digits.
type body struct {
	name    string // what errors call the object
	within  string // what they put before the name of a member
	members map[string]json.RawMessage
	err     error
}

// allLevels is deeper than encoding/json goes.
const allLevels = math.MaxInt

func readBody(raw []byte) *body { return readObject(raw, BodyBytesMax, allLevels) }

// readOptionalBody reads a body that may be absent when every member may be.
func readOptionalBody(raw []byte) *body {
	if len(raw) == 0 {
		return &body{name: "body"}
	}
	return readBody(raw)
}

// readObject reads the body of a request. Names are unique down to levels; what
// is deeper is left to whoever reads it.
func readObject(raw []byte, bytesMax, levels int) *body {
	b := &body{name: "body"}
	switch {
	case len(raw) > bytesMax:
		b.err = book.Invalid("body", "must have at most %d bytes", bytesMax)
	case !utf8.Valid(raw):
		b.err = book.Invalid("body", "must be UTF-8")
	default:
		b.err = b.parse(raw, levels)
	}
	return b
}

// readItem reads a value within a body, which errors call name.
func readItem(name string, raw json.RawMessage) *body {
	b := &body{name: name, within: name + "."}
	b.err = b.parse(raw, allLevels)
	return b
}

func (b *body) parse(raw []byte, levels int) error {
	err := json.Unmarshal(raw, &b.members)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return book.Invalid(b.name, "must be one JSON object: %v at byte %d", err, syntax.Offset)
	case err != nil || b.members == nil: // an array, a string, null
		return book.Invalid(b.name, "must be one JSON object")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return b.refuseDuplicates(decoder, levels)
}

// refuseDuplicates walks the next value, which is known to be well formed.
func (b *body) refuseDuplicates(decoder *json.Decoder, levels int) error {
	if levels == 0 {
		return decoder.Decode(new(json.RawMessage))
	}
	token, err := decoder.Token()
	delim, nested := token.(json.Delim)
	if err != nil || !nested {
		return err
	}
	seen := map[string]bool{}
	for decoder.More() {
		if delim == '{' {
			token, err := decoder.Token()
			if err != nil {
				return err
			}
			name, _ := token.(string)
			if seen[name] {
				return book.Invalid(b.within+name, "is given twice")
			}
			seen[name] = true
		}
		if err := b.refuseDuplicates(decoder, levels-1); err != nil {
			return err
		}
	}
	_, err = decoder.Token() // the closing one
	return err
}

// take removes a member. A null counts as absent.
func (b *body) take(name string) (value json.RawMessage, present bool) {
	value, present = b.members[name]
	delete(b.members, name)
	return value, present && string(value) != "null"
}

func (b *body) fail(name, reason string) {
	if b.err == nil {
		b.err = book.Invalid(b.within+name, "%s", reason)
	}
}

// located puts before the field of an error where the object is.
func (b *body) located(err error) error {
	var invalid *book.InvalidError
	if errors.As(err, &invalid) {
		return &book.InvalidError{Field: b.within + invalid.Field, Reason: invalid.Reason}
	}
	return err
}

// optionalText returns nil for an absent member.
func (b *body) optionalText(name string) *string {
	value, present := b.take(name)
	if !present {
		return nil
	}
	var text string
	if json.Unmarshal(value, &text) != nil {
		b.fail(name, "must be a string")
	} else if strings.ContainsRune(text, 0) {
		b.fail(name, "must not contain U+0000") // PostgreSQL cannot store it
	}
	return &text
}

func (b *body) text(name string) string {
	text := b.optionalText(name)
	if text == nil {
		b.fail(name, "is required")
		return ""
	}
	return *text
}

func (b *body) integer(name string) int64 {
	value, present := b.take(name)
	if !present {
		b.fail(name, "is required")
	}
	return b.parseInteger(name, value)
}

// optionalInteger returns nil for an absent member.
func (b *body) optionalInteger(name string) *int64 {
	value, present := b.take(name)
	if !present {
		return nil
	}
	number := b.parseInteger(name, value)
	return &number
}

// integerOrNull returns nil for null, and 0 for an absent member.
func (b *body) integerOrNull(name string) *int64 {
	_, given := b.members[name]
	value, present := b.take(name)
	var number int64
	switch {
	case present:
		number = b.parseInteger(name, value)
	case given:
		return nil
	}
	return &number
}

func (b *body) parseInteger(name string, value json.RawMessage) int64 {
	number, err := strconv.ParseInt(string(value), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		b.fail(name, "is out of range")
	case err != nil:
		b.fail(name, "must be an integer: a JSON number of digits only")
	}
	return number
}

// object returns nil for an absent member.
func (b *body) object(name string) json.RawMessage {
	value, present := b.take(name)
	if !present {
		return nil
	}
	if value[0] != '{' {
		b.fail(name, "must be an object")
	}
	return value
}

// list returns nil unless the member is an array.
func (b *body) list(name string) (items []json.RawMessage) {
	value, present := b.take(name)
	switch {
	case !present:
		b.fail(name, "is required")
	case json.Unmarshal(value, &items) != nil:
		b.fail(name, "must be an array")
	}
	return items
}

// end returns the first error. A member that was not taken is one.
func (b *body) end() error {
	for _, name := range slices.Sorted(maps.Keys(b.members)) {
		b.fail(name, "is not a field of this request")
	}
	return b.err
}
