package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

// message is a request as a consumer makes it: the key is the message's id.
func message(id string) idem.Request {
	return idem.Request{Scope: "consumer", Key: id, Fingerprint: idem.NewFingerprint([]byte(id))}
}

// A message whose handler writes and fails three times before it succeeds, and
// that is then delivered again, has one effect.
func TestAConsumerThatFailsBeforeItSucceedsHasOneEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	deliveries := 0
	handle := func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		if err := write(ctx, tx, "m"); err != nil {
			return idem.Response{}, err
		}
		if deliveries <= 3 {
			return idem.Response{}, errDecline
		}
		return idem.Response{}, nil
	}
	for deliveries = 1; deliveries <= 6; deliveries++ {
		result, err := b.store.Do(t.Context(), message("m"), handle)
		if failed := errors.Is(err, errDecline); failed != (deliveries <= 3) || !failed && err != nil {
			t.Errorf("delivery %d: %v", deliveries, err)
		}
		if result.Replayed != (deliveries > 4) {
			t.Errorf("delivery %d: Replayed is %v", deliveries, result.Replayed)
		}
	}
	b.wantEffects(t, "m", 1)
}

// Goal: jobs that mutations write are all delivered, although transactions
// commit in another order than they took their ids. Method: a worker drains by
// row lock, not by a cursor, while mutations of uneven length commit.
func TestJobsOfMutationsAreAllDelivered(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{}, maxConns(10))
	b.exec(t, "create table jobs (id bigint generated always as identity primary key, key text not null)")
	const mutations = 60
	early := hold() // takes the first id and commits last
	writeJob := func(key string) idem.Mutation {
		return func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			_, err := tx.Exec(ctx, "insert into jobs (key) values ($1)", key)
			return receipt(key), errors.Join(err, write(ctx, tx, key))
		}
	}
	last := goDo(t.Context(), b.store, request("k0"), early.mutation(writeJob("k0")))
	<-early.entered

	delivered := map[string]int{}
	drain := func() {
		rows, err := b.pool.Query(t.Context(), `delete from jobs where id in (
			select id from jobs order by id limit 5 for update skip locked) returning key`)
		if err != nil {
			t.Error(err)
			return
		}
		keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Error(err)
		}
		for _, key := range keys {
			delivered[key]++
		}
	}
	var group sync.WaitGroup
	for i := 1; i < mutations; i++ {
		group.Go(func() {
			for range 2 { // each mutation arrives twice
				key := fmt.Sprint("k", i)
				if _, err := b.store.Do(t.Context(), request(key), writeJob(key)); err != nil && !errors.Is(err, idem.ErrInFlight) {
					t.Error(err)
				}
			}
		})
	}
	for range 10 {
		drain()
	}
	group.Wait()
	close(early.leave)
	if o := <-last; o.err != nil {
		t.Fatal(o.err)
	}
	for scalar[int](t, b.pool, "select count(*) from jobs") > 0 {
		drain()
	}
	if len(delivered) != mutations {
		t.Errorf("%d jobs delivered, want %d", len(delivered), mutations)
	}
	for key, times := range delivered {
		if times != 1 {
			t.Errorf("the job of %s was delivered %d times", key, times)
		}
	}
}

// A sweep of many records and the traffic go on beside each other.
func TestASweepDoesNotBlockTheTraffic(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{}, maxConns(6))
	b.exec(t, `insert into idem.records (id, created_at, expires_at, finished_at, status, unfinished, state, scope, key, operation, fingerprint)
		select gen_random_uuid(), now() - interval '2 days', now() - interval '1 day', now() - interval '2 days', 200, null, 'completed',
			'old', n::text, '', decode(repeat('00', 33), 'hex')
		from generate_series(1, 20000) as n`)
	done := make(chan struct{})
	var group sync.WaitGroup
	var swept [2]int64
	for i := range swept {
		group.Go(func() {
			for more := true; more; {
				result, err := b.store.Sweep(t.Context(), idem.SweepOptions{BatchesMax: 2})
				if err != nil {
					t.Error(err)
					return
				}
				swept[i] += result.Records
				more = result.More
			}
		})
	}
	go func() { group.Wait(); close(done) }()
	n := 0
	for sweeping := true; sweeping; n++ {
		select {
		case <-done:
			sweeping = false
		default:
		}
		key := fmt.Sprint("k", n)
		mustDo(t, b.store, request(key), created(key))
	}
	if swept[0]+swept[1] != 20000 {
		t.Errorf("%d and %d records swept, want 20000 together", swept[0], swept[1])
	}
	if n := scalar[int](t, b.pool, "select count(*) from effects") - n; n != 0 {
		t.Errorf("%d effects too many", n)
	}
}
