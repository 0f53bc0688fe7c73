package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
)

var isolationLevels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

func maxConns(n int32) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.MaxConns = n }
}

// burst calls Do n times at once and returns what came back.
func burst(stores []*idem.Store, n int, r idem.Request, m idem.Mutation) []outcome {
	outcomes := make([]outcome, n)
	var ready, done sync.WaitGroup
	barrier := make(chan struct{})
	for i := range n {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-barrier
			result, err := stores[i%len(stores)].Do(context.Background(), r, m)
			outcomes[i] = outcome{result, err}
		})
	}
	ready.Wait()
	close(barrier)
	done.Wait()
	return outcomes
}

// One effect, one first answer; everyone else gets the same bytes or a 409.
func TestABurstOfOneKeyRunsOnce(t *testing.T) {
	t.Parallel()
	for _, level := range isolationLevels {
		for _, wait := range []time.Duration{0, 20 * time.Second} {
			t.Run(fmt.Sprintf("%s/wait=%v", level, wait), func(t *testing.T) {
				t.Parallel()
				config := idem.Config{IsolationLevel: level, ClaimWait: wait}
				b := newBench(t, config, maxConns(10))
				first, replayed := 0, 0
				for _, o := range burst(b.processes(t, 25, config), 100, request("k"), created("k")) {
					switch {
					case errors.Is(o.err, idem.ErrInFlight) && wait == 0:
						continue
					case o.err != nil:
						t.Fatalf("a duplicate got %v", o.err)
					case string(o.result.Body) != string(receipt("k").Body) || o.result.Status != 201:
						t.Fatalf("a duplicate got another answer: %+v", o.result)
					case o.result.Replayed:
						replayed++
					default:
						first++
					}
				}
				if first != 1 || wait > 0 && replayed != 99 {
					t.Errorf("%d first answers and %d replays", first, replayed)
				}
				b.wantEffects(t, "k", 1)
			})
		}
	}
}

// Same key, two payloads at once: only the accepted one's write stays.
func TestTheRefusedPayloadLeavesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{}, maxConns(10))
	for round := range 300 {
		key := fmt.Sprint("k", round)
		one := goDo(t.Context(), b.store, request(key), created(key+"/one"))
		two := goDo(t.Context(), b.store, otherPayload(key), created(key+"/two"))
		for name, o := range map[string]outcome{"/one": <-one, "/two": <-two} {
			want := 1
			if o.err != nil {
				wantError(t, o.err, idem.ErrKeyReused)
				want = 0
			}
			b.wantEffects(t, key+name, want)
		}
	}
	if n := scalar[int](t, b.pool, "select count(*) from effects"); n != 300 {
		t.Errorf("%d effects of 300 keys", n)
	}
}

// The same request in flight is 409 and another payload 422, for every one of
// many duplicates at the same time, under both policies.
func TestAnotherPayloadInFlightIsReusedNotInFlight(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
		t.Run(fmt.Sprint("wait=", wait), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, idem.Config{ClaimWait: wait}, maxConns(12))
			owner := hold()
			done := goDo(t.Context(), b.store, request("k"), owner.mutation(created("k")))
			<-owner.entered
			for _, o := range burst([]*idem.Store{b.store, b.elsewhere}, 60, otherPayload("k"), created("k")) {
				wantError(t, o.err, idem.ErrKeyReused)
			}
			for _, o := range burst([]*idem.Store{b.store, b.elsewhere}, 30, request("k"), created("k")) {
				wantError(t, o.err, idem.ErrInFlight)
			}
			close(owner.leave)
			if o := <-done; o.err != nil {
				t.Error(o.err)
			}
			b.wantEffects(t, "k", 1)
			_, err := b.store.Do(t.Context(), otherPayload("k"), created("k"))
			wantError(t, err, idem.ErrKeyReused)
		})
	}
}

// Goal: a same-payload duplicate that races with the owner's COMMIT while
// another payload holds the key lock for a moment is never told that the key
// was reused. Method: many short mutations under both kinds of duplicates.
func TestADuplicateOfTheOwnerIsNeverCalledReused(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{}, maxConns(16))
	for round := range 60 {
		key := fmt.Sprint("k", round)
		mustOwn := hold()
		owner := goDo(t.Context(), b.store, request(key), mustOwn.mutation(created(key)))
		<-mustOwn.entered
		var group sync.WaitGroup
		for i := range 16 {
			group.Go(func() {
				if i == 8 {
					close(mustOwn.leave)
				}
				r := request(key)
				if i%2 == 0 {
					r = otherPayload(key)
				}
				_, err := b.store.Do(t.Context(), r, created(key))
				switch {
				case i%2 == 0 && !errors.Is(err, idem.ErrInFlight):
					wantError(t, err, idem.ErrKeyReused)
				case err != nil:
					wantError(t, err, idem.ErrInFlight)
				}
			})
		}
		group.Wait()
		if o := <-owner; o.err != nil {
			t.Fatal(o.err)
		}
		b.wantEffects(t, key, 1)
	}
}

// On an engine whose advisory locks do nothing, the primary key alone decides.
func TestWithoutAdvisoryLocksTheKeyIsStillOne(t *testing.T) {
	t.Parallel()
	for _, level := range isolationLevels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, idem.Config{IsolationLevel: level}, maxConns(10))
			b.exec(t, `create schema pretend;
				create function pretend.pg_try_advisory_xact_lock(bigint) returns boolean language sql volatile as 'select true'`)
			b.pool = b.Pool(t, func(c *pgxpool.Config) {
				c.MaxConns = 10
				c.ConnConfig.RuntimeParams["search_path"] = "pretend, pg_catalog, public"
			})
			stores := b.processes(t, 40, idem.Config{IsolationLevel: level})
			first := 0
			for _, o := range burst(stores, 40, request("k"), created("k")) {
				if o.err != nil {
					t.Errorf("a duplicate got %v", o.err)
				} else if !o.result.Replayed {
					first++
				}
			}
			if first != 1 {
				t.Errorf("%d first answers", first)
			}
			b.wantEffects(t, "k", 1)
			_, err := stores[0].Do(t.Context(), otherPayload("k"), created("k"))
			wantError(t, err, idem.ErrKeyReused)
		})
	}
}

// More callers than connections, each with one at a time: nobody hangs.
func TestASmallPoolDoesNotHang(t *testing.T) {
	t.Parallel()
	for conns := int32(1); conns <= 4; conns++ {
		for _, wait := range []time.Duration{0, 20 * time.Second} {
			t.Run(fmt.Sprintf("MaxConns=%d/wait=%v", conns, wait), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, idem.Config{ClaimWait: wait, AcquireTimeout: 30 * time.Second}, maxConns(conns))
				var group sync.WaitGroup
				for i := range 50 {
					for range 2 {
						group.Go(func() {
							key := fmt.Sprint("k", i)
							_, err := b.store.Do(t.Context(), request(key), created(key))
							if err != nil && (wait > 0 || !errors.Is(err, idem.ErrInFlight)) {
								t.Errorf("%s: %v", key, err)
							}
						})
					}
				}
				group.Wait()
				if n := scalar[int](t, b.pool, "select count(distinct name) * 1000 + count(*) from effects"); n != 50050 {
					t.Errorf("distinct*1000 + all effects is %d, want 50050", n)
				}
			})
		}
	}
}

func TestAPoolThatIsExhaustedSaysSo(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{AcquireTimeout: 20 * time.Millisecond}, maxConns(1))
	owner := hold()
	done := goDo(t.Context(), b.store, request("slow"), owner.mutation(created("slow")))
	<-owner.entered
	_, err := b.store.Do(t.Context(), request("k"), created("k"))
	if err == nil || !idem.Retryable(err) {
		t.Errorf("error is %v, want a retryable one", err)
	}
	close(owner.leave)
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
	b.wantEffects(t, "k", 0)
}
