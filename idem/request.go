package idem

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a [Request], in bytes. The schema repeats them as CHECK constraints.
const (
	ScopeBytesMax     = 255
	KeyBytesMax       = 255
	OperationBytesMax = 2048
)

// Request names one mutation: whose key it is, the key, and what is asked for.
type Request struct {
	// Scope says whose key it is: the tenant or user that was authenticated.
	// Two scopes never see each other's records. 1 to [ScopeBytesMax] bytes of
	// UTF-8 without NUL. Take something that stays the same for all retries: a
	// token that rotates is not a scope.
	Scope string

	// Operation names what is done, for example "POST /v1/transfers". It
	// belongs to the fingerprint: the same key for another operation is
	// [ErrKeyReused]. At most [OperationBytesMax] bytes of UTF-8 without NUL.
	// Defaults to "".
	Operation string

	// Key is the client's string: 1 to [KeyBytesMax] bytes of UTF-8 without NUL.
	// Case matters.
	Key string

	// Fingerprint is the digest of what the request asks for; see
	// [NewFingerprint]. The zero Fingerprint is refused, so that nobody
	// compares nothing by accident.
	Fingerprint Fingerprint

	// TTL is how long the record answers retries, counted from the claim by the
	// database's clock. At least one millisecond. Defaults to [Config].TTL.
	TTL time.Duration

	// AttemptsMax bounds how often the mutation may run in this call; see
	// [Config].AttemptsMax, which is also its default. 1 says that the mutation
	// cannot be run twice.
	AttemptsMax int
}

// validate reports the first field that is out of its limits.
func (r Request) validate() error {
	if err := validateText("Scope", r.Scope, 1, ScopeBytesMax); err != nil {
		return err
	}
	if err := validateText("Operation", r.Operation, 0, OperationBytesMax); err != nil {
		return err
	}
	if err := validateText("Key", r.Key, 1, KeyBytesMax); err != nil {
		return err
	}
	switch {
	case r.Fingerprint.IsZero():
		return &InvalidRequestError{Field: "Fingerprint", Reason: "is not set: use idem.NewFingerprint over what the request asks for"}
	case r.TTL != 0 && r.TTL < time.Millisecond:
		return &InvalidRequestError{Field: "TTL", Reason: fmt.Sprintf("is %v: at least 1ms, or 0 for the Store's default", r.TTL)}
	}
	return r.validateAttemptsMax()
}

func (r Request) validateAttemptsMax() error {
	if r.AttemptsMax < 0 {
		return &InvalidRequestError{Field: "AttemptsMax", Reason: fmt.Sprintf("is %d: at least 1, or 0 for the Store's default", r.AttemptsMax)}
	}
	return nil
}

func validateText(field, value string, bytesMin, bytesMax int) error {
	switch {
	case len(value) < bytesMin:
		return &InvalidRequestError{Field: field, Reason: "is empty"}
	case len(value) > bytesMax:
		return &InvalidRequestError{Field: field, Reason: fmt.Sprintf("has %d bytes: at most %d", len(value), bytesMax)}
	case !utf8.ValidString(value):
		return &InvalidRequestError{Field: field, Reason: "is not valid UTF-8"}
	case strings.IndexByte(value, 0) >= 0:
		return &InvalidRequestError{Field: field, Reason: "contains a NUL byte, which PostgreSQL cannot store"}
	}
	return nil
}

// identity is the fixed-size name of a key. The primary key and the advisory
// lock of the key come from it.
type identity [sha256.Size]byte

// newIdentity digests the length-prefixed scope and key, so that no two pairs
// spell the same bytes: ("a", "b:c") and ("a:b", "c") differ.
func newIdentity(scope, key string) identity {
	return digest("idempg.key", scope, key)
}

// recordID is the primary key of the key's record.
func (id identity) recordID() [16]byte { return [16]byte(id[:16]) }

// keyLock is the advisory lock of the key: who holds it owns the claim.
func (id identity) keyLock() int64 { return lockNumber(id[16:]) }

// payloadLock is the advisory lock of the key together with what is asked for.
// It is always taken before keyLock.
func (id identity) payloadLock(operation string, fingerprint Fingerprint) int64 {
	d := digest("idempg.payload", string(id[:]), operation, string(fingerprint[:]))
	return lockNumber(d[:])
}

func lockNumber(b []byte) int64 {
	return int64(binary.BigEndian.Uint64(b)) // signed in SQL
}

// digest is SHA-256 over parts, each preceded by its length as 8 bytes.
func digest(parts ...string) [sha256.Size]byte {
	var short [512]byte // is enough for most
	framed := short[:0]
	for _, p := range parts {
		framed = binary.BigEndian.AppendUint64(framed, uint64(len(p)))
		framed = append(framed, p...)
	}
	return sha256.Sum256(framed)
}
