package integration

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/integration/faults"
)

// trips counts the round trips of fn on a pool of one connection.
func trips(w *faults.Proxy, fn func()) int64 {
	before := w.Trips()
	fn()
	return w.Trips() - before
}

// twoStatements is the work that all shapes of a mutation do here.
func twoStatements(ctx context.Context, tx pgx.Tx, name string) error {
	return errors.Join(write(ctx, tx, name), write(ctx, tx, name))
}

// Goal: a key costs no round trip over a bare transaction. Method: the wire
// counts the server's ReadyForQuery messages, with statements prepared before,
// so that nothing but the shape is counted.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	w := newWire(t, b.database)
	pool := wirePool(t, b.database, w, pgx.QueryExecModeCacheStatement, maxConns(1))
	store := newStore(t, pool, idem.Config{})
	ctx := t.Context()

	bare := func() {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return twoStatements(ctx, tx, "bare") })
		if err != nil {
			t.Error(err)
		}
	}
	do := func(key string, m idem.Mutation) func() {
		return func() { mustDo(t, store, request(key), m) }
	}
	completing := func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		return receipt("k"), twoStatements(ctx, tx, "k")
	}
	refusing := func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		if err := twoStatements(ctx, tx, "r"); err != nil {
			return idem.Response{}, err
		}
		return idem.Response{}, idem.Reject(idem.Response{Status: 422}, nil)
	}
	for _, warmUp := range []func(){bare, do("warm", completing), do("warm reject", refusing), do("warm", completing)} {
		warmUp()
		settled(t, pool)
	}

	wantTrips(t, w, pool, []tripsCase{
		{"a bare transaction: begin, 2 statements, commit", 4, false, bare},
		{"a first-time mutation: begin + claim, 2 statements, finish + commit", 4, false, do("new", completing)},
		{"a replay, before the answer", 1, true, do("new", completing)},
		{"a rejection: begin + claim, 2 statements, rollback, begin + claim + finish + commit", 5, false, do("refused", refusing)},
		{"a replay of a rejection", 1, true, do("refused", refusing)},
	})
}

// tripsCase is a call and the round trips that it may take.
type tripsCase struct {
	name   string
	want   int64
	replay bool // its ROLLBACK follows the answer, and may still overtake the count
	run    func()
}

// wantTrips counts the round trips before the answer. A count that a ROLLBACK has
// overtaken is taken again.
func wantTrips(t *testing.T, w *faults.Proxy, pool *pgxpool.Pool, cases []tripsCase) {
	t.Helper()
	for _, c := range cases {
		got := trips(w, c.run)
		settled(t, pool)
		for try := 0; c.replay && got == c.want+1 && try < 20; try++ {
			got = trips(w, c.run)
			settled(t, pool)
		}
		if got != c.want {
			t.Errorf("%s: %d round trips, want %d", c.name, got, c.want)
		}
	}
}

// settled waits until a replay's connection is back: its ROLLBACK comes after
// the answer.
func settled(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	err := eventually(settleWait, func() error {
		if n := pool.Stat().AcquiredConns(); n != 0 {
			return errors.New("connections are still out")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Goal: a replay writes no WAL and takes no transaction id, at any isolation
// level; nor does a duplicate that is refused. Method: not parallel, so the
// server is quiet; the least of several rounds takes out what its background
// processes write.
func TestAReplayWritesNothing(t *testing.T) {
	own := newServer(t)
	for _, level := range isolationLevels {
		b := newBenchOn(t, newDatabaseOn(t, own), idem.Config{IsolationLevel: level}, maxConns(1))
		mustDo(t, b.store, request("k"), created("k"))
		calls := map[string]func(){
			"replay":            func() { mustDo(t, b.store, request("k"), created("k")) },
			"replay of a batch": func() { mustDoBatch(t, b.store, request("k"), createdBatch("k")) },
			"mismatch": func() {
				_, err := b.store.Do(t.Context(), otherPayload("k"), created("k"))
				wantError(t, err, idem.ErrKeyReused)
			},
		}
		for name, call := range calls {
			wal, xids := int64(1), int64(1)
			for round := 0; round < 50 && (wal > 0 || xids > 0); round++ {
				walBefore, xidBefore := written(t, b.pool)
				for range 20 {
					call()
				}
				settled(t, b.pool)
				walAfter, xidAfter := written(t, b.pool)
				wal, xids = min(wal, walAfter-walBefore), min(xids, xidAfter-xidBefore)
			}
			if wal > 0 || xids > 0 {
				t.Errorf("%s, %s: in none of 50 rounds of 20 calls was no WAL written and no transaction id taken", level, name)
			}
		}
	}
}

// written is the position of the server's WAL and its next transaction id.
func written(t *testing.T, pool *pgxpool.Pool) (wal, xid int64) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `select pg_current_wal_insert_lsn() - '0/0'::pg_lsn,
		pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&wal, &xid)
	if err != nil {
		t.Fatal(err)
	}
	return wal, xid
}

// Goal: a first request takes one transaction id, as the bare transaction does,
// and writes little beside what it is asked to. Method: as for the replay, but
// with what is counted per call; the bounds leave a tenth of room, for versions
// of PostgreSQL differ a little.
func TestWhatAFirstRequestWrites(t *testing.T) {
	const calls = 20
	own := newServer(t)
	b := newBenchOn(t, newDatabaseOn(t, own), idem.Config{}, maxConns(1))
	n := 0
	fresh := func() string { n++; return fmt.Sprint("key ", n) }
	for name, c := range map[string]struct {
		call   func()
		walMax int64 // bytes
	}{
		"bare": {func() {
			if err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error { return write(t.Context(), tx, "bare") }); err != nil {
				t.Error(err)
			}
		}, 180},
		"do":    {func() { k := fresh(); mustDo(t, b.store, request(k), created(k)) }, 1250},
		"batch": {func() { k := fresh(); mustDoBatch(t, b.store, request(k), createdBatch(k)) }, 1250},
	} {
		wal, xids := int64(math.MaxInt64), int64(math.MaxInt64)
		for range 20 {
			walBefore, xidBefore := written(t, b.pool)
			for range calls {
				c.call()
			}
			walAfter, xidAfter := written(t, b.pool)
			wal, xids = min(wal, walAfter-walBefore), min(xids, xidAfter-xidBefore)
		}
		t.Logf("%s: %d bytes of WAL and %d transaction ids per call", name, wal/calls, xids/calls)
		if xids != calls || wal/calls > c.walMax {
			t.Errorf("%s: %d calls wrote %d bytes of WAL and took %d transaction ids", name, calls, wal, xids)
		}
	}
}

// Nearly all finishing updates are HOT: they touch no index.
func TestFinishingIsAHeapOnlyUpdate(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{}, maxConns(1))
	const n = 300
	for i := range n {
		key := "k" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		mustDo(t, b.store, request(key), created(key))
	}
	b.pool.Reset() // a backend reports its statistics when it ends
	await(t, b.pool, "the statistics are in", "select n_tup_upd >= $1 from pg_stat_user_tables where relname = 'records'", n)
	hot := scalar[int](t, b.pool, "select n_tup_hot_upd from pg_stat_user_tables where relname = 'records'")
	if hot < n*9/10 {
		t.Errorf("%d of %d finishing updates were HOT, want 9 in 10", hot, n)
	}
}
