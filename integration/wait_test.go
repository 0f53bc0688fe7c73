package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

const waitsForPayloadLock = `select exists (select from pg_stat_activity
	where datname = current_database() and wait_event_type = 'Lock' and wait_event = 'advisory')`

func TestADuplicateWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	for _, level := range isolationLevels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, idem.Config{IsolationLevel: level})
			waiting := newStore(t, b.Pool(t), idem.Config{IsolationLevel: level, ClaimWait: 30 * time.Second})
			owner := hold()
			done := goDo(t.Context(), b.store, request("k"), owner.mutation(created("k")))
			<-owner.entered
			duplicate := goDo(t.Context(), waiting, request("k"), created("k"))
			await(t, b.pool, "the duplicate waits", waitsForPayloadLock)
			close(owner.leave)
			if o := <-done; o.err != nil {
				t.Fatal(o.err)
			}
			if o := <-duplicate; o.err != nil || !o.result.Replayed {
				t.Errorf("the duplicate got %+v, %v", o.result, o.err)
			}
			b.wantEffects(t, "k", 1)
		})
	}
}

// The holder aborts: a duplicate that waited runs the mutation, once.
func TestADuplicateThatWaitedTakesAnAbortedKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{ClaimWait: 30 * time.Second})
	elsewhere := newStore(t, b.Pool(t), idem.Config{ClaimWait: 30 * time.Second})
	owner := hold()
	done := goDo(t.Context(), b.store, request("k"), owner.mutation(func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		return idem.Response{}, errors.Join(errDecline, write(ctx, tx, "k"))
	}))
	<-owner.entered
	duplicates := make([]<-chan outcome, 10)
	for i := range duplicates {
		duplicates[i] = goDo(t.Context(), []*idem.Store{b.store, elsewhere}[i%2], request("k"), created("k"))
	}
	await(t, b.pool, "a duplicate waits", waitsForPayloadLock)
	close(owner.leave)
	wantError(t, (<-done).err, errDecline)
	first := 0
	for _, d := range duplicates {
		o := <-d
		if o.err != nil {
			t.Error(o.err)
		} else if !o.result.Replayed {
			first++
		}
	}
	if first != 1 {
		t.Errorf("%d duplicates ran the mutation, want 1", first)
	}
	b.wantEffects(t, "k", 1)
}

func TestTheWaitIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{ClaimWait: 50 * time.Millisecond})
	owner := hold()
	done := goDo(t.Context(), b.store, request("k"), owner.mutation(created("k")))
	<-owner.entered
	for _, o := range burst([]*idem.Store{b.store}, 5, request("k"), created("k")) {
		wantError(t, o.err, idem.ErrInFlight)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errDecline)
	_, err := b.store.Do(ctx, request("k"), created("k"))
	if err == nil || errors.Is(err, idem.ErrInFlight) {
		t.Errorf("with a caller that has gone the error is %v, want the context's", err)
	}
	close(owner.leave)
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
}

// Many duplicates of a slow key leave the pool to the other keys: those in the
// owner's process take no connection, those elsewhere share one.
func TestWaitingDuplicatesShareOneConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{ClaimWait: 60 * time.Second, AcquireTimeout: time.Minute}, maxConns(3))
	owner := hold()
	done := goDo(t.Context(), b.store, request("slow"), owner.mutation(created("slow")))
	<-owner.entered
	var duplicates sync.WaitGroup
	for i := range 400 {
		duplicates.Go(func() {
			result, err := []*idem.Store{b.store, b.elsewhere}[i%2].Do(context.Background(), request("slow"), created("slow"))
			if err != nil || !result.Replayed {
				t.Errorf("a duplicate got %+v, %v", result, err)
			}
		})
	}
	direct := b.Pool(t)
	await(t, direct, "a duplicate waits", waitsForPayloadLock)
	// One connection for the owner, one for all duplicates: one is left.
	for i := range 50 {
		key := fmt.Sprint("k", i)
		mustDo(t, b.store, request(key), created(key))
	}
	if n := scalar[int](t, direct, `select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'advisory'`); n != 1 {
		t.Errorf("%d connections wait for the slow key, want 1", n)
	}
	close(owner.leave)
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
	duplicates.Wait()
	b.wantEffects(t, "slow", 1)
}

// A duplicate that does not wait is refused in the owner's process without a
// connection: the owner may hold the last one.
func TestADuplicateOfAnOwnerInTheProcessNeedsNoConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{AcquireTimeout: time.Minute}, maxConns(1))
	owner := hold()
	done := goDo(t.Context(), b.store, request("k"), owner.mutation(created("k")))
	<-owner.entered
	for range 100 {
		_, err := b.store.Do(t.Context(), request("k"), created("k"))
		wantError(t, err, idem.ErrInFlight)
		_, err = b.store.DoBatch(t.Context(), request("k"), createdBatch("k"))
		wantError(t, err, idem.ErrInFlight)
	}
	close(owner.leave)
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
	if again := mustDo(t, b.store, request("k"), created("k")); !again.Replayed {
		t.Errorf("the retry got %+v", again)
	}
	b.wantEffects(t, "k", 1)
}
