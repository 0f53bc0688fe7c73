package integration

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
)

// bench is what most tests of the core start from: a database of its own with
// a table that counts effects, and a Store on it.
type bench struct {
	*database
	pool      *pgxpool.Pool
	store     *idem.Store
	elsewhere *idem.Store // the same, as in another process: it knows of store only through the database
}

func newBench(t *testing.T, config idem.Config, mutate ...func(*pgxpool.Config)) *bench {
	t.Helper()
	return newBenchOn(t, newDatabase(t), config, mutate...)
}

func newBenchOn(t *testing.T, db *database, config idem.Config, mutate ...func(*pgxpool.Config)) *bench {
	t.Helper()
	b := &bench{database: db, pool: db.Pool(t, mutate...)}
	b.exec(t, "create table effects (id bigint generated always as identity, name text not null)")
	b.store = newStore(t, b.pool, config)
	b.elsewhere = newStore(t, b.pool, config)
	return b
}

func newStore(t *testing.T, pool *pgxpool.Pool, config idem.Config) *idem.Store {
	t.Helper()
	store, err := idem.New(pool, config)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// processes are n Stores that know of each other only through the database, as
// in n processes: within one, duplicates do not all get that far.
func (b *bench) processes(t *testing.T, n int, config idem.Config) []*idem.Store {
	t.Helper()
	stores := make([]*idem.Store, n)
	for i := range stores {
		stores[i] = newStore(t, b.pool, config)
	}
	return stores
}

func (b *bench) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := b.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// effects is how often the effect of this name is visible to others.
func (b *bench) effects(t *testing.T, name string) int {
	t.Helper()
	return scalar[int](t, b.pool, "select count(*) from effects where name = $1", name)
}

func (b *bench) wantEffects(t *testing.T, name string, want int) {
	t.Helper()
	if got := b.effects(t, name); got != want {
		t.Errorf("the effect %q is visible %d times, want %d", name, got, want)
	}
}

func scalar[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var value T
	if err := pool.QueryRow(context.WithoutCancel(t.Context()), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// await polls a condition of the database until it holds.
func await(t *testing.T, pool *pgxpool.Pool, what, sql string, args ...any) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !scalar[bool](t, pool, sql, args...) {
		if time.Now().After(deadline) {
			t.Fatalf("still waiting for: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// awaitFreeKeys returns when no backend holds a key: one whose connection was
// dropped does for a moment more.
func (b *bench) awaitFreeKeys(t *testing.T) {
	t.Helper()
	await(t, b.pool, "the key is free", `select not exists (select from pg_locks where locktype = 'advisory'
		and database = (select oid from pg_database where datname = current_database()))`)
}

// request is a valid Request for key.
func request(key string) idem.Request {
	return idem.Request{
		Scope: "acme", Operation: "POST /effects", Key: key,
		Fingerprint: idem.NewFingerprint([]byte(key)),
	}
}

// otherPayload is the same key asking for something else.
func otherPayload(key string) idem.Request {
	r := request(key)
	r.Fingerprint = idem.NewFingerprint([]byte("something else"))
	return r
}

// write is what every mutation of these tests does first.
func write(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, "insert into effects (name) values ($1)", name)
	return err
}

// created writes the effect and answers 201.
func created(name string) idem.Mutation {
	return func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		if err := write(ctx, tx, name); err != nil {
			return idem.Response{}, err
		}
		return receipt(name), nil
	}
}

func receipt(name string) idem.Response {
	return idem.Response{
		Status: http.StatusCreated,
		Header: http.Header{"Location": {"/effects/" + name}, "X-Many": {"one", "two, three", "caf\xe9"}},
		Body:   []byte("made \x00\xff " + name),
	}
}

// held is a mutation that announces it has written and then waits for a signal.
type held struct {
	entered chan struct{}
	leave   chan struct{}
}

func hold() *held { return &held{make(chan struct{}), make(chan struct{})} }

func (h *held) mutation(then idem.Mutation) idem.Mutation {
	return func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		response, err := then(ctx, tx)
		close(h.entered)
		<-h.leave
		return response, err
	}
}

// outcome is what one call of Do returned.
type outcome struct {
	result idem.Result
	err    error
}

// goDo starts Do in a goroutine.
func goDo(ctx context.Context, store *idem.Store, r idem.Request, m idem.Mutation) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		result, err := store.Do(ctx, r, m)
		done <- outcome{result, err}
	}()
	return done
}

func mustDo(t *testing.T, store *idem.Store, r idem.Request, m idem.Mutation) idem.Result {
	t.Helper()
	result, err := store.Do(t.Context(), r, m)
	if err != nil {
		t.Fatalf("Do: %v", err)
	}
	return result
}

func wantError(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("error is %v, want %v", got, want)
	}
}

var errDecline = errors.New("declined")
