package idem

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"
)

// Hard limits that the schema enforces as CHECK constraints. [Config] chooses
// lower ones.
const (
	bodyBytesHardMax   = 64 << 20
	headerBytesHardMax = 128 << 10 // of compact JSON; jsonb spells it with spaces, so the CHECK allows twice that
)

// Response is the answer of a mutation: what the caller gets now and every
// retry gets later. It is shaped like HTTP but needs no HTTP: consumers use
// Body alone.
type Response struct {
	Status int         // 200 to 599; 0 means 200
	Header http.Header // names and values as net/http has them; may be nil
	Body   []byte      // stored byte for byte; may be nil
}

// State says how the mutation of a record ended.
type State string

// The states of a record.
const (
	StateCompleted State = "completed" // the writes were committed with the record
	StateRejected  State = "rejected"  // the writes were undone, the answer was kept
)

// Result is the answer to one call of [Store.Do].
type Result struct {
	Response
	State      State
	Replayed   bool      // the answer came from a record of an earlier call
	RecordedAt time.Time // when the record was finished, by the database's clock; zero for a call without a key
	ExpiresAt  time.Time // when the record stops answering, by the database's clock; zero for a call without a key
}

// clone returns a Result that shares no memory with r.
func (r Result) clone() Result {
	r.Header = r.Header.Clone()
	r.Body = bytes.Clone(r.Body)
	return r
}

// outcome is a Response in the shape of the columns that hold it.
type outcome struct {
	state   State
	status  int
	headers *string // JSON; nil when there are none
	body    []byte
}

// newOutcome checks response against the limits and encodes it for storing.
// After it has returned nil, the schema's CHECKs accept the outcome.
func newOutcome(state State, response *Response, bodyBytesMax, headerBytesMax int) (outcome, error) {
	if response.Status == 0 {
		response.Status = http.StatusOK
	}
	if response.Status < 200 || response.Status > 599 {
		return outcome{}, &InvalidResponseError{Field: "Status", Reason: fmt.Sprintf("is %d: 200 to 599, or 0 for 200", response.Status)}
	}
	if len(response.Body) > bodyBytesMax {
		return outcome{}, &ResponseTooLargeError{Field: "Body", Bytes: len(response.Body), BytesMax: bodyBytesMax}
	}
	headers, err := encodeHeaders(response.Header, headerBytesMax)
	if err != nil {
		return outcome{}, err
	}
	return outcome{state: state, status: response.Status, headers: headers, body: response.Body}, nil
}

// encodeHeaders encodes header for its column within a limit: null for none.
func encodeHeaders(header http.Header, bytesMax int) (*string, error) {
	if len(header) == 0 {
		return nil, nil
	}
	headers, err := encodeHeader(header)
	if err != nil {
		return nil, err
	}
	if len(headers) > bytesMax {
		return nil, &ResponseTooLargeError{Field: "Header", Bytes: len(headers), BytesMax: bytesMax}
	}
	return &headers, nil
}

// encodeHeader writes header as {"Name": ["value", ...]}. A field value is a
// sequence of bytes (RFC 9110, section 5.5) and JSON holds characters, so each
// byte becomes the character of the same number: ASCII stays readable in SQL
// and nothing is lost.
func encodeHeader(header http.Header) (string, error) {
	characters := make(map[string][]string, len(header))
	for name, values := range header {
		if !isToken(name) {
			return "", &InvalidResponseError{Field: "Header", Reason: fmt.Sprintf("has the name %q, which is not an RFC 9110 token", name)}
		}
		characters[name] = make([]string, 0, len(values)) // a name without values is kept, too
		for _, value := range values {
			s, ok := widen(value)
			if !ok {
				return "", &InvalidResponseError{Field: "Header", Reason: fmt.Sprintf("%s has a control character in its value", name)}
			}
			characters[name] = append(characters[name], s)
		}
	}
	encoded, err := json.Marshal(characters)
	if err != nil {
		return "", fmt.Errorf("idem: encode headers: %w", err)
	}
	return string(encoded), nil
}

func decodeHeader(encoded []byte) (http.Header, error) {
	if encoded == nil {
		return nil, nil
	}
	var header http.Header
	if err := json.Unmarshal(encoded, &header); err != nil {
		return nil, fmt.Errorf("idem: the headers of the record are not what this library writes: %w", err)
	}
	for _, values := range header {
		for i, value := range values {
			values[i] = narrow(value)
		}
	}
	return header, nil
}

// widen turns each byte into the character of the same number. It reports
// false for control characters, which no field value may hold.
func widen(value string) (string, bool) {
	ascii := true
	for i := range len(value) {
		c := value[i]
		if c < ' ' && c != '\t' || c == 0x7f {
			return "", false
		}
		ascii = ascii && c < 0x80
	}
	if ascii {
		return value, true
	}
	characters := make([]rune, len(value))
	for i := range len(value) {
		characters[i] = rune(value[i])
	}
	return string(characters), true
}

// narrow undoes widen.
func narrow(value string) string {
	if isASCII(value) {
		return value
	}
	narrowed := make([]byte, 0, len(value))
	for _, c := range value {
		narrowed = append(narrowed, byte(c))
	}
	return string(narrowed)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// isToken reports whether name is a token (RFC 9110, section 5.6.2).
func isToken(name string) bool {
	for i := range len(name) {
		c := name[i]
		alphanumeric := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !alphanumeric && !bytes.ContainsRune([]byte("!#$%&'*+-.^_`|~"), rune(c)) {
			return false
		}
	}
	return name != ""
}
