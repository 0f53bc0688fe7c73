package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/internal/localpg"
)

const (
	templateDatabase = "ledger_template"
	stateWaitMax     = 30 * time.Second
)

var (
	serverURL string // a Postgres on which the tests may create databases
	program   string // the service, built once
	testRun   = fmt.Sprintf("%d_%d", os.Getpid(), time.Now().Unix())
)

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	slog.SetLogLoggerLevel(slog.LevelError)
	if err := flag.Set("rapid.checks", historiesDefault); err != nil { // which the command line overrides
		return fatal(err)
	}
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "ledger-test-")
	if err != nil {
		return fatal(err)
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "ledger")
	if output, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		return fatal(fmt.Errorf("build the service: %w\n%s", err, output))
	}
	server, err := localpg.Start(ctx, localpg.Options{URLVariable: "IDEM_TEST_DATABASE_URL", Volatile: true})
	if err != nil {
		return fatal(err)
	}
	defer func() { _ = server.Stop() }()
	serverURL = server.URL
	if err := makeTemplate(ctx); err != nil {
		return fatal(err)
	}
	defer func() { stopBrowser() }()
	defer func() { _ = onServer(ctx, "drop database "+template()+" with (force)") }()
	return m.Run()
}

func fatal(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func template() string { return templateDatabase + "_" + testRun }

// makeTemplate migrates a database once, for every test to clone.
func makeTemplate(ctx context.Context) error {
	if err := onServer(ctx, "create database "+template()); err != nil {
		return err
	}
	pool, err := connect(ctx, databaseURL(template()), nil)
	if err != nil {
		return err
	}
	defer pool.Close()
	return migrate(ctx, pool)
}

// onServer runs a statement that belongs to no test database.
func onServer(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, serverURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// databaseURL is serverURL with another database.
func databaseURL(name string) string {
	config, err := pgx.ParseConfig(serverURL)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("host=%s port=%d user=%s password='%s' sslmode=disable dbname=%s",
		config.Host, config.Port, config.User, config.Password, name)
}

var databases atomic.Int64

// newDatabase returns the URL of a migrated database that the test alone owns,
// and a pool on it. In the end its books must balance.
func newDatabase(t testing.TB) (url string, pool *pgxpool.Pool) {
	t.Helper()
	name := fmt.Sprintf("ledger_%s_%d", testRun, databases.Add(1))
	must(t, onServer(t.Context(), "create database "+name+" template "+template()))
	t.Cleanup(func() { must(t, onServer(context.WithoutCancel(t.Context()), "drop database "+name+" with (force)")) })
	url = databaseURL(name)
	pool, err := connect(t.Context(), url, nil)
	must(t, err)
	t.Cleanup(func() {
		wantBalancedBooks(t, pool)
		pool.Close()
	})
	return url, pool
}

func wantBalancedBooks(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	for _, tenant := range []string{"acme", "globex"} {
		audit, err := book.New(tenant, pool).Audit(context.WithoutCancel(t.Context()))
		must(t, err)
		if !audit.OK {
			t.Errorf("the book of %s does not balance: %+v", tenant, audit)
		}
	}
}

// await returns when a query about the server's state returns true.
func await(t *testing.T, pool *pgxpool.Pool, what, sql string, args ...any) {
	t.Helper()
	deadline := time.Now().Add(stateWaitMax)
	for !one[bool](t, pool, sql, args...) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", stateWaitMax, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// holdTransfers are the two ways to stop a transfer in the middle.
var holdTransfers = map[string]func(*testing.T, *pgxpool.Pool) (release func()){
	"between claim and writes": func(t *testing.T, pool *pgxpool.Pool) func() {
		return hold(t, pool, "select from ledger.accounts where tenant = 'acme' and id = 'alice' for update")
	},
	// Everything is written, the record too, and COMMIT has been sent.
	"in COMMIT": func(t *testing.T, pool *pgxpool.Pool) func() {
		_, err := pool.Exec(t.Context(), `
			create function hold() returns trigger language plpgsql as
				'begin perform pg_advisory_xact_lock_shared(1); return null; end';
			create constraint trigger hold after insert on ledger.entries
				deferrable initially deferred for each row execute function hold()`)
		must(t, err)
		return hold(t, pool, "select pg_advisory_xact_lock(1)")
	},
}

// hold keeps the locks that sql takes, on a connection of its own.
func hold(t *testing.T, pool *pgxpool.Pool, sql string) (release func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	must(t, err)
	tag, err := tx.Exec(t.Context(), sql)
	must(t, err)
	if tag.RowsAffected() != 1 {
		t.Fatalf("%q locked %d rows, want 1", sql, tag.RowsAffected())
	}
	release = sync.OnceFunc(func() { must(t, tx.Rollback(context.WithoutCancel(t.Context()))) })
	t.Cleanup(release)
	return release
}

// awaitHeldTransfer waits for a transfer to wait for a lock.
func awaitHeldTransfer(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	await(t, pool, "a transfer waits for a lock", "select count(*) = 1 from ("+heldBackends+") as held")
}

const heldBackends = `select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`

// one reads a single value.
func one[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var value T
	must(t, pool.QueryRow(t.Context(), sql, args...).Scan(&value))
	return value
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
