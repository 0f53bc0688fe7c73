package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
)

func (b *bench) expire(t *testing.T) {
	t.Helper()
	b.exec(t, "update idem.records set created_at = now() - interval '2 days', expires_at = now() - interval '1 day'")
}

// An expired record counts as absent: for the same payload, for another one,
// and for Lookup.
func TestAnExpiredRecordIsTakenOver(t *testing.T) {
	t.Parallel()
	for _, level := range isolationLevels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, idem.Config{IsolationLevel: level})
			mustDo(t, b.store, request("k"), created("k"))
			b.expire(t)
			_, err := b.store.Lookup(t.Context(), "acme", "k")
			wantError(t, err, idem.ErrNotFound)

			_, err = b.store.Do(t.Context(), request("k"), func() idem.Mutation { return aborting("k") }())
			wantError(t, err, errDecline)
			if result := mustDo(t, b.store, otherPayload("k"), created("k")); result.Replayed {
				t.Error("an expired record answered")
			}
			if result := mustDo(t, b.store, otherPayload("k"), created("k")); !result.Replayed {
				t.Error("the new record does not answer")
			}
			b.wantEffects(t, "k", 2)
		})
	}
}

func TestARejectionTakesOverAnExpiredRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	mustDo(t, b.store, request("k"), created("k"))
	b.expire(t)
	for range 2 {
		if result := mustDo(t, b.store, request("k"), rejecting("k")); result.State != idem.StateRejected {
			t.Errorf("got %+v, want a rejection", result)
		}
	}
	b.wantEffects(t, "k", 1)
}

// Bursts on an expired key, beside a sweeper that wants the same row.
func TestAnExpiredKeyIsTakenOverOnce(t *testing.T) {
	t.Parallel()
	for _, level := range isolationLevels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			asDefault := func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(level)
			}
			config := idem.Config{IsolationLevel: level, ClaimWait: 30 * time.Second}
			b := newBench(t, config, maxConns(10), asDefault)
			stores := b.processes(t, 20, config)
			for round := range 5 {
				key := fmt.Sprint("k", round)
				mustDo(t, b.store, request(key), created(key))
				b.expire(t)
				var sweeper sync.WaitGroup
				sweeper.Go(func() {
					if _, err := b.store.Sweep(t.Context(), idem.SweepOptions{BatchRows: 1}); err != nil {
						t.Errorf("sweep: %v", err)
					}
				})
				for _, o := range burst(stores, 20, request(key), created(key)) {
					if o.err != nil {
						t.Errorf("a duplicate got %v", o.err)
					}
				}
				sweeper.Wait()
				b.wantEffects(t, key, 2)
			}
		})
	}
}

func TestSweepForgetsWhatHasExpired(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	for i := range 25 {
		key := fmt.Sprint("old", i)
		mustDo(t, b.store, request(key), created(key))
	}
	b.expire(t)
	mustDo(t, b.store, request("young"), created("young"))

	result, err := b.store.Sweep(t.Context(), idem.SweepOptions{BatchRows: 10, BatchesMax: 2})
	if err != nil || result != (idem.SweepResult{Records: 20, Batches: 2, More: true}) {
		t.Errorf("first sweep: %+v, %v", result, err)
	}
	result, err = b.store.Sweep(t.Context(), idem.SweepOptions{})
	if err != nil || result != (idem.SweepResult{Records: 5, Batches: 1}) {
		t.Errorf("second sweep: %+v, %v", result, err)
	}
	if result := mustDo(t, b.store, request("young"), created("young")); !result.Replayed {
		t.Error("a live record was swept")
	}
	for _, o := range []idem.SweepOptions{{BatchRows: -1}, {BatchesMax: -1}} {
		if _, err := b.store.Sweep(t.Context(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// Goal: a batch does not go through what the batches before it swept, which an
// old snapshot keeps in the index. Method: count what the index has returned.
func TestASweepBesideAnOldSnapshotReadsEachRecordOnce(t *testing.T) {
	t.Parallel()
	const records = 1000
	b := newBench(t, idem.Config{})
	b.exec(t, `
		insert into idem.records (id, created_at, expires_at, finished_at, status, unfinished, state, scope, key, operation, fingerprint)
		select gen_random_uuid(), at, at + interval '1 day', at, 201, null, 'completed', 'acme', n::text, '', decode(repeat('01', 33), 'hex')
		from generate_series(1, 1000) as n, lateral (select now() - n * interval '2 days') as t (at)`)
	old, err := b.Pool(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Rollback(t.Context()) }()
	if _, err := old.Exec(t.Context(), "select count(*) from idem.records"); err != nil {
		t.Fatal(err)
	}
	pool := b.Pool(t, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["enable_seqscan"] = "off" // the table is small
		c.ConnConfig.RuntimeParams["enable_bitmapscan"] = "off"
	})
	sweeper, err := idem.New(pool, idem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	result, err := sweeper.Sweep(t.Context(), idem.SweepOptions{BatchRows: 50})
	if err != nil || result.Records != records {
		t.Fatalf("swept %+v, %v", result, err)
	}
	pool.Close() // its backend tells its figures when it ends
	var read, deleted int64
	for deleted < records {
		if err := b.pool.QueryRow(t.Context(), `
			select idx_tup_read, n_tup_del from pg_stat_user_indexes join pg_stat_user_tables using (relid)
			where indexrelname = 'records_expires_at'`).Scan(&read, &deleted); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if read < records || read > 2*records {
		t.Errorf("the index returned %d entries for %d records", read, records)
	}
}

// Two sweepers share the work; neither waits for a key that is being taken over.
func TestSweepersSkipWhatIsLocked(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	for i := range 50 {
		key := fmt.Sprint("k", i)
		mustDo(t, b.store, request(key), created(key))
	}
	b.expire(t)
	owner := hold()
	done := goDo(t.Context(), b.store, request("k0"), owner.mutation(created("k0")))
	<-owner.entered
	var total int64
	var mu sync.Mutex
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			result, err := b.store.Sweep(t.Context(), idem.SweepOptions{BatchRows: 5})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			total += result.Records
			mu.Unlock()
		})
	}
	group.Wait()
	close(owner.leave)
	if o := <-done; o.err != nil || o.result.Replayed {
		t.Errorf("the take-over ended with %+v, %v", o.result, o.err)
	}
	result, err := b.store.Sweep(t.Context(), idem.SweepOptions{})
	if err != nil || total+result.Records != 49 {
		t.Errorf("%d and %d records swept, want 49 together: %v", total, result.Records, err)
	}
	if result := mustDo(t, b.store, request("k0"), created("k0")); !result.Replayed {
		t.Error("the record taken over is gone")
	}
}
