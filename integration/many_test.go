package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/integration/faults"
)

// numbered are n items with keys of their own, each with one effect.
func numbered(prefix string, n int) []idem.Item {
	items := make([]idem.Item, n)
	for i := range items {
		key := fmt.Sprint(prefix, i)
		items[i] = idem.Item{Request: request(key), Batch: createdBatch(key)}
	}
	return items
}

func mustDoMany(t *testing.T, store *idem.Store, items []idem.Item, options idem.ManyOptions) []idem.ItemResult {
	t.Helper()
	results, err := store.DoMany(t.Context(), items, options)
	if err != nil || len(results) != len(items) {
		t.Fatalf("DoMany returned %d results, %v", len(results), err)
	}
	return results
}

// wantDone checks that every item was answered with its own receipt.
func wantDone(t *testing.T, items []idem.Item, results []idem.ItemResult, replayed bool) {
	t.Helper()
	for i, r := range results {
		key := items[i].Request.Key
		if r.Err != nil || r.Result.Replayed != replayed || string(r.Result.Body) != string(receipt(key).Body) {
			t.Errorf("%s: got %+v, %v", key, r.Result, r.Err)
		}
	}
}

func (b *bench) wantEffectOfEach(t *testing.T, items []idem.Item) {
	t.Helper()
	for _, item := range items {
		b.wantEffects(t, item.Request.Key, 1)
	}
}

// Goal: a chunk of new items costs two round trips, one of replays one. Method:
// as in [TestRoundTrips].
func TestRoundTripsOfMany(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	w := newWire(t, b.database)
	pool := wirePool(t, b.database, w, pgx.QueryExecModeCacheStatement, maxConns(1))
	store := newStore(t, pool, idem.Config{})
	do := func(items []idem.Item, replayed bool) func() {
		return func() { wantDone(t, items, mustDoMany(t, store, items, idem.ManyOptions{ChunkItemsMax: 20}), replayed) }
	}
	warm, fresh := numbered("warm", 5), numbered("new", 60)
	for _, replayed := range []bool{false, true} {
		do(warm, replayed)()
		settled(t, pool)
	}
	if got := trips(w, do(fresh, false)); got != 6 {
		t.Errorf("3 chunks of new items: %d round trips, want 6", got)
	}
	if got := trips(w, do(fresh, true)); got != 6 {
		t.Errorf("3 chunks of replays, each with its ROLLBACK: %d round trips, want 6", got)
	}
	b.wantEffectOfEach(t, fresh)
}

// Goal: whatever happens to one item, each of the others gets what DoBatch would
// have given it. Method: every ending in one call, at each size of chunk.
func TestManyEndOnTheirOwn(t *testing.T) {
	t.Parallel()
	for _, chunk := range []int{1, 2, 3, 7, 100} {
		t.Run(fmt.Sprint("chunks of ", chunk), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, idem.Config{})
			b.exec(t, `create table parents (id int primary key);
				create table children (parent int constraint children_parent references parents deferrable initially deferred)`)
			mustDo(t, b.store, request("recorded"), created("recorded"))
			mustDo(t, b.store, request("expired"), created("expired"))
			b.exec(t, `update idem.records set created_at = now() - interval '2 days', expires_at = now() - interval '1 day' where key = 'expired'`)
			owner := hold()
			owned := goDo(t.Context(), b.store, request("in flight"), owner.mutation(created("in flight")))
			<-owner.entered

			failing, orphan, refusedOrphan, unsendable := createdBatch("failing"), createdBatch("orphan"), createdBatch("refused orphan"), createdBatch("unsendable")
			failing.Queue("select 1 / 0")
			orphan.Queue("insert into children values (1)")
			refusedOrphan.Queue("insert into children values (2)")
			refusedOrphan.RejectOn("children_parent", idem.Response{Status: 404})
			unsendable.Queue("select $1::int", make(chan int))
			cases := []manyCase{
				{request("first"), createdBatch("first"), wantReceipt},
				{request("recorded"), createdBatch("recorded"), wantReplay},
				{otherPayload("recorded"), createdBatch("recorded"), wantAs(idem.ErrKeyReused)},
				{request("failing"), failing, wantSQLSTATE("22012")},
				{request("expired"), createdBatch("expired"), wantReceipt},
				{request("refused"), rejectingBatch("refused"), wantRejection(422)},
				{request("in flight"), createdBatch("in flight"), wantAs(idem.ErrInFlight)},
				{request("orphan"), orphan, wantSQLSTATE("23503")},
				{request("refused orphan"), refusedOrphan, wantRejection(404)},
				{request("twice"), createdBatch("twice"), wantReceipt},
				{request(""), createdBatch("nameless"), wantInvalid},
				{request("empty"), &idem.Batch{}, wantInvalid},
				{request("unsendable"), unsendable, wantAnError},
				{request("twice"), createdBatch("twice"), wantReplay},
				{otherPayload("twice"), createdBatch("twice"), wantAs(idem.ErrKeyReused)},
				{request("failing"), createdBatch("failing"), wantReceipt},
				{request("last"), createdBatch("last"), wantReceipt},
			}
			items := make([]idem.Item, len(cases))
			for i, c := range cases {
				items[i] = idem.Item{Request: c.request, Batch: c.batch}
			}
			results := mustDoMany(t, b.store, items, idem.ManyOptions{ChunkItemsMax: chunk})
			close(owner.leave)
			<-owned
			for i, c := range cases {
				if wrong := c.wrong(c.request.Key, results[i]); wrong != nil {
					t.Errorf("item %d, %q: got %+v, %v: %v", i, c.request.Key, results[i].Result, results[i].Err, wrong)
				}
			}
			for name, want := range map[string]int{
				"first": 1, "recorded": 1, "failing": 1, "expired": 2, "refused": 0, "in flight": 1, "orphan": 0, "refused orphan": 0,
				"twice": 1, "nameless": 0, "unsendable": 0, "last": 1,
			} {
				b.wantEffects(t, name, want)
			}
		})
	}
}

// manyCase is an item and what is wrong with a result of it, if anything.
type manyCase struct {
	request idem.Request
	batch   *idem.Batch
	wrong   func(key string, r idem.ItemResult) error
}

func wantReceipt(key string, r idem.ItemResult) error {
	if r.Err != nil || r.Result.Replayed || string(r.Result.Body) != string(receipt(key).Body) {
		return errors.New("want a first answer")
	}
	return nil
}

func wantReplay(key string, r idem.ItemResult) error {
	if r.Err != nil || !r.Result.Replayed || string(r.Result.Body) != string(receipt(key).Body) {
		return errors.New("want a replay")
	}
	return nil
}

func wantRejection(status int) func(string, idem.ItemResult) error {
	return func(_ string, r idem.ItemResult) error {
		if r.Err != nil || r.Result.State != idem.StateRejected || r.Result.Status != status {
			return fmt.Errorf("want a rejection with %d", status)
		}
		return nil
	}
}

func wantAs(want error) func(string, idem.ItemResult) error {
	return func(_ string, r idem.ItemResult) error {
		if !errors.Is(r.Err, want) {
			return want
		}
		return nil
	}
}

func wantSQLSTATE(code string) func(string, idem.ItemResult) error {
	return func(_ string, r idem.ItemResult) error {
		var pgErr *pgconn.PgError
		if !errors.As(r.Err, &pgErr) || pgErr.Code != code {
			return errors.New("want SQLSTATE " + code)
		}
		return nil
	}
}

func wantInvalid(_ string, r idem.ItemResult) error {
	var invalidRequest *idem.InvalidRequestError
	var invalidBatch *idem.InvalidBatchError
	if !errors.As(r.Err, &invalidRequest) && !errors.As(r.Err, &invalidBatch) {
		return errors.New("want an error that names what is invalid")
	}
	return nil
}

func wantAnError(_ string, r idem.ItemResult) error {
	if r.Err == nil || isUnknown(r.Err) {
		return errors.New("want a definite error")
	}
	return nil
}

// An item whose key is in flight elsewhere waits, as the policy says, after the
// others are done.
func TestManyWaitForAKeyInFlight(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	elsewhere := newStore(t, b.pool, idem.Config{ClaimWait: time.Minute})
	owner := hold()
	owned := goDo(t.Context(), b.store, request("n1"), owner.mutation(created("n1")))
	<-owner.entered
	done := make(chan []idem.ItemResult)
	items := numbered("n", 3)
	go func() { done <- mustDoMany(t, elsewhere, items, idem.ManyOptions{}) }()
	await(t, b.pool, "the item waits", waitsForPayloadLock)
	b.wantEffects(t, "n2", 1)
	close(owner.leave)
	<-owned
	results := <-done
	wantDone(t, items[1:2], results[1:2], true)
	wantDone(t, items[2:], results[2:], false)
	b.wantEffectOfEach(t, items)
}

// Consumers that got the same messages at once have one effect each.
func TestManyConsumersOfTheSameItems(t *testing.T) {
	t.Parallel()
	config := idem.Config{ClaimWait: time.Minute, AcquireTimeout: time.Minute}
	b := newBench(t, config, maxConns(8))
	stores := b.processes(t, 6, config)
	items := numbered("n", 120)
	var group sync.WaitGroup
	for consumer := range 6 {
		group.Go(func() {
			mine := append(items[20*consumer:len(items):len(items)], items[:20*consumer]...)
			for i, r := range mustDoMany(t, stores[consumer], mine, idem.ManyOptions{ChunkItemsMax: 17}) {
				if r.Err != nil || string(r.Result.Body) != string(receipt(mine[i].Request.Key).Body) {
					t.Errorf("%s: got %+v, %v", mine[i].Request.Key, r.Result, r.Err)
				}
			}
		})
	}
	group.Wait()
	b.wantEffectOfEach(t, items)
}

func TestManyRunAgainAfterASerializationFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	b.exec(t, `create sequence attempts; create function fail_twice() returns void language plpgsql as $$
		begin if nextval('attempts') < 3 then raise exception using errcode = '40001'; end if; end $$`)
	items := numbered("n", 5)
	items[2].Batch.Queue("select fail_twice()")
	wantDone(t, items, mustDoMany(t, b.store, items, idem.ManyOptions{}), false)
	b.wantEffectOfEach(t, items)
}

// Goal: the COMMIT of a chunk is settled for each of its items. Method: lose it,
// or its answer.
func TestAnUnansweredCommitOfManyIsSettled(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faults.Fault{"before": lostCommit, "after": unansweredCommit(faults.RST)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, idem.Config{})
			w := newWire(t, b.database)
			var unsettled unsettledCalls
			store := newStore(t, wirePool(t, b.database, w, pgx.QueryExecModeExec, maxConns(4)),
				idem.Config{SettleTimeout: 20 * time.Second, Observer: unsettled.observer()})
			w.Arm(fault)
			items := numbered("n", 10)
			results := mustDoMany(t, store, items, idem.ManyOptions{})
			for i, r := range results {
				if r.Err != nil || string(r.Result.Body) != string(receipt(items[i].Request.Key).Body) || r.Result.Replayed {
					t.Errorf("%s: got %+v, %v, want a first answer", items[i].Request.Key, r.Result, r.Err)
				}
			}
			if w.Fired() != 1 {
				t.Error("the fault was not met")
			}
			if unsettled != unsettledCalls(len(items)) {
				t.Errorf("%d of %d calls were observed as unsettled", unsettled, len(items))
			}
			b.wantEffectOfEach(t, items)
		})
	}
}

// unsettledCalls counts the calls that the Observer was told had an unanswered
// COMMIT.
type unsettledCalls int

func (n *unsettledCalls) observer() observer {
	return func(c idem.Call) {
		if c.Unsettled {
			*n++
		}
	}
}

// Nobody can be asked: every item says so, in the time that one takes.
func TestAnOutcomeOfManyThatCannotBeLearned(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	w := newWire(t, b.database)
	var unsettled unsettledCalls
	store := newStore(t, wirePool(t, b.database, w, pgx.QueryExecModeExec, maxConns(1)),
		idem.Config{SettleTimeout: 300 * time.Millisecond, Observer: unsettled.observer()})
	mustDoBatch(t, store, request("connect"), createdBatch("connect"))
	w.Refuse(true) // other connections
	w.Arm(unansweredCommit(faults.FIN))
	items := numbered("n", 50)
	for _, r := range mustDoMany(t, store, items, idem.ManyOptions{}) {
		if !isUnknown(r.Err) {
			t.Errorf("got %+v, %v, want OutcomeUnknownError", r.Result, r.Err)
		}
	}
	if unsettled != unsettledCalls(len(items)) {
		t.Errorf("%d of %d calls were observed as unsettled", unsettled, len(items))
	}
	w.Refuse(false)
	wantDone(t, items, mustDoMany(t, store, items, idem.ManyOptions{}), true)
	b.wantEffectOfEach(t, items)
}

// Without a database, and without a caller, every item has an error and no
// effect.
func TestManyWithoutADatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	w := newWire(t, b.database)
	store := newStore(t, wirePool(t, b.database, w, pgx.QueryExecModeExec), idem.Config{})
	items := numbered("n", 5)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	results, err := b.store.DoMany(gone, items, idem.ManyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Refuse(true)
	for i, r := range append(results, mustDoMany(t, store, items, idem.ManyOptions{})...) {
		if wantRetryable := i >= len(items); r.Err == nil || wantRetryable && !idem.Retryable(r.Err) || !wantRetryable && !errors.Is(r.Err, context.Canceled) {
			t.Errorf("result %d: got %+v, %v", i, r.Result, r.Err)
		}
	}
	for _, size := range []int{-1, 1001} {
		if _, err := b.store.DoMany(t.Context(), items, idem.ManyOptions{ChunkItemsMax: size}); err == nil {
			t.Errorf("chunks of %d were accepted", size)
		}
	}
	wantDone(t, items, mustDoMany(t, b.store, items, idem.ManyOptions{}), false)
}

// DoMany works in every mode of pgx and at every isolation level, and answers
// what the other entrances have recorded.
func TestManyInEveryMode(t *testing.T) {
	t.Parallel()
	for _, level := range append([]pgx.TxIsoLevel{""}, isolationLevels...) {
		for _, mode := range execModes {
			t.Run(fmt.Sprintf("%s/%s", level, mode), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, idem.Config{IsolationLevel: level}, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
				items := numbered("n", 6)
				first := mustDoMany(t, b.store, items, idem.ManyOptions{})
				wantDone(t, items, first, false)
				mustDo(t, b.store, request("by do"), created("by do"))
				items = append(items, idem.Item{Request: request("by do"), Batch: createdBatch("by do")})
				again := mustDoMany(t, b.store, items, idem.ManyOptions{})
				wantDone(t, items, again, true)
				for i, r := range first {
					if !sameAnswer(r.Result, again[i].Result) {
						t.Errorf("%+v was replayed as %+v", r.Result, again[i].Result)
					}
					if byDo := mustDo(t, b.store, items[i].Request, created("never")); !sameAnswer(r.Result, byDo) {
						t.Errorf("%+v was replayed by Do as %+v", r.Result, byDo)
					}
				}
				b.wantEffectOfEach(t, items)
			})
		}
	}
}
