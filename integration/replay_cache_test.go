package integration

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/idem/replaycache"
	"github.com/idempg/idempg/integration/faults"
	"github.com/idempg/idempg/internal/failpoint"
)

func newCache(t testing.TB, bytesMax int) *replaycache.Cache {
	t.Helper()
	cache, err := replaycache.New(replaycache.Config{BytesMax: bytesMax})
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

// recordingCache is a ReplayCache that forgets nothing and tells what it was given.
type recordingCache struct {
	mu   sync.Mutex
	kept map[idem.ReplayKey]*idem.CachedReplay
	keys []idem.ReplayKey // one for each Set
}

func (l *recordingCache) Get(key idem.ReplayKey) *idem.CachedReplay {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept[key]
}

func (l *recordingCache) Set(key idem.ReplayKey, replay *idem.CachedReplay) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == nil {
		l.kept = map[idem.ReplayKey]*idem.CachedReplay{}
	}
	l.kept[key] = replay
	l.keys = append(l.keys, key)
}

func (l *recordingCache) sets() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.keys)
}

// cachedCalls counts the calls that were answered from memory.
func cachedCalls(n *atomic.Int64) idem.Observer {
	return observer(func(call idem.Call) {
		if call.Cached {
			n.Add(1)
		}
	})
}

// respond answers with response, and rejects when refuse is set.
func respond(response idem.Response, refuse bool) idem.Mutation {
	return func(context.Context, pgx.Tx) (idem.Response, error) {
		if refuse {
			return idem.Response{}, idem.Reject(response, errDecline)
		}
		return response, nil
	}
}

// Goal: an answer from memory is the database's, to the last byte and instant,
// whether it was kept when it was made or when it was read. Method: answers of
// every shape, replayed by a Store without a cache, by the one that made them,
// and by one that read them.
func TestACachedReplayIsTheDatabasesReplay(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	var cached atomic.Int64
	maker := newStore(t, b.pool, idem.Config{ReplayCache: newCache(t, 0), Observer: cachedCalls(&cached)})
	reader := newStore(t, b.pool, idem.Config{ReplayCache: newCache(t, 0), Observer: cachedCalls(&cached)})
	for name, response := range map[string]idem.Response{
		"zero":             {},
		"receipt":          receipt("r"),
		"empty header":     {Header: http.Header{}, Body: []byte{}},
		"names alone":      {Header: http.Header{"X-None": nil, "X-Empty": {}, "X-Blank": {""}}},
		"spelt as it came": {Status: 299, Header: http.Header{"x-lower": {"a"}, "X-Lower": {"b"}}, Body: []byte(`"` + "\x00\xff")},
	} {
		for _, refuse := range []bool{false, true} {
			r := request(fmt.Sprint(name, refuse))
			mutation := respond(response, refuse)
			first := mustDo(t, maker, r, mutation)
			want := mustDo(t, b.store, r, mutation)
			if first.Replayed || !want.Replayed {
				t.Fatalf("%s: the calls without memory are %+v and %+v", name, first, want)
			}
			before := cached.Load()
			read := mustDo(t, reader, r, mutation)
			if cached.Load() != before || !reflect.DeepEqual(read, want) {
				t.Errorf("%s: what fills the cache is %+v, want %+v", name, read, want)
			}
			for _, store := range []*idem.Store{maker, reader} {
				if got := mustDo(t, store, r, mutation); !reflect.DeepEqual(got, want) {
					t.Errorf("%s, rejected %v: from memory\n%#v\nfrom the database\n%#v", name, refuse, got, want)
				}
			}
			if n := cached.Load() - before; n != 2 {
				t.Errorf("%s: %d calls were answered from memory, want 2", name, n)
			}
		}
	}
}

// Goal: an answer from memory needs no database at all. Method: the wire and the
// pool count; then the network is gone, and then the pool is closed. What memory
// cannot answer fails then.
func TestACachedReplayNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	w := newWire(t, b.database)
	pool := wirePool(t, b.database, w, pgx.QueryExecModeCacheStatement, maxConns(1))
	var calls []idem.Call
	store := newStore(t, pool, idem.Config{
		ReplayCache: newCache(t, 0), AcquireTimeout: 100 * time.Millisecond,
		Observer: observer(func(c idem.Call) { calls = append(calls, c) }),
	})
	mustDo(t, store, request("k"), created("k"))
	settled(t, pool)

	check := func(situation string) {
		calls = nil
		acquired, sent := pool.Stat().AcquireCount(), w.Trips()
		if result := mustDo(t, store, request("k"), created("k")); !result.Replayed || !reflect.DeepEqual(result.Response, receipt("k")) {
			t.Errorf("%s: the replay is %+v", situation, result)
		}
		operation := request("k")
		operation.Operation = "another"
		for _, r := range []idem.Request{otherPayload("k"), operation} {
			_, err := store.Do(t.Context(), r, created("k"))
			wantError(t, err, idem.ErrKeyReused)
		}
		if n := pool.Stat().AcquireCount() - acquired; n != 0 || w.Trips() != sent {
			t.Errorf("%s: %d connections and %d round trips were taken, want none", situation, n, w.Trips()-sent)
		}
		outcomes := []idem.Outcome{}
		for _, call := range calls {
			outcomes = append(outcomes, call.Outcome)
			if !call.Cached || call.Attempts != 0 || call.Operation == "" {
				t.Errorf("%s: observed %+v", situation, call)
			}
		}
		if want := []idem.Outcome{idem.OutcomeReplayed, idem.OutcomeKeyReused, idem.OutcomeKeyReused}; !slices.Equal(outcomes, want) {
			t.Errorf("%s: observed %v, want %v", situation, outcomes, want)
		}
	}
	check("connected")
	w.Refuse(true)
	w.Break()
	check("cut off")
	pool.Close()
	check("closed")

	scope := request("k")
	scope.Scope = "acme2"
	for name, r := range map[string]idem.Request{"another key": request("K"), "another scope": scope} {
		if result, err := store.Do(t.Context(), r, created("k")); err == nil {
			t.Errorf("%s was answered without a database: %+v", name, result)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Do(gone, request("k"), created("k")); err == nil {
		t.Error("a caller that had gone was answered")
	}
	b.wantEffects(t, "k", 1)
}

// Goal: nothing is kept but what is committed and known to be. Method: a cache
// that tells what it was given, and every other way for a call to end.
func TestOnlyCommittedRecordsAreCached(t *testing.T) {
	t.Parallel()
	cache := &recordingCache{}
	b := newBench(t, idem.Config{})
	w := newWire(t, b.database)
	pool := wirePool(t, b.database, w, pgx.QueryExecModeExec)
	store := newStore(t, pool, idem.Config{
		ReplayCache: cache, SettleTimeout: 200 * time.Millisecond,
	})
	expect := func(what string, want int) {
		t.Helper()
		if got := cache.sets(); got != want {
			t.Errorf("%s: the cache was given %d records so far, want %d", what, got, want)
		}
	}

	owner := hold()
	first := goDo(t.Context(), store, request("held"), owner.mutation(created("held")))
	<-owner.entered
	_, err := store.Do(t.Context(), request("held"), created("held"))
	wantError(t, err, idem.ErrInFlight)
	_, err = store.Do(t.Context(), otherPayload("held"), created("held"))
	wantError(t, err, idem.ErrKeyReused)
	expect("in flight", 0)
	close(owner.leave)
	<-first
	expect("committed", 1)
	_, err = store.Do(t.Context(), request("aborted"), aborting("aborted"))
	wantError(t, err, errDecline)
	if _, err := store.DoWithoutKey(t.Context(), idem.Request{}, created("keyless")); err != nil {
		t.Error(err)
	}
	expect("aborted and without a key", 1)

	pool.Reset() // so that settling needs a new connection
	w.Arm(unansweredCommit(faults.FIN))
	_, err = store.Do(t.Context(), request("unknown"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		w.Refuse(true)
		return receipt("unknown"), write(ctx, tx, "unknown")
	})
	if !isUnknown(err) {
		t.Errorf("error is %v, want OutcomeUnknownError", err)
	}
	w.Refuse(false)
	expect("outcome unknown", 1)
	if again := mustDo(t, store, request("unknown"), created("unknown")); !again.Replayed {
		t.Error("the outcome that was unknown is not a replay")
	}
	expect("learned", 2)

	w.Arm(unansweredCommit(faults.FIN))
	if settled := mustDo(t, store, request("settled"), created("settled")); settled.Replayed {
		t.Error("a settled COMMIT is no first answer")
	}
	expect("settled", 3)
	if again := mustDo(t, store, request("settled"), created("settled")); !again.Replayed {
		t.Error("what was kept of a settled COMMIT is no replay")
	}
	mustDo(t, store, request("rejected"), rejecting("rejected"))
	expect("rejected", 4)

	barrier := faults.Fault{SQL: "select pg_logical_emit_message(true, 'idem.settle', '')", Point: faults.Before, Manner: faults.FIN}
	w.Arm(unansweredCommit(faults.FIN), barrier)
	if _, err = store.Do(t.Context(), request("here"), created("here")); !isUnknown(err) || w.Fired() != 2 {
		t.Errorf("error is %v after %d faults, want OutcomeUnknownError after 2", err, w.Fired())
	}
	expect("committed here, perhaps not on the standby", 4)
	b.wantEffects(t, "unknown", 1)
	b.wantEffects(t, "settled", 1)
}

// A COMMIT whose acknowledgement was lost, and which was not settled, leaves no answer in memory.
func TestALostAcknowledgementIsNotCached(t *testing.T) {
	t.Parallel()
	cache := &recordingCache{}
	b := newBench(t, idem.Config{})
	store := newStore(t, b.pool, idem.Config{ReplayCache: cache})
	point := failpoint.Open(store)
	point.SetHook(func(_ context.Context, e failpoint.Event) error {
		if e.Step == failpoint.BeforeSettle {
			return errDecline
		}
		if e.Step == failpoint.AfterCommit && cache.sets() != 0 {
			t.Error("the record was kept before COMMIT was seen")
		}
		if e.Step == failpoint.AfterCommit {
			return context.DeadlineExceeded
		}
		return nil
	})
	for name, m := range map[string]idem.Mutation{"completed": created("k"), "rejected": rejecting("k")} {
		if _, err := store.Do(t.Context(), request(name), m); !isUnknown(err) {
			t.Errorf("%s: error is %v, want OutcomeUnknownError", name, err)
		}
	}
	if cache.sets() != 0 {
		t.Error("the record was kept although its outcome is unknown")
	}
}

// DoTx sees what its own transaction has not committed, and may be on another
// database than the pool: it leaves the cache alone.
func TestDoTxLeavesTheCacheAlone(t *testing.T) {
	t.Parallel()
	cache := &recordingCache{}
	b := newBench(t, idem.Config{})
	store := newStore(t, b.pool, idem.Config{ReplayCache: cache})
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		result, err := store.DoTx(t.Context(), tx, request("k"), created("k"))
		if err != nil || result.Replayed != (i == 1) {
			t.Errorf("call %d in the transaction: %+v, %v", i, result, err)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cache.sets() != 0 {
		t.Error("DoTx filled the cache with what was rolled back")
	}
	if result := mustDo(t, store, request("k"), created("k")); result.Replayed {
		t.Error("what was rolled back is replayed")
	}

	b.exec(t, "delete from idem.records")
	err = pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		result, err := store.DoTx(t.Context(), tx, request("k"), created("k"))
		if result.Replayed {
			t.Error("DoTx answered from memory")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Goal: an answer is not given from memory when its record has expired. Method:
// a record with eight seconds to live; as soon as the database says that they
// are over, the next call must run. One Store keeps the answer when it is made,
// the other when a part of that time is over.
func TestACachedReplayExpiresWithTheRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	for name, readLater := range map[string]bool{"when made": false, "when read": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cached atomic.Int64
			store := newStore(t, b.pool, idem.Config{ReplayCache: newCache(t, 0), Observer: cachedCalls(&cached)})
			r := request(name)
			r.TTL = 8 * time.Second
			maker := store
			if readLater {
				maker = b.store
			}
			first := mustDo(t, maker, r, created(name))
			if readLater {
				await(t, b.pool, "a second is over", "select clock_timestamp() > $1::timestamptz + interval '1 s'", first.RecordedAt)
				mustDo(t, store, r, created(name))
			}
			if result := mustDo(t, store, r, created(name)); !result.Replayed || cached.Load() != 1 {
				t.Errorf("a live record does not answer from memory: %+v", result)
			}
			await(t, b.pool, "the record has expired", "select clock_timestamp() >= $1", first.ExpiresAt)
			if result := mustDo(t, store, r, created(name)); result.Replayed || cached.Load() != 1 {
				t.Errorf("an expired record answered: %+v", result)
			}
			if result := mustDo(t, store, r, created(name)); !result.Replayed || !result.ExpiresAt.After(first.ExpiresAt) || cached.Load() != 2 {
				t.Errorf("the new record does not answer from memory: %+v", result)
			}
			b.wantEffects(t, name, 2)
		})
	}
}

// Stores on one pool share their answers; Stores on two databases may share a
// cache, and never an answer.
func TestStoresMayShareACache(t *testing.T) {
	t.Parallel()
	cache := newCache(t, 0)
	here, there := newBench(t, idem.Config{ReplayCache: cache}), newBench(t, idem.Config{ReplayCache: cache})
	var cached atomic.Int64
	sibling := newStore(t, here.pool, idem.Config{ReplayCache: cache, Observer: cachedCalls(&cached)})
	mustDo(t, here.store, request("k"), created("k"))
	if result := mustDo(t, sibling, request("k"), created("k")); !result.Replayed || cached.Load() != 1 {
		t.Errorf("a Store on the same pool was not answered from memory: %+v", result)
	}
	if result := mustDo(t, there.store, request("k"), created("k")); result.Replayed {
		t.Error("a record of another database answered")
	}
	there.wantEffects(t, "k", 1)
	here.wantEffects(t, "k", 1)
}

// What docs/guarantees.md says of a record that is removed before it expires.
func TestARemovedRecordAnswersFromMemoryUntilCleared(t *testing.T) {
	t.Parallel()
	cache := newCache(t, 0)
	b := newBench(t, idem.Config{ReplayCache: cache})
	mustDo(t, b.store, request("k"), created("k"))
	b.exec(t, "delete from idem.records")
	_, err := b.store.Lookup(t.Context(), "acme", "k")
	wantError(t, err, idem.ErrNotFound)
	if result := mustDo(t, b.store, request("k"), created("k")); !result.Replayed {
		t.Error("the cache does not answer")
	}
	cache.Clear()
	if result := mustDo(t, b.store, request("k"), created("k")); result.Replayed || cache.Entries() != 1 {
		t.Errorf("after Clear: %+v, and %d entries", result, cache.Entries())
	}
	b.wantEffects(t, "k", 2)
}

// Goal: with a cache the promise holds under contention. Method: many callers of
// a few keys, on a cache with room for some of them; every answer must be its
// key's, and each effect happen once. The race detector watches.
func TestManyCallersOfASmallCache(t *testing.T) {
	t.Parallel()
	var cached atomic.Int64
	cache := newCache(t, 64<<10)
	b := newBench(t, idem.Config{ReplayCache: cache, ClaimWait: 30 * time.Second, Observer: cachedCalls(&cached)}, maxConns(4))
	const keys, callers, rounds = 40, 16, 60
	body := func(key int) []byte { return []byte(fmt.Sprintf("%03000d", key)) }
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			for round := range rounds {
				key := (caller*7 + round*round) % keys
				r := request(fmt.Sprint(key))
				result, err := b.store.Do(t.Context(), r, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
					return idem.Response{Header: http.Header{"X-Key": {r.Key}}, Body: body(key)}, write(ctx, tx, r.Key)
				})
				if err != nil || string(result.Body) != string(body(key)) || result.Header.Get("X-Key") != r.Key {
					t.Errorf("key %d was answered with %.20q, %v, %v", key, result.Body, result.Header, err)
				}
				copy(result.Body, "????") // mine to write
			}
		})
	}
	group.Wait()
	for key := range keys {
		if n := b.effects(t, fmt.Sprint(key)); n > 1 {
			t.Errorf("the effect of key %d happened %d times", key, n)
		}
	}
	if n := cached.Load(); n == 0 || n == callers*rounds || cache.Bytes() > 64<<10 {
		t.Errorf("%d of %d calls were answered from memory, which holds %d bytes", n, callers*rounds, cache.Bytes())
	}
}

// Goal: a client cannot tell where its replay came from. Method: one database, a
// Store with a cache and one without, in apps that are otherwise the same.
func TestFiberCachedReplaysAreTheSame(t *testing.T) {
	t.Parallel()
	var cached atomic.Int64
	s := newShop(t, idem.Config{})
	config := s.config
	config.Store = newStore(t, s.pool, idem.Config{ReplayCache: newCache(t, 0), Observer: cachedCalls(&cached)})
	mount := func(config fibermw.Config) browser {
		app := quietApp()
		app.Post("/:status", fibermw.Handle(config, func(c *fiber.Ctx, tx pgx.Tx) error {
			status, err := c.ParamsInt("status")
			if err != nil {
				return err
			}
			c.Location("/sales/1")
			c.Response().Header.Add("X-Twice", "a, b")
			c.Response().Header.Add("X-Twice", "c")
			c.Response().Header.Add("X-Latin", "caf\xe9")
			if err := s.sell(c, tx, c.Params("status")); err != nil || status == fiber.StatusNoContent {
				return c.SendStatus(status)
			}
			c.Set("Content-Type", "text/csv; header=absent")
			return c.Status(status).Send([]byte("\x00\xff;" + c.Params("status")))
		}))
		return connect(t, app)
	}
	plain, caching := mount(s.config), mount(config)
	for i, status := range []string{"200", "201", "204", "302", "404", "422"} {
		send := func(b browser) answer { return b(t, post("/"+status, "k"+status, "{}")) }
		first := send(caching)
		database := send(plain)
		memory := send(caching)
		expectReplay(t, first, memory)
		if !reflect.DeepEqual(memory, database) {
			t.Errorf("%s: from memory\n%+v\nfrom the database\n%+v", status, memory, database)
		}
		if n := cached.Load(); n != int64(i+1) {
			t.Errorf("%s: %d replays came from memory so far, want %d", status, n, i+1)
		}
		caching(t, post("/"+status, "k"+status, "{ }")).mustProblem(t, http.StatusUnprocessableEntity, "idempotency-key-reused")
		cached.Add(-1)
	}
}
