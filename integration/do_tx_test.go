package integration

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

// inTx runs fn in a transaction of the caller's.
func (b *bench) inTx(t *testing.T, fn func(tx pgx.Tx) error) {
	t.Helper()
	if err := pgx.BeginFunc(t.Context(), b.pool, fn); err != nil {
		t.Errorf("the caller's transaction: %v", err)
	}
}

// The record commits with the caller's transaction or not at all.
func TestDoTxCommitsWithItsCaller(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.DoTx(t.Context(), tx, request("k"), created("k")); err != nil {
		t.Fatal(err)
	}
	_, err = b.store.Do(t.Context(), request("k"), created("k"))
	wantError(t, err, idem.ErrInFlight)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantEffects(t, "k", 0)

	for i := range 2 {
		b.inTx(t, func(tx pgx.Tx) error {
			result, err := b.store.DoTx(t.Context(), tx, request("k"), created("k"))
			if result.Replayed != (i == 1) || result.Status != 201 {
				t.Errorf("call %d: %+v", i, result)
			}
			return err
		})
	}
	if result := mustDo(t, b.store, request("k"), created("k")); !result.Replayed {
		t.Error("Do does not replay what DoTx recorded")
	}
	b.wantEffects(t, "k", 1)
}

// The endings of Do, inside a transaction that goes on.
func TestDoTxEndingsLeaveTheTransactionUsable(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	mustDo(t, b.store, request("reused"), created("reused"))
	owner := hold()
	done := goDo(t.Context(), b.store, request("in flight"), owner.mutation(created("in flight")))
	<-owner.entered
	ctx := t.Context()
	b.inTx(t, func(tx pgx.Tx) error {
		_, err := b.store.DoTx(ctx, tx, request("aborted"), aborting("aborted"))
		wantError(t, err, errDecline)
		_, err = b.store.DoTx(ctx, tx, request("failed"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			_, _ = tx.Exec(ctx, "insert into effects (name) values (null)")
			return receipt("failed"), nil
		})
		wantError(t, err, pgx.ErrTxCommitRollback)
		func() {
			defer func() { _ = recover() }()
			_, _ = b.store.DoTx(ctx, tx, request("panicked"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
				_ = write(ctx, tx, "panicked")
				panic("boom")
			})
		}()
		_, err = b.store.DoTx(ctx, tx, otherPayload("reused"), created("reused"))
		wantError(t, err, idem.ErrKeyReused)
		_, err = b.store.DoTx(ctx, tx, request("in flight"), created("in flight"))
		wantError(t, err, idem.ErrInFlight)
		_, err = b.store.DoTx(ctx, tx, otherPayload("in flight"), created("in flight"))
		wantError(t, err, idem.ErrKeyReused)
		_, err = b.store.DoTx(ctx, tx, request("ended"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			_ = write(ctx, tx, "ended")
			wantError(t, tx.Commit(ctx), idem.ErrTxEnded)
			return receipt("ended"), nil
		})
		wantError(t, err, idem.ErrTxEnded)
		for i := range 2 { // one key twice in one transaction: the second is a replay
			result, err := b.store.DoTx(ctx, tx, request("rejected"), rejecting("rejected"))
			if err != nil || result.State != idem.StateRejected || result.Replayed != (i == 1) {
				t.Errorf("rejection %d: %+v, %v", i, result, err)
			}
		}
		_, err = b.store.DoTx(ctx, tx, request("done"), created("done"))
		return err
	})
	close(owner.leave)
	<-done
	for name, want := range map[string]int{
		"aborted": 0, "failed": 0, "panicked": 0, "ended": 0, "reused": 1, "in flight": 1, "rejected": 0, "done": 1,
	} {
		b.wantEffects(t, name, want)
	}
	for name, replays := range map[string]bool{"aborted": false, "failed": false, "panicked": false, "ended": false, "done": true} {
		if result := mustDo(t, b.store, request(name), created(name)); result.Replayed != replays {
			t.Errorf("%s: Replayed is %v", name, result.Replayed)
		}
	}
	result := mustDo(t, b.store, request("rejected"), created("rejected"))
	if result.State != idem.StateRejected || !result.Replayed {
		t.Errorf("rejected: %+v", result)
	}
}

// Two keys become one unit by DoTx on the lent transaction.
func TestDoTxOnALentTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	both := func(end error) idem.Mutation {
		return func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			inner, err := b.store.DoTx(ctx, tx, request("inner"), created("inner"))
			if err != nil || inner.Status != 201 {
				t.Errorf("inner: %+v, %v", inner, err)
			}
			if err := write(ctx, tx, "outer"); err != nil {
				return idem.Response{}, err
			}
			return receipt("outer"), end
		}
	}
	_, err := b.store.Do(t.Context(), request("outer"), both(errDecline))
	wantError(t, err, errDecline)
	b.wantEffects(t, "inner", 0)
	mustDo(t, b.store, request("outer"), both(nil))
	b.wantEffects(t, "inner", 1)
	b.wantEffects(t, "outer", 1)
	for _, key := range []string{"inner", "outer"} {
		if result := mustDo(t, b.store, request(key), created(key)); !result.Replayed || string(result.Body) != string(receipt(key).Body) {
			t.Errorf("%s: %+v", key, result)
		}
	}
}

func TestDoTxUnderASnapshotAsksForANewTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	tx, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "select 1"); err != nil { // takes the snapshot
		t.Fatal(err)
	}
	mustDo(t, b.store, request("k"), created("k"))
	_, err = b.store.DoTx(t.Context(), tx, request("k"), created("k"))
	if sqlstate(err) != "40001" || !idem.Retryable(err) {
		t.Errorf("error is %v, want 40001", err)
	}
	b.wantEffects(t, "k", 1)
}

// In a caller's transaction that reads from one snapshot nobody can tell for
// sure that the request in flight asks for something else.
func TestDoTxAnotherPayloadInFlight(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	owner := hold()
	done := goDo(t.Context(), b.store, request("k"), owner.mutation(created("k")))
	<-owner.entered
	for _, level := range isolationLevels {
		want := idem.ErrInFlight
		if level == pgx.ReadCommitted {
			want = idem.ErrKeyReused
		}
		err := pgx.BeginTxFunc(t.Context(), b.pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			_, err := b.store.DoTx(t.Context(), tx, otherPayload("k"), created("k"))
			return err
		})
		if !errors.Is(err, want) {
			t.Errorf("%s: error is %v, want %v", level, err, want)
		}
	}
	close(owner.leave)
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
	b.wantEffects(t, "k", 1)
}
