package integration

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/integration/faults"
)

// Goal: a call whose COMMIT got no answer never runs its mutation again beside
// an effect that stays. Method: the record of that COMMIT expires before it can
// be asked for, so its absence proves nothing.
func TestACommitThatMayHaveExpiredIsUnknown(t *testing.T) {
	t.Parallel()
	config := idem.Config{CommitTimeout: 500 * time.Millisecond, TTL: 100 * time.Millisecond}
	b := newBench(t, config)
	w := newWire(t, b.database)
	store := newStore(t, wirePool(t, b.database, w, pgx.QueryExecModeExec), config)
	w.Arm(unansweredCommit(faults.BlackHole)) // the server commits, and the call learns nothing for longer than the TTL
	var runs atomic.Int64
	result, err := store.Do(t.Context(), request("k"), counting(&runs, created("k")))
	var unknown *idem.OutcomeUnknownError
	if !errors.As(err, &unknown) || unknown.Last == nil {
		t.Errorf("got %+v, %v, want OutcomeUnknownError", result, err)
	}
	if runs.Load() != 1 {
		t.Errorf("the mutation ran %d times in one call", runs.Load())
	}
	b.wantEffects(t, "k", 1)
}

// Nothing stays of a run that ended with a conflict, so the life of the record
// begins with the claim of the next one.
func TestARerunBeginsTheLifeOfItsRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	var firstRun time.Time
	mustDo(t, b.store, request("k"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		if firstRun.IsZero() {
			return idem.Response{}, errors.Join(tx.QueryRow(ctx, "select clock_timestamp()").Scan(&firstRun), &pgconn.PgError{Code: "40001"})
		}
		return created("k")(ctx, tx)
	})
	record, err := b.store.Lookup(t.Context(), "acme", "k")
	if err != nil || !record.CreatedAt.After(firstRun) {
		t.Errorf("the record counts from %v, the first run was at %v: %v", record.CreatedAt, firstRun, err)
	}
}

// A mutation that called Commit is doomed. It cannot be saved by a Reject, which
// is what a handler makes of Commit's error when it refuses on any error.
func TestCommitFollowedByRejectIsAnAbort(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	doomed := func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		if err := write(ctx, tx, "k"); err != nil {
			return idem.Response{}, err
		}
		return idem.Response{}, fmt.Errorf("wrapped: %w", idem.Reject(idem.Response{Status: 422}, errors.Join(errDecline, tx.Commit(ctx))))
	}
	result, err := b.store.Do(t.Context(), request("k"), doomed)
	if !errors.Is(err, idem.ErrTxEnded) || !errors.Is(err, errDecline) {
		t.Errorf("got %+v, %v, want ErrTxEnded and the cause", result, err)
	}
	b.inTx(t, func(tx pgx.Tx) error {
		result, err := b.store.DoTx(t.Context(), tx, request("k"), doomed)
		if !errors.Is(err, idem.ErrTxEnded) {
			t.Errorf("DoTx: got %+v, %v, want ErrTxEnded", result, err)
		}
		return nil
	})
	_, err = b.store.Lookup(t.Context(), "acme", "k")
	wantError(t, err, idem.ErrNotFound)
	mustDo(t, b.store, request("k"), created("k"))
	b.wantEffects(t, "k", 1)
}

// Goal: a wait for a request in flight that something cuts short, such as a
// statement_timeout of the role, goes on until the policy's time is over.
// Method: the statement is cancelled while it waits.
func TestAWaitThatIsCutShortGoesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	waiting := newStore(t, b.Pool(t), idem.Config{ClaimWait: 60 * time.Second})
	owner := hold()
	done := goDo(t.Context(), b.store, request("k"), owner.mutation(created("k")))
	<-owner.entered
	duplicate := goDo(t.Context(), waiting, request("k"), created("k"))
	await(t, b.pool, "the duplicate waits", waitsForPayloadLock)
	var pid int
	var since time.Time
	if err := b.pool.QueryRow(t.Context(), `select pid, query_start from pg_stat_activity
		where datname = current_database() and wait_event = 'advisory'`).Scan(&pid, &since); err != nil {
		t.Fatal(err)
	}
	b.exec(t, "select pg_cancel_backend($1)", pid)
	await(t, b.pool, "the wait is over", `select not exists (select from pg_stat_activity
		where datname = current_database() and wait_event = 'advisory' and query_start = $1)`, since)
	close(owner.leave)
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
	if o := <-duplicate; o.err != nil || !o.result.Replayed {
		t.Errorf("the duplicate got %+v, %v", o.result, o.err)
	}
	b.wantEffects(t, "k", 1)
}

// A wait that ends for want of time is ended by the server: a client that closes
// the connection instead would have the pool connect again for each duplicate.
func TestAWaitThatEndsKeepsItsConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	pool := b.Pool(t, maxConns(2))
	waiting := newStore(t, pool, idem.Config{ClaimWait: 20 * time.Millisecond})
	owner := hold()
	done := goDo(t.Context(), b.store, request("k"), owner.mutation(created("k")))
	<-owner.entered
	for range 40 {
		_, err := waiting.Do(t.Context(), request("k"), created("k"))
		wantError(t, err, idem.ErrInFlight)
	}
	if n := pool.Stat().NewConnsCount(); n > 2 {
		t.Errorf("the pool of 2 connected %d times", n)
	}
	close(owner.leave)
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
}

// watchedContext sees whether it is asked after its call has returned.
type watchedContext struct {
	context.Context
	over atomic.Bool
	late atomic.Int64
}

func (c *watchedContext) Value(key any) any {
	if c.over.Load() {
		c.late.Add(1)
	}
	return c.Context.Value(key)
}

// contextReader asks the context of each statement, as tracers do.
type contextReader struct{}

func (contextReader) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	_ = ctx.Value(contextReader{})
	return ctx
}

func (contextReader) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A caller's context may live in a buffer that is used for the next request, as
// fasthttp's does: what follows the answer must not touch it.
func TestNothingAsksTheContextAfterTheAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{}, func(c *pgxpool.Config) { c.ConnConfig.Tracer = contextReader{} })
	mustDo(t, b.store, request("k"), created("k"))
	for range 30 {
		ctx := &watchedContext{Context: t.Context()}
		_, err := b.store.Do(ctx, request("k"), created("k"))
		ctx.over.Store(true)
		if err != nil {
			t.Fatal(err)
		}
		if err := eventually(settleWait, b.borrowedConnections); err != nil {
			t.Fatal(err)
		}
		if n := ctx.late.Load(); n != 0 {
			t.Fatalf("the context was asked %d times after Do had returned", n)
		}
	}
}

// The cause given to Reject belongs to that run alone: when its record meets a
// conflict and the next run completes, nobody was refused.
func TestTheCauseOfARejectionThatDidNotCountIsNotObserved(t *testing.T) {
	t.Parallel()
	var calls []idem.Call
	b := newBench(t, idem.Config{Observer: observer(func(call idem.Call) { calls = append(calls, call) })})
	b.exec(t, `create function conflict() returns trigger language plpgsql as $$ begin raise 'conflict' using errcode = '40001'; end $$`)
	b.exec(t, `create trigger conflict before update on idem.records for each row when (new.state = 'rejected') execute function conflict()`)
	runs := 0
	result := mustDo(t, b.store, request("k"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		if runs++; runs == 1 {
			return idem.Response{}, idem.Reject(idem.Response{Status: 422}, errDecline)
		}
		return created("k")(ctx, tx)
	})
	if result.State != idem.StateCompleted || len(calls) != 1 || calls[0].Outcome != idem.OutcomeCompleted || calls[0].Err != nil {
		t.Errorf("got %+v, observed %+v", result, calls)
	}
}

// Poolers and other engines send the severity in its localized field alone.
func TestAFatalErrorIsRetryableInEitherSpelling(t *testing.T) {
	t.Parallel()
	for _, err := range []*pgconn.PgError{{Code: "XX000", Severity: "FATAL"}, {Code: "XX000", Severity: "FATALE", SeverityUnlocalized: "FATAL"}} {
		if !idem.Retryable(err) {
			t.Errorf("%+v is not retryable", err)
		}
	}
	if idem.Retryable(&pgconn.PgError{Code: "XX000", Severity: "ERROR"}) {
		t.Error("an ERROR is retryable")
	}
}

// A context that a mutation left to a goroutine belongs to nobody's mutation any
// more once the call has ended, and the goroutine may use it beside a re-run.
func TestAContextKeptFromAMutationIsFreeWhenTheCallHasEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{}, maxConns(2))
	single := newStore(t, b.Pool(t, maxConns(1)), idem.Config{})
	var kept context.Context
	mustDo(t, single, request("k"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		kept = ctx
		return created("k")(ctx, tx)
	})
	if result, err := single.Do(kept, request("k"), created("k")); err != nil || !result.Replayed {
		t.Errorf("the same key: %+v, %v, want a replay", result, err)
	}
	if _, err := single.Do(kept, request("other"), created("other")); err != nil {
		t.Errorf("another key: %v", err)
	}

	var beside <-chan outcome
	mustDo(t, b.store, request("again"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		if beside == nil {
			beside = goDo(ctx, b.store, request("beside"), created("beside"))
			return idem.Response{}, &pgconn.PgError{Code: "40001"}
		}
		return created("again")(ctx, tx)
	})
	if o := <-beside; o.err != nil {
		t.Error(o.err)
	}
}
