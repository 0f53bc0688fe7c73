package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/internal/failpoint"
)

// nested calls Do inside the mutation, on a pool that the test chooses.
func nested(store *idem.Store, key string, inner idem.Mutation) idem.Mutation {
	return func(ctx context.Context, _ pgx.Tx) (idem.Response, error) {
		result, err := store.Do(ctx, request(key), inner)
		return result.Response, err
	}
}

// A call that could only wait for itself is refused at once, and says what to
// do instead. The wait it is spared is longer than the test may take.
func TestACallThatWouldWaitForItselfIsRefused(t *testing.T) {
	t.Parallel()
	for _, depth := range []int32{1, 3} {
		t.Run(fmt.Sprintf("MaxConns=%d", depth), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, idem.Config{AcquireTimeout: time.Hour}, maxConns(depth))
			chain := created("effect")
			for i := range depth {
				chain = nested(b.store, fmt.Sprint("inner ", i), chain)
			}
			_, err := b.store.Do(t.Context(), request("outer"), chain)
			if err == nil || !strings.Contains(err.Error(), "use DoTx") || idem.Retryable(err) {
				t.Errorf("error is %v (retryable: %v), want a final one that names DoTx", err, idem.Retryable(err))
			}
			b.wantEffects(t, "effect", 0)

			// The advice holds: one connection is enough.
			mustDo(t, b.store, request("outer"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
				result, err := b.store.DoTx(ctx, tx, request("inner"), created("effect"))
				return result.Response, err
			})
			b.wantEffects(t, "effect", 1)
		})
	}
}

// What the mutations around a call do not hold, it may wait for; DoTx counts as
// part of the connection it is on, and so does a mutation of another pool.
func TestACallWaitsForWhatOthersHold(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{AcquireTimeout: time.Hour}, maxConns(2))
	elsewhere := newStore(t, b.Pool(t, maxConns(1)), idem.Config{})
	borrowed, err := b.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	beside := nested(b.store, "beside", created("effect"))
	mustDo(t, b.store, request("outer"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		result, err := b.store.DoTx(ctx, tx, request("in it"), nested(elsewhere, "elsewhere", func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			if n := b.pool.Stat().AcquiredConns(); n != 2 {
				t.Errorf("%d connections are taken, want both", n)
			}
			go borrowed.Release()
			return beside(ctx, tx)
		}))
		return result.Response, err
	})
	b.wantEffects(t, "effect", 1)
}

// A call inside a mutation that finds the pool taken by others gives up like any
// call, and its error tells about the connection that is held around it.
func TestACallInAMutationThatFindsThePoolTakenSaysWhy(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{AcquireTimeout: 20 * time.Millisecond}, maxConns(2))
	borrowed := b.pool.AcquireAllIdle(t.Context())[0]
	second, err := b.pool.Acquire(t.Context()) // so that none has to be made within AcquireTimeout
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
	_, err = b.store.Do(t.Context(), request("outer"), nested(b.store, "inner", created("effect")))
	borrowed.Release()
	if err == nil || !strings.Contains(err.Error(), "use DoTx") || !idem.Retryable(err) {
		t.Errorf("error is %v, want a retryable one that names DoTx", err)
	}
	b.wantEffects(t, "effect", 0)
}

// Goal: a mutation that asks the pool itself for a second connection waits no
// longer than its own context, and then everything is undone. The library does
// not see that wait.
func TestAMutationThatTakesAnotherConnectionIsBoundByItsContext(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{}, maxConns(1))
	ctx, cancel := context.WithCancel(t.Context())
	done := goDo(ctx, b.store, request("k"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		if err := write(ctx, tx, "k"); err != nil {
			return idem.Response{}, err
		}
		cancel() // what a deadline does
		_, err := b.pool.Exec(ctx, "insert into effects (name) values ('beside')")
		return receipt("k"), err
	})
	wantError(t, (<-done).err, context.Canceled)
	b.wantEffects(t, "k", 0)
	b.wantEffects(t, "beside", 0)
	mustDo(t, b.store, request("k"), created("k"))
}

// Goal: a wait leaves nothing in memory, however it ends. Method: duplicates
// wait for many keys whose owners complete, abort and panic, and for some until
// their time or their caller's is over; then count what is kept.
func TestNoWaitIsKeptInMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{ClaimWait: time.Minute}, maxConns(20))
	kept := failpoint.Open(b.elsewhere).Waits
	impatient := newStore(t, b.pool, idem.Config{ClaimWait: time.Millisecond})
	direct := b.Pool(t)
	endings := []idem.Mutation{
		created("k"), aborting("k"), rejecting("k"),
		func(context.Context, pgx.Tx) (idem.Response, error) { panic("boom") },
	}
	for i := range 12 {
		r := request(fmt.Sprint("k", i))
		owner := hold()
		ending := endings[i%len(endings)]
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { _ = recover() }()
			_, _ = b.store.Do(context.Background(), r, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
				close(owner.entered)
				<-owner.leave
				return ending(ctx, tx)
			})
		}()
		<-owner.entered
		ctx, hangUp := context.WithCancel(t.Context())
		gone := goDo(ctx, b.elsewhere, r, created("k"))
		if err := eventually(time.Minute, func() error {
			if n := kept(); n != 1 {
				return fmt.Errorf("%d waits are kept while one duplicate waits, want 1", n)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		await(t, direct, "a duplicate waits", waitsForPayloadLock)
		stays := goDo(t.Context(), b.elsewhere, r, created("k"))
		_, err := impatient.Do(t.Context(), r, created("k"))
		wantError(t, err, idem.ErrInFlight)
		hangUp()
		if o := <-gone; o.err == nil {
			t.Error("a caller that hung up got an answer")
		}
		close(owner.leave)
		if o := <-stays; o.err != nil {
			t.Error(o.err)
		}
		<-ended
	}
	for _, store := range []*idem.Store{b.elsewhere, impatient, b.store} {
		if n := failpoint.Open(store).Waits(); n != 0 {
			t.Errorf("%d calls are kept when none runs", n)
		}
	}
}

// Goal: memory does not grow with the number of keys. Method: count the objects
// on the heap after a thousand keys and again after many more, each used once,
// replayed and refused for another payload. The rest of the run must stand still
// meanwhile, so the test is not parallel. IDEM_TEST_KEYS sets the number of keys
// for a longer run.
//
// It shows that a Store, its pool and the statements prepared on it keep less
// than one object per ten keys; a map entry per key would be at least one.
func TestMemoryDoesNotGrowWithKeys(t *testing.T) {
	keys := 5000
	if wanted := os.Getenv("IDEM_TEST_KEYS"); wanted != "" {
		var err error
		if keys, err = strconv.Atoi(wanted); err != nil {
			t.Fatalf("IDEM_TEST_KEYS: %v", err)
		}
	}
	b := newBench(t, idem.Config{ClaimWait: time.Second}, maxConns(4))
	b.exec(t, "alter table idem.records set unlogged")
	empty := func(context.Context, pgx.Tx) (idem.Response, error) { return idem.Response{}, nil }
	use := func(from, to int) {
		var workers sync.WaitGroup
		for w := range 4 {
			workers.Go(func() {
				for i := from + w; i < to; i += 4 {
					r := request(fmt.Sprint("k", i))
					_, err := b.store.Do(t.Context(), r, empty)
					if i%10 == 0 && err == nil {
						_, err = b.store.Do(t.Context(), r, empty)
						_, reused := b.store.Do(t.Context(), otherPayload(r.Key), empty)
						if !errors.Is(reused, idem.ErrKeyReused) {
							t.Errorf("another payload: %v", reused)
						}
					}
					if err != nil {
						t.Errorf("key %d: %v", i, err)
						return
					}
				}
			})
		}
		workers.Wait()
	}
	use(0, 1000)
	before := heapObjects()
	use(1000, 1000+keys)
	grown := heapObjects() - before
	t.Logf("%d keys, %d objects more on the heap", keys, grown)
	if grown > keys/10 {
		t.Errorf("%d objects more on the heap after %d keys, want at most %d", grown, keys, keys/10)
	}
	if n := failpoint.Open(b.store).Waits(); n != 0 {
		t.Errorf("%d waits are kept when nobody waits", n)
	}
}

// heapObjects counts what is reachable.
func heapObjects() int {
	var stats runtime.MemStats
	for range 3 { // finalizers and pools let go over two collections
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int(stats.HeapObjects)
}
