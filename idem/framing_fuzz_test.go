package idem

import (
	"context"
	"regexp"
	"slices"
	"testing"
)

// cutUp cuts data at the offsets that cuts holds, each counted from the one
// before. All lists of parts that it makes of the same data spell the same
// bytes, so only the framing can tell them apart.
func cutUp(data, cuts []byte) (parts [][]byte) {
	for _, cut := range cuts {
		n := int(cut) % (len(data) + 1)
		parts, data = append(parts, data[:n]), data[n:]
	}
	return append(parts, data)
}

func equalParts(one, two [][]byte) bool {
	return slices.EqualFunc(one, two, func(a, b []byte) bool { return string(a) == string(b) })
}

// Two lists of parts have one fingerprint only if they are one list.
func FuzzFingerprintsAreFramed(f *testing.F) {
	f.Add([]byte("abc"), []byte{1}, []byte{2})
	f.Add([]byte("abc"), []byte{1}, []byte{1, 0})
	f.Add([]byte{}, []byte{}, []byte{0})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1, 'a'}, []byte{0}, []byte{8}) // what a length looks like
	f.Fuzz(func(t *testing.T, data, cuts, otherCuts []byte) {
		one, two := cutUp(data, cuts), cutUp(data, otherCuts)
		if same := NewFingerprint(one...) == NewFingerprint(two...); same != equalParts(one, two) {
			t.Errorf("%q and %q: the same fingerprint: %v", one, two, same)
		}
	})
}

// Two pairs of scope and key have one identity, one record and one lock only if
// they are one pair; and so for the operation under a key.
func FuzzKeysAreFramed(f *testing.F) {
	f.Add("abc", uint8(1), uint8(2))
	f.Add("a:b:c", uint8(1), uint8(3))
	f.Add("", uint8(0), uint8(0))
	f.Add("\x00\x00\x00\x00\x00\x00\x00\x01a", uint8(0), uint8(8))
	f.Fuzz(func(t *testing.T, text string, cut, otherCut uint8) {
		i, j := int(cut)%(len(text)+1), int(otherCut)%(len(text)+1)
		one, two := newIdentity(text[:i], text[i:]), newIdentity(text[:j], text[j:])
		if (one == two) != (i == j) || (one.recordID() == two.recordID()) != (i == j) || (one.keyLock() == two.keyLock()) != (i == j) {
			t.Errorf("cut at %d and %d: %x and %x", i, j, one, two)
		}
		f := NewFingerprint()
		if one.payloadLock(text[:i], f) == one.payloadLock(text[:j], f) != (i == j) {
			t.Errorf("cut at %d and %d: the same payload lock", i, j)
		}
	})
}

var uuid8 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// A derived key is a UUID of version 8, the same for the same step, and another
// for another step or another key.
func FuzzDerivedKeys(f *testing.F) {
	f.Add("acme", "key", "charge", "mail")
	f.Add("", "", "", "")
	f.Add("a", "b", "\xff", "\x00")
	f.Fuzz(func(t *testing.T, scope, key, step, otherStep string) {
		ctx := withCall(context.Background(), &call{id: newIdentity(scope, key)})
		other := withCall(context.Background(), &call{id: newIdentity(scope, key+"'")})
		derived := DerivedKey(ctx, step)
		if !uuid8.MatchString(derived) {
			t.Errorf("%q is not a UUID of version 8", derived)
		}
		if derived != DerivedKey(ctx, step) || (derived == DerivedKey(ctx, otherStep)) != (step == otherStep) || derived == DerivedKey(other, step) {
			t.Errorf("%q does not stand for the key and the step %q alone", derived, step)
		}
	})
}
