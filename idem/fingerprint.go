package idem

import (
	"crypto/sha256"
	"encoding/binary"
)

// fingerprintVersion is the first byte of a Fingerprint. It changes whenever
// the framing or the digest does, so that an old record is never compared with
// a digest that was made another way.
const fingerprintVersion = 1

// Fingerprint is the digest of what a request asks for: a version byte and 32
// bytes of SHA-256 (FIPS 180-4). Two requests with one key and different
// fingerprints are [ErrKeyReused].
type Fingerprint [1 + sha256.Size]byte

// NewFingerprint digests parts. Each part is preceded by its length, so that
// moving a byte from one part to the next changes the fingerprint. Give it what
// makes two requests the same request to you: usually the raw body.
// NewFingerprint with no parts is a valid fingerprint of "nothing but the key".
func NewFingerprint(parts ...[]byte) Fingerprint {
	h := sha256.New()
	var length [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		h.Write(p)
	}
	f := Fingerprint{fingerprintVersion}
	h.Sum(f[1:1])
	return f
}

// IsZero reports whether f was never set.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }
