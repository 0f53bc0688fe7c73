package integration

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/migrations"
)

func TestACompletedMutationIsReplayedByteForByte(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	first := mustDo(t, b.store, request("k"), created("k"))
	again := mustDo(t, b.store, request("k"), created("k"))

	if first.Replayed || !again.Replayed {
		t.Errorf("Replayed is %v and %v, want false and true", first.Replayed, again.Replayed)
	}
	if !reflect.DeepEqual(first.Response, receipt("k")) || !reflect.DeepEqual(again.Response, first.Response) {
		t.Errorf("the answers differ:\n%+v\n%+v\nwant %+v", first.Response, again.Response, receipt("k"))
	}
	if first.State != idem.StateCompleted || again.State != idem.StateCompleted {
		t.Errorf("states %q and %q, want completed", first.State, again.State)
	}
	if first.RecordedAt.IsZero() || !first.RecordedAt.Equal(again.RecordedAt) || !first.ExpiresAt.Equal(again.ExpiresAt) {
		t.Errorf("times differ: %v, %v and %v, %v", first.RecordedAt, first.ExpiresAt, again.RecordedAt, again.ExpiresAt)
	}
	b.wantEffects(t, "k", 1)
}

func TestAnEmptyResponseIsReplayedAsOK(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	empty := func(context.Context, pgx.Tx) (idem.Response, error) { return idem.Response{}, nil }
	for range 2 {
		result := mustDo(t, b.store, request("k"), empty)
		if result.Status != http.StatusOK || len(result.Body) != 0 || len(result.Header) != 0 {
			t.Errorf("got %+v, want a bare 200", result.Response)
		}
	}
}

// Each way to end without a response undoes everything and frees the key.
func TestAnAbortFreesTheKey(t *testing.T) {
	t.Parallel()
	ways := map[string]func(){
		"error":  nil,
		"panic":  func() { panic("boom") },
		"goexit": func() { runtime.Goexit() },
	}
	b := newBench(t, idem.Config{})
	for way, leave := range ways {
		done := make(chan any, 1)
		go func() {
			defer func() { done <- recover() }()
			_, err := b.store.Do(context.Background(), request(way), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
				if err := write(ctx, tx, way); err != nil {
					return idem.Response{}, err
				}
				if leave != nil {
					leave()
				}
				return receipt(way), errDecline
			})
			wantError(t, err, errDecline)
		}()
		if got := <-done; (way == "panic") != (got == "boom") {
			t.Errorf("%s: the panic that went on is %v", way, got)
		}
		b.wantEffects(t, way, 0)
		if result := mustDo(t, b.store, request(way), created(way)); result.Replayed {
			t.Errorf("%s: the key was not freed", way)
		}
		b.wantEffects(t, way, 1)
	}
}

func TestARejectionUndoesTheWritesAndKeepsTheAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	refuse := func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		for range 3 {
			if err := write(ctx, tx, "k"); err != nil {
				return idem.Response{}, err
			}
		}
		return idem.Response{}, idem.Reject(idem.Response{Status: http.StatusPaymentRequired, Body: []byte("no")}, errDecline)
	}
	for i, m := range []idem.Mutation{refuse, created("k")} {
		result := mustDo(t, b.store, request("k"), m)
		if result.State != idem.StateRejected || result.Status != http.StatusPaymentRequired || string(result.Body) != "no" {
			t.Errorf("call %d: got %+v, want the recorded 402", i, result)
		}
		if result.Replayed != (i == 1) {
			t.Errorf("call %d: Replayed is %v", i, result.Replayed)
		}
	}
	b.wantEffects(t, "k", 0)
}

// A constraint that refuses the work leaves the transaction aborted; the
// refusal is recorded all the same.
func TestARejectionAfterAnSQLErrorIsRecorded(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	refuse := func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		err := write(ctx, tx, "k")
		if err == nil {
			_, err = tx.Exec(ctx, "insert into effects (name) values (null)")
		}
		return idem.Response{}, idem.Reject(idem.Response{Status: http.StatusUnprocessableEntity}, err)
	}
	mustDo(t, b.store, request("k"), refuse)
	if result := mustDo(t, b.store, request("k"), created("k")); result.State != idem.StateRejected || !result.Replayed {
		t.Errorf("got %+v, want the rejection again", result)
	}
	b.wantEffects(t, "k", 0)
}

func TestAKeyAnswersOnlyTheRequestItWasUsedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	mustDo(t, b.store, request("k"), created("k"))

	operation := request("k")
	operation.Operation = "DELETE /effects"
	for name, r := range map[string]idem.Request{"other payload": otherPayload("k"), "other operation": operation} {
		_, err := b.store.Do(t.Context(), r, created("k"))
		if !errors.Is(err, idem.ErrKeyReused) {
			t.Errorf("%s: error is %v, want ErrKeyReused", name, err)
		}
	}
	b.wantEffects(t, "k", 1)
}

func TestScopesShareNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	for _, pair := range [][2]string{{"a", "b:c"}, {"a:b", "c"}, {"A", "b:c"}, {"a", "b:C"}} {
		r := request("k")
		r.Scope, r.Key = pair[0], pair[1]
		if result := mustDo(t, b.store, r, created("k")); result.Replayed {
			t.Errorf("%q got another scope's answer", pair)
		}
	}
	b.wantEffects(t, "k", 4)
}

// Goal: nobody can commit the effect without the record, whatever SQL the
// mutation sends. Method: every way a mutation can end the transaction itself,
// followed by a claim of success.
func TestAMutationCannotEndTheTransactionItself(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	raw := func(sql string) func(context.Context, pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Conn().Exec(ctx, sql)
			return err
		}
	}
	ways := map[string]func(context.Context, pgx.Tx) error{
		"tx.Commit":          func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"tx.Rollback":        func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		"raw commit":         raw("commit"),
		"raw rollback":       raw("rollback"),
		"rollback and chain": raw("rollback and chain"),
		"rollback; begin":    raw("rollback; begin"),
		"commit and chain":   raw("commit and chain"),
		"deleted claim":      raw("delete from idem.records"),
	}
	for way, end := range ways {
		_, err := b.store.Do(t.Context(), request(way), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			if err := write(ctx, tx, way); err != nil {
				return idem.Response{}, err
			}
			_ = end(ctx, tx)
			_ = write(ctx, tx, way)
			return receipt(way), nil
		})
		if err == nil || !errors.Is(err, idem.ErrTxEnded) && !errors.Is(err, pgx.ErrTxCommitRollback) {
			t.Errorf("%s: error is %v, want ErrTxEnded", way, err)
		}
		b.wantEffects(t, way, 0)
		mustDo(t, b.store, request(way), created(way))
		b.wantEffects(t, way, 1)
	}
}

func TestRollbackFollowedByRejectIsARejection(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	result := mustDo(t, b.store, request("k"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		err := write(ctx, tx, "k")
		if err == nil {
			err = tx.Rollback(ctx)
		}
		if err != nil {
			return idem.Response{}, err
		}
		wantError(t, tx.Rollback(ctx), pgx.ErrTxClosed)
		wantError(t, write(ctx, tx, "k"), idem.ErrTxEnded)
		return idem.Response{}, idem.Reject(idem.Response{Status: http.StatusConflict}, nil)
	})
	if result.State != idem.StateRejected {
		t.Errorf("state is %q, want rejected", result.State)
	}
	b.wantEffects(t, "k", 0)
}

func TestTheLentTransactionIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	var kept, savepoint pgx.Tx
	mustDo(t, b.store, request("k"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		var err error
		kept = tx
		if savepoint, err = tx.Begin(ctx); err != nil {
			return idem.Response{}, err
		}
		return receipt("k"), write(ctx, savepoint, "k")
	})
	ctx := t.Context()
	for _, tx := range []pgx.Tx{kept, savepoint} {
		wantError(t, write(ctx, tx, "late"), idem.ErrTxEnded)
		_, err := tx.Query(ctx, "select 1")
		wantError(t, err, idem.ErrTxEnded)
		wantError(t, tx.QueryRow(ctx, "select 1").Scan(new(int)), idem.ErrTxEnded)
		_, err = tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"name"}, pgx.CopyFromRows(nil))
		wantError(t, err, idem.ErrTxEnded)
		batch := &pgx.Batch{}
		batch.Queue("select 1")
		wantError(t, tx.SendBatch(ctx, batch).Close(), idem.ErrTxEnded)
		_, err = tx.Prepare(ctx, "s", "select 1")
		wantError(t, err, idem.ErrTxEnded)
		_, err = tx.Begin(ctx)
		wantError(t, err, idem.ErrTxEnded)
		wantError(t, tx.Commit(ctx), idem.ErrTxEnded)
		wantError(t, tx.Rollback(ctx), idem.ErrTxEnded)
	}
	b.wantEffects(t, "k", 1)
}

// Everything that pgx.Tx offers works on the lent transaction.
func TestTheLentTransactionIsAFullTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	mustDo(t, b.store, request("k"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
			_ = write(ctx, savepoint, "undone")
			return errDecline
		})
		wantError(t, err, errDecline)
		if err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error { return write(ctx, savepoint, "savepoint") }); err != nil {
			t.Error(err)
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"name"}, pgx.CopyFromRows([][]any{{"copy"}})); err != nil {
			t.Error(err)
		}
		batch := &pgx.Batch{}
		batch.Queue("insert into effects (name) values ('batch')")
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			t.Error(err)
		}
		if _, err := tx.Prepare(ctx, "named", "insert into effects (name) values ($1)"); err != nil {
			t.Error(err)
		}
		if _, err := tx.Exec(ctx, "named", "prepared"); err != nil {
			t.Error(err)
		}
		rows, err := tx.Query(ctx, "select name from effects order by name")
		if err != nil {
			t.Error(err)
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || strings.Join(names, " ") != "batch copy prepared savepoint" {
			t.Errorf("inside the unit: %v, %v", names, err)
		}
		large := tx.LargeObjects()
		oid, err := large.Create(ctx, 0)
		if err != nil || oid == 0 {
			t.Errorf("large object: %v", err)
		}
		if tx.Conn().TypeMap() == nil {
			t.Error("Conn has no type map")
		}
		return receipt("k"), nil
	})
	b.wantEffects(t, "undone", 0)
	b.wantEffects(t, "savepoint", 1)
}

func TestASwallowedSQLErrorIsNoSuccess(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	_, err := b.store.Do(t.Context(), request("k"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		_ = write(ctx, tx, "k")
		_, _ = tx.Exec(ctx, "insert into effects (name) values (null)")
		return receipt("k"), nil
	})
	wantError(t, err, pgx.ErrTxCommitRollback)
	b.wantEffects(t, "k", 0)
	mustDo(t, b.store, request("k"), created("k"))
	b.wantEffects(t, "k", 1)
}

func TestRowsLeftOpenAbort(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	_, err := b.store.Do(t.Context(), request("k"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		_ = write(ctx, tx, "k")
		_, err := tx.Query(ctx, "select generate_series(1, 100000)")
		return receipt("k"), err
	})
	if err == nil || !strings.Contains(err.Error(), "close them before returning") {
		t.Errorf("error is %v, want one that says to close the rows", err)
	}
	b.wantEffects(t, "k", 0)
	b.awaitFreeKeys(t) // the connection with the rows was dropped
	mustDo(t, b.store, request("k"), created("k"))
}

func TestADeferredConstraintThatFailsAtCommitAborts(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	b.exec(t, "create table once (name text unique deferrable initially deferred)")
	_, err := b.store.Do(t.Context(), request("k"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		_ = write(ctx, tx, "k")
		_, err := tx.Exec(ctx, "insert into once values ('x'), ('x')")
		return receipt("k"), err
	})
	if code := sqlstate(err); code != "23505" {
		t.Errorf("error is %v, want SQLSTATE 23505", err)
	}
	b.wantEffects(t, "k", 0)
	mustDo(t, b.store, request("k"), created("k"))
	b.wantEffects(t, "k", 1)
}

// The record cannot be written: the effect does not happen either.
func TestNoRecordNoEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	b.exec(t, `create function refuse() returns trigger language plpgsql as $$ begin raise 'refused'; end $$`)
	b.exec(t, `create trigger refuse before update on idem.records for each row execute function refuse()`)
	if _, err := b.store.Do(t.Context(), request("k"), created("k")); sqlstate(err) != "P0001" {
		t.Errorf("error is %v, want the trigger's", err)
	}
	b.wantEffects(t, "k", 0)
	b.exec(t, "drop trigger refuse on idem.records")
	mustDo(t, b.store, request("k"), created("k"))
	b.wantEffects(t, "k", 1)
}

func TestAKeyInsideItselfIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	mustDo(t, b.store, request("outer"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		_, err := b.store.Do(ctx, request("outer"), created("outer"))
		wantError(t, err, idem.ErrReentrant)
		_, err = b.store.DoTx(ctx, tx, request("outer"), created("outer"))
		wantError(t, err, idem.ErrReentrant)
		// Without the context the claim itself notices.
		_, err = b.store.DoTx(t.Context(), tx, request("outer"), created("outer"))
		wantError(t, err, idem.ErrReentrant)

		inner, err := b.store.Do(ctx, request("inner"), created("inner"))
		if err != nil || inner.Replayed {
			t.Errorf("another key inside: %+v, %v", inner, err)
		}
		return receipt("outer"), write(ctx, tx, "outer")
	})
	for _, key := range []string{"outer", "inner"} {
		result := mustDo(t, b.store, request(key), created(key))
		if !result.Replayed || string(result.Body) != string(receipt(key).Body) {
			t.Errorf("%s: replay is %+v", key, result)
		}
		b.wantEffects(t, key, 1)
	}
}

func TestLimitsOfAResponse(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{BodyBytesMax: 1000, HeaderBytesMax: 100})
	body := func(n int) idem.Response { return idem.Response{Body: make([]byte, n)} }
	header := func(n int) idem.Response { // as JSON: {"X":["…"]}
		return idem.Response{Header: http.Header{"X": {strings.Repeat("x", n-len(`{"X":[""]}`))}}}
	}
	var tooLarge *idem.ResponseTooLargeError
	var invalid *idem.InvalidResponseError
	for _, c := range []struct {
		name     string
		response idem.Response
		want     any
	}{
		{"body-1", body(999), nil},
		{"body", body(1000), nil},
		{"body+1", body(1001), &tooLarge},
		{"header-1", header(99), nil},
		{"header", header(100), nil},
		{"header+1", header(101), &tooLarge},
		{"status 100", idem.Response{Status: 100}, &invalid},
		{"status 600", idem.Response{Status: 600}, &invalid},
		{"header name", idem.Response{Header: http.Header{"a b": {"c"}}}, &invalid},
		{"header value", idem.Response{Header: http.Header{"A": {"b\r\nC: d"}}}, &invalid},
	} {
		_, err := b.store.Do(t.Context(), request(c.name), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			return c.response, write(ctx, tx, c.name)
		})
		if c.want == nil {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			b.wantEffects(t, c.name, 1)
			continue
		}
		if !errors.As(err, c.want) {
			t.Errorf("%s: error is %v, want %T", c.name, err, c.want)
		}
		b.wantEffects(t, c.name, 0)
	}
}

// What Go allows at its limits, the schema's CHECKs allow too.
func TestTheLargestRecordIsAccepted(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{BodyBytesMax: 64 << 20, HeaderBytesMax: 128 << 10})
	r := idem.Request{
		Scope: strings.Repeat("é", idem.ScopeBytesMax/2), Operation: strings.Repeat("o", idem.OperationBytesMax),
		Key: strings.Repeat("k", idem.KeyBytesMax), Fingerprint: idem.NewFingerprint(), TTL: time.Hour,
	}
	header := http.Header{}
	for range (128<<10 - 100) / 4 {
		header["A"] = append(header["A"], "b")
	}
	response := idem.Response{Status: 599, Header: header, Body: make([]byte, 1<<20)}
	for range 2 {
		result := mustDo(t, b.store, r, func(context.Context, pgx.Tx) (idem.Response, error) { return response, nil })
		if !reflect.DeepEqual(result.Response, response) {
			t.Error("the largest record does not come back as it was")
		}
	}
}

func TestInvalidRequestsAreRefusedByName(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	for field, spoil := range map[string]func(*idem.Request){
		"Scope":       func(r *idem.Request) { r.Scope = "" },
		"Key":         func(r *idem.Request) { r.Key = strings.Repeat("k", 256) },
		"Operation":   func(r *idem.Request) { r.Operation = "a\x00" },
		"Fingerprint": func(r *idem.Request) { r.Fingerprint = idem.Fingerprint{} },
		"TTL":         func(r *idem.Request) { r.TTL = 1 },
		"AttemptsMax": func(r *idem.Request) { r.AttemptsMax = -1 },
	} {
		r := request("k")
		spoil(&r)
		_, err := b.store.Do(t.Context(), r, created("k"))
		var invalid *idem.InvalidRequestError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("error is %v, want one that names %s", err, field)
		}
	}
	b.wantEffects(t, "k", 0)
}

func TestTypedDo(t *testing.T) {
	t.Parallel()
	type transfer struct {
		ID     string
		Amount int64
	}
	b := newBench(t, idem.Config{})
	want := transfer{"t1", 1 << 60}
	for i := range 2 {
		got, result, err := idem.Do(t.Context(), b.store, request("k"), func(ctx context.Context, tx pgx.Tx) (transfer, error) {
			return want, write(ctx, tx, "k")
		})
		if err != nil || got != want || result.Replayed != (i == 1) {
			t.Errorf("call %d: %+v, %+v, %v", i, got, result, err)
		}
	}
	_, _, err := idem.Do(t.Context(), b.store, request("k"), func(context.Context, pgx.Tx) (int, error) { return 1, nil })
	if err == nil || !strings.Contains(err.Error(), "as int") {
		t.Errorf("decoding another type: %v", err)
	}
	_, _, err = idem.Do(t.Context(), b.store, request("chan"), func(ctx context.Context, tx pgx.Tx) (chan int, error) {
		return make(chan int), write(ctx, tx, "chan")
	})
	if err == nil {
		t.Error("a channel was encoded")
	}
	b.wantEffects(t, "chan", 0)

	for i := range 2 {
		_, result, err := idem.Do(t.Context(), b.store, request("rejected"), func(context.Context, pgx.Tx) (transfer, error) {
			return transfer{}, idem.Reject(idem.Response{Status: 422}, errDecline)
		})
		var rejected *idem.RejectedError
		if !errors.As(err, &rejected) || rejected.Response.Status != 422 || result.State != idem.StateRejected {
			t.Errorf("call %d: %+v, %v", i, result, err)
		}
		if errors.Is(err, errDecline) != (i == 0) {
			t.Errorf("call %d: the error is %v", i, err)
		}
	}
}

func TestDerivedKeysAreStable(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	seen := map[string]bool{}
	for i := range 2 {
		_, err := b.store.Do(t.Context(), request("k"), func(ctx context.Context, _ pgx.Tx) (idem.Response, error) {
			seen[idem.DerivedKey(ctx, "charge")] = true
			seen[idem.DerivedKey(ctx, "mail")] = true
			return receipt("k"), []error{errDecline, nil}[i]
		})
		if (err != nil) != (i == 0) {
			t.Fatal(err)
		}
	}
	mustDo(t, b.store, request("k2"), func(ctx context.Context, _ pgx.Tx) (idem.Response, error) {
		seen[idem.DerivedKey(ctx, "charge")] = true
		return receipt("k2"), nil
	})
	if len(seen) != 3 {
		t.Errorf("%d different keys, want 3: %v", len(seen), seen)
	}
	defer func() {
		if recover() == nil {
			t.Error("DerivedKey outside a mutation returned")
		}
	}()
	idem.DerivedKey(t.Context(), "charge")
}

func TestLookup(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{TTL: time.Hour})
	_, err := b.store.Lookup(t.Context(), "acme", "k")
	wantError(t, err, idem.ErrNotFound)
	result := mustDo(t, b.store, request("k"), created("k"))
	record, err := b.store.Lookup(t.Context(), "acme", "k")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(record.Response, result.Response) || record.State != idem.StateCompleted ||
		record.Scope != "acme" || record.Key != "k" || record.Operation != "POST /effects" ||
		record.Fingerprint != request("k").Fingerprint || !record.FinishedAt.Equal(result.RecordedAt) {
		t.Errorf("record is %+v", record)
	}
	if ttl := record.ExpiresAt.Sub(record.CreatedAt); ttl != time.Hour {
		t.Errorf("it lives for %v, want 1h", ttl)
	}
}

func TestWithoutAKeyEveryCallRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	for range 2 {
		result, err := b.store.DoWithoutKey(t.Context(), idem.Request{Operation: "POST /effects"}, created("k"))
		if err != nil || result.Replayed || result.State != idem.StateCompleted {
			t.Errorf("got %+v, %v", result, err)
		}
	}
	b.wantEffects(t, "k", 2)
	result, err := b.store.DoWithoutKey(t.Context(), idem.Request{}, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		_ = write(ctx, tx, "k")
		return idem.Response{}, idem.Reject(receipt("k"), nil)
	})
	if err != nil || result.State != idem.StateRejected {
		t.Errorf("got %+v, %v", result, err)
	}
	_, err = b.store.DoWithoutKey(t.Context(), idem.Request{}, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		_ = write(ctx, tx, "k")
		return receipt("k"), errDecline
	})
	wantError(t, err, errDecline)
	b.wantEffects(t, "k", 2)
	if n := scalar[int](t, b.pool, "select count(*) from idem.records"); n != 0 {
		t.Errorf("%d records, want none", n)
	}
}

func TestAMissingSchemaSaysWhatToDo(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	b.exec(t, "drop schema idem cascade")
	_, err := b.store.Do(t.Context(), request("k"), created("k"))
	wantError(t, err, idem.ErrSchema)
	_, err = b.store.Lookup(t.Context(), "acme", "k")
	wantError(t, err, idem.ErrSchema)
	_, err = b.store.Sweep(t.Context(), idem.SweepOptions{})
	wantError(t, err, idem.ErrSchema)
	b.exec(t, "create schema idem; create table idem.records (id uuid, unfinished int)")
	_, err = b.store.Do(t.Context(), request("k"), created("k"))
	wantError(t, err, idem.ErrSchema)
	b.wantEffects(t, "k", 0)
	b.exec(t, "drop schema idem cascade")
	if err := migrations.Up(t.Context(), b.pool); err != nil {
		t.Fatal(err)
	}
	mustDo(t, b.store, request("k"), created("k"))
}
