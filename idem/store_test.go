package idem_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
)

// What is out of its limits is refused at construction, by name.
func TestNewNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(context.Background(), "postgres://nobody@127.0.0.1:1/none") // never connects
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := idem.New(nil, idem.Config{}); err == nil {
		t.Error("a nil pool was accepted")
	}
	for field, configs := range map[string][]idem.Config{
		"TTL":                      {{TTL: -1}, {TTL: 1}, {TTL: 101 * 365 * 24 * time.Hour}},
		"ClaimWait":                {{ClaimWait: -time.Second}, {ClaimWait: time.Microsecond}},
		"AcquireTimeout":           {{AcquireTimeout: -1}, {AcquireTimeout: 1}},
		"IsolationLevel":           {{IsolationLevel: "snapshot"}},
		"AttemptsMax":              {{AttemptsMax: -1}},
		"IdleInTransactionTimeout": {{IdleInTransactionTimeout: -1}, {IdleInTransactionTimeout: 999 * time.Microsecond}, {IdleInTransactionTimeout: 1 << 62}},
		"StatementTimeout":         {{StatementTimeout: -1}, {StatementTimeout: 1}},
		"LockTimeout":              {{LockTimeout: -1}, {LockTimeout: 1}},
		"CommitTimeout":            {{CommitTimeout: -1}, {CommitTimeout: 1}},
		"SettleTimeout":            {{SettleTimeout: -1}, {SettleTimeout: 1}},
		"BodyBytesMax":             {{BodyBytesMax: -1}, {BodyBytesMax: 64<<20 + 1}},
		"HeaderBytesMax":           {{HeaderBytesMax: -1}, {HeaderBytesMax: 128<<10 + 1}},
	} {
		for _, config := range configs {
			if _, err := idem.New(pool, config); err == nil || !strings.Contains(err.Error(), "Config."+field+" ") {
				t.Errorf("%s: error is %v for %+v", field, err, config)
			}
		}
	}
	limits := idem.Config{
		TTL: time.Millisecond, ClaimWait: time.Millisecond, IsolationLevel: pgx.Serializable,
		AttemptsMax: 1, BodyBytesMax: 64 << 20, HeaderBytesMax: 128 << 10,
	}
	for _, config := range []idem.Config{{}, limits} {
		if _, err := idem.New(pool, config); err != nil {
			t.Error(err)
		}
	}
}

func TestTheZeroConfigIsFilledIn(t *testing.T) {
	t.Parallel()
	got := store.Config()
	if got.TTL != 24*time.Hour || got.AttemptsMax != 5 || got.IdleInTransactionTimeout != 30*time.Second ||
		got.CommitTimeout != 10*time.Second || got.SettleTimeout != 10*time.Second || got.AcquireTimeout != 10*time.Second ||
		got.BodyBytesMax != 1<<20 || got.HeaderBytesMax != 16<<10 || got.ClaimWait != 0 {
		t.Errorf("the defaults are %+v, not what the documentation says", got)
	}
}

// Moving a byte from one part to the next is another request.
func TestFingerprintsAreFramed(t *testing.T) {
	t.Parallel()
	seen := map[idem.Fingerprint]string{{}: "the zero value"}
	for name, parts := range map[string][]string{
		"none": {}, "one empty": {""}, "two empty": {"", ""}, "ab": {"ab"}, "a,b": {"a", "b"}, ",ab": {"", "ab"}, "ab,": {"ab", ""},
	} {
		bytes := make([][]byte, len(parts))
		for i, part := range parts {
			bytes[i] = []byte(part)
		}
		f := idem.NewFingerprint(bytes...)
		if other, there := seen[f]; there {
			t.Errorf("%q and %q have the same fingerprint", name, other)
		}
		seen[f] = name
		if f[0] != 1 {
			t.Errorf("the version byte is %d", f[0])
		}
	}
}
