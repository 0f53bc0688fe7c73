package integration

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/integration/faults"
)

// lostCommit breaks the connection before the server sees COMMIT.
var lostCommit = faults.Fault{SQL: "commit", Point: faults.Before, Manner: faults.FIN}

// unansweredCommit has the server commit, and its answer lost.
func unansweredCommit(manner faults.Manner) faults.Fault {
	return faults.Fault{SQL: "commit", Point: faults.Swallow, Manner: manner}
}

// counting counts how often a mutation runs.
func counting(runs *atomic.Int64, m idem.Mutation) idem.Mutation {
	return func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		runs.Add(1)
		return m(ctx, tx)
	}
}

// Goal: what the caller is told about a COMMIT without an answer is what is
// durable. Method: a proxy loses COMMIT before the server has it, or the reply
// after, in each way a network can.
func TestAnUnansweredCommitIsSettled(t *testing.T) {
	t.Parallel()
	config := idem.Config{CommitTimeout: 500 * time.Millisecond, SettleTimeout: 20 * time.Second}
	for name, fault := range map[string]faults.Fault{
		"before": lostCommit, "after, FIN": unansweredCommit(faults.FIN),
		"after, RST": unansweredCommit(faults.RST), "after, black hole": unansweredCommit(faults.BlackHole),
	} {
		for ending, m := range map[string]func(string) idem.Mutation{"complete": created, "reject": rejecting} {
			t.Run(name+"/"+ending, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, config)
				w := newWire(t, b.database)
				var seen idem.Call
				observed := config
				observed.Observer = observer(func(c idem.Call) { seen = c })
				store := newStore(t, wirePool(t, b.database, w, pgx.QueryExecModeExec), observed)
				wantEffects, wantState := 1, idem.StateCompleted
				if ending == "reject" {
					wantEffects, wantState = 0, idem.StateRejected
				}

				w.Arm(fault)
				var runs atomic.Int64
				result, err := store.Do(t.Context(), request("k"), counting(&runs, m("k")))
				if err != nil || result.Replayed || result.State != wantState {
					t.Fatalf("got %+v, %v, want a first answer", result, err)
				}
				wantRuns := int64(1)
				if fault == lostCommit {
					wantRuns = 2 // settled as not happened, so the unit ran again
				}
				if runs.Load() != wantRuns {
					t.Errorf("the mutation ran %d times, want %d", runs.Load(), wantRuns)
				}
				if !seen.Unsettled {
					t.Errorf("the observer was not told: %+v", seen)
				}
				b.wantEffects(t, "k", wantEffects)
				if again := mustDo(t, b.store, request("k"), m("k")); !again.Replayed || again.Status != result.Status {
					t.Errorf("the retry got %+v", again)
				}
			})
		}
	}
}

// A mutation that must not run again: the caller is told that nothing stays.
func TestACommitThatDidNotHappenIsAnErrorWhenTheUnitCannotRunAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	w := newWire(t, b.database)
	store := newStore(t, wirePool(t, b.database, w, pgx.QueryExecModeExec), idem.Config{})
	w.Arm(lostCommit)
	r := request("k")
	r.AttemptsMax = 1
	_, err := store.Do(t.Context(), r, created("k"))
	if err == nil || !idem.Retryable(err) {
		t.Errorf("error is %v, want a retryable one", err)
	}
	b.wantEffects(t, "k", 0)
	mustDo(t, store, r, created("k"))
	b.wantEffects(t, "k", 1)
}

// Nobody can be asked: the error says so, and the retry finds out.
func TestAnOutcomeThatCannotBeLearnedIsUnknown(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faults.Fault{"before": lostCommit, "after": unansweredCommit(faults.FIN)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, idem.Config{})
			w := newWire(t, b.database)
			var calls []idem.Call
			store := newStore(t, wirePool(t, b.database, w, pgx.QueryExecModeExec), idem.Config{
				SettleTimeout: 200 * time.Millisecond,
				Observer:      observer(func(call idem.Call) { calls = append(calls, call) }),
			})
			w.Arm(fault)
			_, err := store.Do(t.Context(), request("k"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
				w.Refuse(true)
				return receipt("k"), write(ctx, tx, "k")
			})
			var unknown *idem.OutcomeUnknownError
			if !errors.As(err, &unknown) || unknown.Cause == nil || unknown.Last == nil || !idem.Retryable(err) {
				t.Fatalf("error is %v, want OutcomeUnknownError with both causes", err)
			}
			if len(calls) != 1 || calls[0].Outcome != idem.OutcomeUnknown || calls[0].Attempts != 1 {
				t.Errorf("observed %+v", calls)
			}
			w.Refuse(false)
			await(t, b.pool, "the old backend is gone", `select not exists (select from pg_stat_activity
				where datname = current_database() and pid <> pg_backend_pid() and state like 'idle in tr%')`)
			result := mustDo(t, store, request("k"), created("k"))
			if result.Replayed != (fault != lostCommit) {
				t.Errorf("Replayed is %v", result.Replayed)
			}
			b.wantEffects(t, "k", 1)
		})
	}
}

func TestAnUnansweredCommitWithoutAKeyIsUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	w := newWire(t, b.database)
	store := newStore(t, wirePool(t, b.database, w, pgx.QueryExecModeExec), idem.Config{})
	w.Arm(unansweredCommit(faults.FIN))
	_, err := store.DoWithoutKey(t.Context(), idem.Request{}, created("k"))
	var unknown *idem.OutcomeUnknownError
	if !errors.As(err, &unknown) {
		t.Errorf("error is %v, want OutcomeUnknownError", err)
	}
	b.wantEffects(t, "k", 1)
}

// Whatever the network says of a connection lost before COMMIT, the caller may
// try again: also when the mutation has not begun or has been undone.
func TestAConnectionLostBeforeCommitIsRetryable(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	w := newWire(t, b.database)
	store := newStore(t, wirePool(t, b.database, w, pgx.QueryExecModeExec), idem.Config{})
	for _, lost := range []string{"begin", "rollback"} {
		for _, manner := range []faults.Manner{faults.FIN, faults.RST} {
			w.Arm(faults.Fault{SQL: lost, Point: faults.Before, Manner: manner})
			_, err := store.Do(t.Context(), request("k"), rejecting("k"))
			if !idem.Retryable(err) || w.Fired() != 1 {
				t.Errorf("%s, %s: error is %v, want a retryable one", lost, manner, err)
			}
		}
	}
	w.Arm(faults.Fault{SQL: "begin", Point: faults.Before, Manner: faults.FIN})
	if _, err := store.DoWithoutKey(t.Context(), idem.Request{}, created("k")); !idem.Retryable(err) {
		t.Errorf("without a key: error is %v, want a retryable one", err)
	}
	b.wantEffects(t, "k", 0)
}

// Goal: COMMIT does not end with its caller, and everything before it does.
// Method: the caller's context ends at each step of the unit.
func TestACallerThatHangsUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	for step, want := range map[string]int{"before the claim": 0, "in the mutation": 0, "after its statements": 1} {
		ctx, cancel := context.WithCancel(t.Context())
		if step == "before the claim" {
			cancel()
		}
		result, err := b.store.Do(ctx, request(step), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			if step == "in the mutation" {
				cancel()
			}
			if err := write(ctx, tx, step); err != nil {
				return idem.Response{}, err
			}
			cancel()
			return receipt(step), nil
		})
		cancel()
		if (err == nil) != (want == 1) || err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %+v, %v", step, result, err)
		}
		b.wantEffects(t, step, want)
		if again := mustDo(t, b.store, request(step), created(step)); again.Replayed != (want == 1) {
			t.Errorf("%s: the retry got %+v", step, again)
		}
		b.wantEffects(t, step, 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result, err := b.store.Do(ctx, request("rejected"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		defer cancel()
		return rejecting("rejected")(ctx, tx)
	})
	if err != nil || result.State != idem.StateRejected {
		t.Errorf("a rejection whose caller hung up: %+v, %v", result, err)
	}
}

// The owner's backend dies in the middle: the unit runs again, or, when it
// cannot, the next request does.
func TestALostOwnerFreesTheKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	for _, attemptsMax := range []int{1, 2} {
		key := fmt.Sprint("k", attemptsMax)
		r := request(key)
		r.AttemptsMax = attemptsMax
		runs := 0
		lose := func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			if err := write(ctx, tx, key); err != nil {
				return idem.Response{}, err
			}
			if runs++; runs == 1 {
				b.exec(t, "select pg_terminate_backend($1)", tx.Conn().PgConn().PID())
			}
			return receipt(key), nil
		}
		_, err := b.store.Do(t.Context(), r, lose)
		if attemptsMax == 1 {
			if err == nil || !idem.Retryable(err) {
				t.Errorf("error is %v, want a retryable one", err)
			}
			b.wantEffects(t, key, 0)
			_, err = b.store.Do(t.Context(), r, lose)
		}
		if err != nil || runs != 2 {
			t.Errorf("after %d runs: %v", runs, err)
		}
		b.wantEffects(t, key, 1)
	}
}

// An owner that says nothing for too long loses its transaction, never its key
// to a second run beside it.
func TestAFrozenOwnerFreesTheKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	frozen := newStore(t, b.Pool(t), idem.Config{IdleInTransactionTimeout: 200 * time.Millisecond, AttemptsMax: 1})
	owner := hold()
	done := goDo(t.Context(), frozen, request("k"), owner.mutation(created("k")))
	<-owner.entered
	b.awaitFreeKeys(t)
	if result := mustDo(t, b.store, request("k"), created("k")); result.Replayed {
		t.Error("the frozen owner has a record")
	}
	close(owner.leave)
	if o := <-done; o.err != nil || !o.result.Replayed {
		t.Errorf("the frozen owner got %+v, %v, want the answer of who ran instead", o.result, o.err)
	}
	b.wantEffects(t, "k", 1)
}

// Goal: a wait for a synchronous standby that an operator cancels is not taken
// for a commit that is safe. Method: a server of its own that waits for a
// standby which does not exist.
func TestACancelledWaitForTheStandbyIsUnknown(t *testing.T) {
	t.Parallel()
	own := newServer(t)
	cache := &recordingCache{}
	b := newBenchOn(t, newDatabaseOn(t, own), idem.Config{CommitTimeout: 2 * time.Second, SettleTimeout: time.Second, ReplayCache: cache})
	mustDo(t, b.store, request("warm"), created("warm"))
	setStandby(t, own.admin, "ghost")

	done := goDo(t.Context(), b.store, request("k"), created("k"))
	await(t, own.admin, "COMMIT waits", "select exists (select from pg_stat_activity where wait_event = 'SyncRep')")
	// What an impatient operator does.
	if n := scalar[int](t, own.admin, "select count(pg_cancel_backend(pid)) from pg_stat_activity where wait_event = 'SyncRep'"); n != 1 {
		t.Errorf("cancelled %d waits, want 1", n)
	}
	var unknown *idem.OutcomeUnknownError
	o := <-done
	if !errors.As(o.err, &unknown) {
		t.Errorf("got %+v, %v, want OutcomeUnknownError", o.result, o.err)
	}
	if n := cache.sets(); n != 1 {
		t.Errorf("the replay cache was given %d records, want that of the warm-up alone", n)
	}
	setStandby(t, own.admin, "")
	if result := mustDo(t, b.store, request("k"), created("k")); !result.Replayed {
		t.Errorf("the retry got %+v, want a replay", result)
	}
	b.wantEffects(t, "k", 1)
}

// setStandby changes whom COMMIT waits for.
func setStandby(t *testing.T, admin *pgxpool.Pool, name string) {
	t.Helper()
	for _, sql := range []string{fmt.Sprintf("alter system set synchronous_standby_names = '%s'", name), "select pg_reload_conf()"} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	await(t, admin, "the setting is in force", "select current_setting('synchronous_standby_names') = $1", name)
}

// A notice at COMMIT that is none of the standby's does no harm.
func TestANoticeAtCommitIsNoTrouble(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	b.exec(t, `create function chat() returns trigger language plpgsql as $$ begin raise notice 'hello'; return null; end $$`)
	b.exec(t, `create constraint trigger chat after insert on effects deferrable initially deferred for each row execute function chat()`)
	for i := range 3 {
		key := fmt.Sprint("k", i)
		if result := mustDo(t, b.store, request(key), created(key)); result.Replayed {
			t.Errorf("got %+v", result)
		}
		b.wantEffects(t, key, 1)
	}
}

type observer func(idem.Call)

func (o observer) ObserveCall(_ context.Context, call idem.Call) { o(call) }
