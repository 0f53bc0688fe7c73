package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/integration/faults"
)

// createdBatch is created as a Batch.
func createdBatch(name string) *idem.Batch {
	b := &idem.Batch{}
	b.Queue("insert into effects (name) values ($1)", name)
	response := receipt(name)
	b.Respond(response.Header, "select $1::int, $2::bytea", response.Status, response.Body)
	return b
}

// rejectingBatch is rejecting as a Batch: a function of the database says no.
func rejectingBatch(name string) *idem.Batch {
	b := createdBatch(name)
	b.Queue("do $$ begin raise exception using errcode = '23514', constraint = 'credit_limit'; end $$")
	b.RejectOn("credit_limit", idem.Response{Status: 422, Body: []byte("no")})
	return b
}

// waitingBatch is createdBatch behind a lock.
func waitingBatch(name string) *idem.Batch {
	b := createdBatch(name)
	b.Queue("select pg_advisory_xact_lock(4711)")
	return b
}

func mustDoBatch(t *testing.T, store *idem.Store, r idem.Request, b *idem.Batch) idem.Result {
	t.Helper()
	result, err := store.DoBatch(t.Context(), r, b)
	if err != nil {
		t.Fatalf("DoBatch: %v", err)
	}
	return result
}

func goDoBatch(ctx context.Context, store *idem.Store, r idem.Request, b *idem.Batch) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		result, err := store.DoBatch(ctx, r, b)
		done <- outcome{result, err}
	}()
	return done
}

// sameAnswer compares what travels to a client.
func sameAnswer(a, b idem.Result) bool {
	return a.State == b.State && a.Status == b.Status && string(a.Body) == string(b.Body) &&
		fmt.Sprint(a.Header) == fmt.Sprint(b.Header) && a.RecordedAt.Equal(b.RecordedAt) && a.ExpiresAt.Equal(b.ExpiresAt)
}

// Goal: both entrances keep one contract. Method: each answers what the other
// has recorded, completed and rejected, in every mode of pgx and at every
// isolation level.
func TestBothEntrancesAnswerEachOther(t *testing.T) {
	t.Parallel()
	for _, level := range append([]pgx.TxIsoLevel{""}, isolationLevels...) {
		for _, mode := range execModes {
			t.Run(fmt.Sprintf("%s/%s", level, mode), func(t *testing.T) {
				t.Parallel()
				setMode := func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }
				b := newBench(t, idem.Config{IsolationLevel: level, StatementTimeout: time.Minute, LockTimeout: time.Minute}, setMode)
				for _, c := range []struct {
					name    string
					do      idem.Mutation
					batch   *idem.Batch
					effects int
				}{
					{"completed", created("completed"), createdBatch("completed"), 2},
					{"rejected", rejecting("rejected"), rejectingBatch("rejected"), 0},
				} {
					byBatch := mustDoBatch(t, b.store, request(c.name+" batch"), c.batch)
					byDo := mustDo(t, b.store, request(c.name+" do"), c.do)
					if byBatch.Replayed || byBatch.Status != byDo.Status || string(byBatch.Body) != string(byDo.Body) || byBatch.State != byDo.State {
						t.Errorf("%s: the entrances answer %+v and %+v", c.name, byBatch, byDo)
					}
					for _, replay := range []struct{ first, again idem.Result }{
						{byBatch, mustDo(t, b.store, request(c.name+" batch"), c.do)},
						{byBatch, mustDoBatch(t, b.store, request(c.name+" batch"), c.batch)},
						{byDo, mustDoBatch(t, b.store, request(c.name+" do"), c.batch)},
					} {
						if !replay.again.Replayed || !sameAnswer(replay.first, replay.again) {
							t.Errorf("%s: %+v was replayed as %+v", c.name, replay.first, replay.again)
						}
					}
					b.wantEffects(t, c.name, c.effects)
				}
				_, err := b.store.DoBatch(t.Context(), otherPayload("completed do"), createdBatch("x"))
				wantError(t, err, idem.ErrKeyReused)
				b.wantEffects(t, "x", 0)
			})
		}
	}
}

func TestABurstOfOneBatchRunsOnce(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"fail fast": 0, "wait": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := idem.Config{ClaimWait: wait, AcquireTimeout: time.Minute}
			b := newBench(t, config, maxConns(8))
			stores := b.processes(t, 15, config)
			batch := createdBatch("k")
			var mu sync.Mutex
			firsts := 0
			var group sync.WaitGroup
			for i := range 60 {
				group.Go(func() {
					result, err := stores[i%len(stores)].DoBatch(t.Context(), request("k"), batch)
					if wait == 0 && errors.Is(err, idem.ErrInFlight) {
						return
					}
					if err != nil || string(result.Body) != string(receipt("k").Body) {
						t.Errorf("got %+v, %v", result, err)
					}
					if err == nil && !result.Replayed {
						mu.Lock()
						defer mu.Unlock()
						firsts++
					}
				})
			}
			group.Wait()
			if firsts != 1 {
				t.Errorf("%d first answers, want 1", firsts)
			}
			b.wantEffects(t, "k", 1)
		})
	}
}

// The owner is a batch that waits for a lock in the middle of its pipeline.
func TestABatchInFlight(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	patient := newStore(t, b.Pool(t), idem.Config{ClaimWait: time.Minute})
	conn, err := pgx.Connect(t.Context(), b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	lock := func(name string) {
		if _, err := conn.Exec(t.Context(), "select "+name+"(4711)"); err != nil {
			t.Fatal(err)
		}
	}
	const waiting = `select count(*) = $1 from pg_stat_activity
		where datname = current_database() and wait_event_type = 'Lock' and wait_event = 'advisory'`
	lock("pg_advisory_lock")
	owner := goDoBatch(t.Context(), b.store, request("k"), waitingBatch("k"))
	await(t, b.pool, "the owner waits for the lock", waiting, 1)

	_, err = b.store.DoBatch(t.Context(), request("k"), createdBatch("k"))
	wantError(t, err, idem.ErrInFlight)
	_, err = b.store.Do(t.Context(), request("k"), created("k"))
	wantError(t, err, idem.ErrInFlight)
	_, err = b.store.DoBatch(t.Context(), otherPayload("k"), createdBatch("k"))
	wantError(t, err, idem.ErrKeyReused)
	duplicate := goDoBatch(t.Context(), patient, request("k"), createdBatch("k"))
	await(t, b.pool, "the duplicate waits for the owner", waiting, 2)

	lock("pg_advisory_unlock")
	first := <-owner
	if first.err != nil || first.result.Replayed {
		t.Errorf("the owner got %+v, %v", first.result, first.err)
	}
	if o := <-duplicate; o.err != nil || !o.result.Replayed || !sameAnswer(o.result, first.result) {
		t.Errorf("the duplicate got %+v, %v, want the replay of %+v", o.result, o.err, first.result)
	}
	b.wantEffects(t, "k", 1)
}

func TestABatchTakesAnExpiredKeyOver(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	mustDoBatch(t, b.store, request("k"), createdBatch("k"))
	b.expire(t)
	if result := mustDoBatch(t, b.store, request("k"), createdBatch("k")); result.Replayed {
		t.Errorf("an expired record answered: %+v", result)
	}
	b.wantEffects(t, "k", 2)
	if result := mustDoBatch(t, b.store, request("k"), createdBatch("k")); !result.Replayed {
		t.Error("the key that was taken over ran again")
	}
}

// A constraint that RejectOn names is a rejection, wherever in the pipeline it
// fails; one that it does not name aborts.
func TestConstraintsOfABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	b.exec(t, `create table accounts (id int primary key, balance int constraint no_overdraft check (balance >= 0));
		create table entries (account int constraint entries_account references accounts deferrable initially deferred);
		insert into accounts values (1, 10)`)
	no := idem.Response{Status: 422, Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: []byte(`{"no":true}`)}
	for _, c := range []struct{ name, sql, constraint string }{
		{"at once", "update accounts set balance = balance - 11 where id = 1", "no_overdraft"},
		{"at COMMIT", "insert into entries values (2)", "entries_account"},
		{"a duplicate row", "insert into accounts values (1, 1)", "accounts_pkey"},
	} {
		for _, level := range []pgx.TxIsoLevel{"", pgx.Serializable} {
			t.Run(c.name+string(level), func(t *testing.T) {
				var seen []idem.Call
				store := newStore(t, b.pool, idem.Config{IsolationLevel: level, Observer: observer(func(call idem.Call) { seen = append(seen, call) })})
				unnamed, named := createdBatch(t.Name()), createdBatch(t.Name())
				unnamed.Queue(c.sql)
				named.Queue(c.sql)
				named.RejectOn(c.constraint, no)
				_, err := store.DoBatch(t.Context(), request(t.Name()), unnamed)
				var pgErr *pgconn.PgError
				if !errors.As(err, &pgErr) || pgErr.ConstraintName != c.constraint {
					t.Fatalf("error is %v, want the violation of %s", err, c.constraint)
				}
				first := mustDoBatch(t, store, request(t.Name()), named)
				if first.Replayed || first.State != idem.StateRejected || first.Status != 422 || string(first.Body) != string(no.Body) {
					t.Errorf("got %+v, want the rejection", first)
				}
				if again := mustDoBatch(t, store, request(t.Name()), named); !again.Replayed || !sameAnswer(first, again) {
					t.Errorf("the rejection was replayed as %+v", again)
				}
				b.wantEffects(t, t.Name(), 0)
				if len(seen) != 3 || seen[0].Outcome != idem.OutcomeAborted || seen[1].Outcome != idem.OutcomeRejected ||
					!errors.As(seen[1].Err, &pgErr) || seen[2].Outcome != idem.OutcomeReplayed || seen[2].Attempts != 0 {
					t.Errorf("observed %+v", seen)
				}
			})
		}
	}
}

func TestWhatABatchResponds(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{BodyBytesMax: 100})
	b.exec(t, "set bytea_output = 'escape'")
	for _, c := range []struct {
		sql    string
		args   []any
		status int
		body   string
	}{
		{`select 201, jsonb_build_object('z', 1, 'a', $1::text)`, []any{"é"}, 201, `{"a": "é", "z": 1}`},
		{`select 201, '{"z":1,  "a":2}'::json;`, nil, 201, `{"z":1,  "a":2}`},
		{`select 200, 'C:\temp'::text -- a comment`, nil, 200, `C:\temp`},
		{`select 200, 'literal'`, nil, 200, "literal"},
		{`select 200, $1::bytea`, []any{[]byte("\x00\\x41\xff")}, 200, "\x00\\x41\xff"},
		{`select null, null`, nil, 200, ""},
		{`select 204::bigint, ''`, nil, 204, ""},
		{`with x as (select 7 as n) select 200, n from x`, nil, 200, "7"},
		{`insert into effects (name) values ($1) returning 201, 'made ' || name`, []any{"by returning"}, 201, "made by returning"},
		{`select @status::int, @body::text || '%d'`, []any{pgx.NamedArgs{"status": 299, "body": "100%"}}, 299, "100%%d"},
	} {
		batch := &idem.Batch{}
		batch.Respond(http.Header{"X-Sql": {"yes"}}, c.sql, c.args...)
		first := mustDoBatch(t, b.store, request(c.sql), batch)
		again := mustDoBatch(t, b.store, request(c.sql), batch)
		if first.Status != c.status || string(first.Body) != c.body || first.Header.Get("X-Sql") != "yes" {
			t.Errorf("%s: got %+v %q, want %d %q", c.sql, first, first.Body, c.status, c.body)
		}
		if !again.Replayed || !sameAnswer(first, again) {
			t.Errorf("%s: %+v was replayed as %+v", c.sql, first, again)
		}
	}
	b.wantEffects(t, "by returning", 1)
}

// What a batch returns and cannot be recorded aborts it, before COMMIT.
func TestWhatABatchCannotRespond(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{BodyBytesMax: 100, HeaderBytesMax: 100})
	var invalid *idem.InvalidResponseError
	var tooLarge *idem.ResponseTooLargeError
	for _, c := range []struct {
		name, sql string
		header    http.Header
		want      any
		text      string
	}{
		{"no row", "select 200, '' where false", nil, &invalid, "0 rows"},
		{"two rows", "select 200, '' from generate_series(1, 2)", nil, &invalid, "2 rows"},
		{"status 199", "select 199, ''", nil, &invalid, "200 to 599"},
		{"body over its limit", "select 200, repeat('x', 101)", nil, &tooLarge, "101 bytes"},
		{"headers over their limit", "select 200, ''", http.Header{"X": {strings.Repeat("x", 100)}}, &tooLarge, "Header"},
		{"a header that is none", "select 200, ''", http.Header{"X y": {"x"}}, &invalid, "token"},
	} {
		batch := &idem.Batch{}
		batch.Queue("insert into effects (name) values ($1)", c.name)
		batch.Respond(c.header, c.sql)
		_, err := b.store.DoBatch(t.Context(), request(c.name), batch)
		if !errors.As(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: error is %v, want a %T that says %q", c.name, err, c.want, c.text)
		}
		b.wantEffects(t, c.name, 0)
		if again := mustDoBatch(t, b.store, request(c.name), createdBatch(c.name)); again.Replayed {
			t.Errorf("%s: the key is not free", c.name)
		}
	}
	for name, argument := range map[string]any{"an argument that cannot be encoded": make(chan int), "a rewriter that fails": pgx.StrictNamedArgs{"unknown": 1}} {
		batch := createdBatch(name)
		batch.Queue("select $1::int", argument)
		if _, err := b.store.DoBatch(t.Context(), request(name), batch); err == nil || isUnknown(err) || idem.Retryable(err) {
			t.Errorf("%s: error is %v, want a definite one", name, err)
		}
		b.wantEffects(t, name, 0)
		mustDoBatch(t, b.store, request(name), createdBatch(name))
	}
	batch := createdBatch("limit")
	batch.Respond(nil, "select 200, repeat('x', 100)")
	mustDoBatch(t, b.store, request("limit"), batch)
}

// A batch that ends or begins the transaction itself leaves nothing behind,
// however it is spelled.
func TestABatchCannotEndTheTransactionItself(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	var invalid *idem.InvalidBatchError
	for _, batch := range []*idem.Batch{nil, {}} {
		_, err := b.store.DoBatch(t.Context(), request("empty"), batch)
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "Respond") {
			t.Errorf("error of an empty batch is %v", err)
		}
	}
	for _, word := range []string{"begin", "COMMIT;", " rollback", "start transaction", "end", "abort", "prepare transaction 'x'"} {
		for _, level := range []pgx.TxIsoLevel{"", pgx.RepeatableRead} {
			store := newStore(t, b.pool, idem.Config{IsolationLevel: level})
			plain, hidden := &idem.Batch{}, &idem.Batch{}
			plain.Queue(word)
			for _, sql := range []string{"insert into effects (name) values ('k')", "/* hidden */ " + word, "insert into effects (name) values ('k')"} {
				hidden.Queue(sql)
			}
			plain.Respond(nil, "select 200, ''")
			hidden.Respond(nil, "select 200, ''")
			if _, err := store.DoBatch(t.Context(), request("k"), plain); !errors.As(err, &invalid) {
				t.Errorf("%q: error is %v, want InvalidBatchError", word, err)
			}
			result, err := store.DoBatch(t.Context(), request("k"), hidden)
			if err == nil && !strings.Contains(word, "begin") && !strings.Contains(word, "start") {
				t.Errorf("%q: got %+v, want an error", word, result)
			}
			if n := b.effects(t, "k"); (err == nil) != (n == 2) || err != nil && n != 0 {
				t.Errorf("%q: %d effects after %v", word, n, err)
			}
			b.exec(t, "delete from effects; delete from idem.records")
		}
	}
	mustDoBatch(t, b.store, request("after"), createdBatch("after"))
}

// The statements have the timeouts of the Store, and no later user of the
// connection has them.
func TestABatchHasItsTimeouts(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{StatementTimeout: 1500 * time.Millisecond, LockTimeout: 900 * time.Millisecond}, maxConns(1))
	slow := createdBatch("k")
	slow.Queue("select pg_sleep(60)")
	_, err := b.store.DoBatch(t.Context(), request("k"), slow)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "57014" {
		t.Errorf("error is %v, want a statement timeout", err)
	}
	shown := &idem.Batch{}
	shown.Respond(nil, "select 200, current_setting('statement_timeout') || ' ' || current_setting('lock_timeout')")
	if got := string(mustDoBatch(t, b.store, request("k"), shown).Body); got != "1500ms 900ms" {
		t.Errorf("the timeouts of a batch are %q", got)
	}
	if left := scalar[string](t, b.pool, "select current_setting('statement_timeout') || current_setting('lock_timeout')"); left != "00" {
		t.Errorf("the timeouts left behind are %q", left)
	}
}

// A serialization failure runs the batch again.
func TestABatchRunsAgainAfterASerializationFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	b.exec(t, `create sequence attempts; create function fail_twice() returns void language plpgsql as $$
		begin if nextval('attempts') < 3 then raise exception using errcode = '40001'; end if; end $$`)
	for _, level := range []pgx.TxIsoLevel{"", pgx.Serializable} {
		b.exec(t, "alter sequence attempts restart")
		var seen []idem.Call
		store := newStore(t, b.pool, idem.Config{IsolationLevel: level, Observer: observer(func(call idem.Call) { seen = append(seen, call) })})
		batch := createdBatch("k")
		batch.Queue("select fail_twice()")
		mustDoBatch(t, store, request("k"+string(level)), batch)
		if len(seen) != 1 || seen[0].Attempts != 3 {
			t.Errorf("observed %+v, want 3 attempts", seen)
		}
	}
	b.wantEffects(t, "k", 2)
}

// The caller's context ends while the pipeline runs: it is carried through. One
// that had ended before sends nothing.
func TestACallerOfABatchThatHangsUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.store.DoBatch(gone, request("k"), createdBatch("k"))
	wantError(t, err, context.Canceled)
	b.wantEffects(t, "k", 0)

	ctx, cancel := context.WithCancel(t.Context())
	holder, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.Background()) }()
	if _, err := holder.Exec(t.Context(), "select pg_advisory_xact_lock(4711)"); err != nil {
		t.Fatal(err)
	}
	done := goDoBatch(ctx, b.store, request("k"), waitingBatch("k"))
	await(t, b.pool, "the batch waits", waitsForPayloadLock)
	cancel()
	if err := holder.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o := <-done; o.err != nil {
		t.Errorf("got %v, want the answer", o.err)
	}
	b.wantEffects(t, "k", 1)
}

// Goal: a batch takes one round trip, and a second where the first one's end has
// to be looked into. Method: as in [TestRoundTrips].
func TestRoundTripsOfABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	w := newWire(t, b.database)
	pool := wirePool(t, b.database, w, pgx.QueryExecModeCacheStatement, maxConns(1))
	store := newStore(t, pool, idem.Config{})
	do := func(r idem.Request, batch *idem.Batch) func() {
		return func() { _, _ = store.DoBatch(t.Context(), r, batch) }
	}
	for i := range 2 {
		for _, warmUp := range []func(){
			do(request(fmt.Sprint("warm", i)), createdBatch("warm")), do(request(fmt.Sprint("warm", i)), createdBatch("warm")),
			do(request(fmt.Sprint("cold", i)), rejectingBatch("cold")), do(otherPayload(fmt.Sprint("warm", i)), createdBatch("warm")),
		} {
			warmUp()
			settled(t, pool)
		}
	}
	wantTrips(t, w, pool, []tripsCase{
		{"a first-time batch", 1, false, do(request("new"), createdBatch("new"))},
		{"a replay", 2, true, do(request("new"), createdBatch("new"))},
		{"a reused key", 2, true, do(otherPayload("new"), createdBatch("new"))},
		{"a rejection", 2, false, do(request("no"), rejectingBatch("no"))},
		{"a replay of a rejection", 2, true, do(request("no"), rejectingBatch("no"))},
	})
}

// Goal: a pipeline without an answer is settled like a COMMIT without one.
// Method: break the connection at the message that ends the pipeline.
func TestAnUnansweredBatchIsSettled(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faults.Fault{
		"before": {Point: faults.Before, Manner: faults.FIN}, "after, FIN": {Point: faults.Swallow, Manner: faults.FIN},
		"after, RST": {Point: faults.Swallow, Manner: faults.RST}, "after, black hole": {Point: faults.Swallow, Manner: faults.BlackHole},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, idem.Config{})
			w := newWire(t, b.database)
			attempts := 0
			store := newStore(t, wirePool(t, b.database, w, pgx.QueryExecModeExec, maxConns(4)), idem.Config{
				CommitTimeout: 5 * time.Second, SettleTimeout: 20 * time.Second,
				Observer: observer(func(call idem.Call) { attempts = call.Attempts }),
			})
			w.Record()
			mustDoBatch(t, store, request("recorded"), createdBatch("recorded"))
			for _, m := range w.Recorded() {
				if m.Direction == faults.ToServer && !m.Startup {
					fault.Index++
				}
			}
			fault.Index-- // the last one

			w.Arm(fault)
			result := mustDoBatch(t, store, request("k"), createdBatch("k"))
			committed := fault.Point == faults.Swallow
			if wantAttempts := map[bool]int{true: 1, false: 2}[committed]; attempts != wantAttempts {
				t.Errorf("the batch ran %d times, want %d", attempts, wantAttempts)
			}
			if result.Replayed != committed || w.Fired() != 1 {
				t.Errorf("got %+v after %d faults", result, w.Fired())
			}
			b.wantEffects(t, "k", 1)
			if again := mustDo(t, b.store, request("k"), created("k")); !again.Replayed || !sameAnswer(again, result) {
				t.Errorf("the retry got %+v, want the replay of %+v", again, result)
			}
		})
	}
}

// A batch fills the replay cache when it runs, and is answered from it.
func TestABatchIsAnsweredFromTheCache(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	w := newWire(t, b.database)
	pool := wirePool(t, b.database, w, pgx.QueryExecModeExec)
	store := newStore(t, pool, idem.Config{ReplayCache: newCache(t, 0)})
	for key, batch := range map[string]*idem.Batch{"completed": createdBatch("k"), "rejected": rejectingBatch("k")} {
		first := mustDoBatch(t, store, request(key), batch)
		settled(t, pool)
		var again idem.Result
		if n := trips(w, func() { again = mustDoBatch(t, store, request(key), batch) }); n != 0 {
			t.Errorf("%s: the replay took %d round trips, want none", key, n)
		}
		if !again.Replayed || !sameAnswer(first, again) {
			t.Errorf("%s: %+v was replayed as %+v", key, first, again)
		}
		_, err := store.DoBatch(t.Context(), otherPayload(key), batch)
		wantError(t, err, idem.ErrKeyReused)
	}
}
