package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idempg/idempg/idem"
)

func aborting(name string) idem.Mutation {
	return func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		return receipt(name), errors.Join(errDecline, write(ctx, tx, name))
	}
}

func rejecting(name string) idem.Mutation {
	return func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		if err := write(ctx, tx, name); err != nil {
			return idem.Response{}, err
		}
		return idem.Response{}, idem.Reject(idem.Response{Status: 422, Body: []byte("no")}, errDecline)
	}
}

// A conflict re-runs the whole unit in a new transaction, as often as allowed.
func TestASerializationFailureRunsTheUnitAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{AttemptsMax: 3})
	for _, code := range []string{"40001", "40P01"} {
		for failures := range 4 {
			key := fmt.Sprint(code, "/", failures)
			runs := 0
			result, err := b.store.Do(t.Context(), request(key), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
				runs++
				if err := write(ctx, tx, key); err != nil {
					return idem.Response{}, err
				}
				if runs <= failures {
					_, err := tx.Exec(ctx, fmt.Sprintf("do $$ begin raise 'conflict' using errcode = '%s'; end $$", code))
					return idem.Response{}, fmt.Errorf("in the handler: %w", err)
				}
				return receipt(key), nil
			})
			if want := min(failures+1, 3); runs != want {
				t.Errorf("%s: ran %d times, want %d", key, runs, want)
			}
			if failures < 3 {
				if err != nil || result.Replayed {
					t.Errorf("%s: %+v, %v", key, result, err)
				}
				b.wantEffects(t, key, 1)
			} else {
				if sqlstate(err) != code || !idem.Retryable(err) {
					t.Errorf("%s: error is %v, want %s", key, err, code)
				}
				b.wantEffects(t, key, 0)
			}
		}
	}
}

func TestAMutationThatRunsOnceAtMostIsNotRunAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	r := request("k")
	r.AttemptsMax = 1
	runs := 0
	_, err := b.store.Do(t.Context(), r, func(context.Context, pgx.Tx) (idem.Response, error) {
		runs++
		return idem.Response{}, &pgconn.PgError{Code: "40001"}
	})
	if sqlstate(err) != "40001" || runs != 1 {
		t.Errorf("ran %d times: %v", runs, err)
	}
}

// Real conflicts: read-modify-write of one row at SERIALIZABLE, distinct keys.
func TestConcurrentUnitsOnOneRowAllSucceed(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{IsolationLevel: pgx.Serializable, AttemptsMax: 100}, maxConns(8))
	b.exec(t, "create table counter (n int)")
	b.exec(t, "insert into counter values (0)")
	var runs atomic.Int64
	var group sync.WaitGroup
	for i := range 40 {
		group.Go(func() {
			key := fmt.Sprint("k", i)
			_, err := b.store.Do(t.Context(), request(key), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
				runs.Add(1)
				var n int
				if err := tx.QueryRow(ctx, "select n from counter").Scan(&n); err != nil {
					return idem.Response{}, err
				}
				_, err := tx.Exec(ctx, "update counter set n = $1", n+1)
				return receipt(key), err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := scalar[int](t, b.pool, "select n from counter"); n != 40 {
		t.Errorf("the counter is %d after 40 increments in %d runs", n, runs.Load())
	}
}

// Two requests take two keys in crossed order inside each other: one is the
// deadlock's victim, bounded, and nothing is half done.
func TestCrossedKeysEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{ClaimWait: 2 * time.Second, AttemptsMax: 3}, maxConns(10))
	var entered sync.WaitGroup
	entered.Add(2)
	once := [2]sync.Once{}
	outer := func(i int, own, other string) <-chan outcome {
		return goDo(t.Context(), b.store, request(own), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			once[i].Do(entered.Done)
			entered.Wait()
			if _, err := b.store.DoTx(ctx, tx, request(other), created(other)); err != nil {
				return idem.Response{}, err
			}
			return receipt(own), write(ctx, tx, own)
		})
	}
	one, two := outer(0, "a", "b"), outer(1, "b", "a")
	for _, o := range []outcome{<-one, <-two} {
		if o.err != nil && !idem.Retryable(o.err) {
			t.Errorf("a crossed request ended with %v", o.err)
		}
	}
	for _, key := range []string{"a", "b"} {
		if n := b.effects(t, key); n > 1 {
			t.Errorf("the effect of %s happened %d times", key, n)
		}
	}
}
