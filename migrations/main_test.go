package migrations

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/internal/localpg"
)

// serverURL is a Postgres on which the tests may create databases and roles.
var serverURL string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	server, err := localpg.Start(context.Background(), localpg.Options{
		URLVariable: "IDEM_TEST_DATABASE_URL",
		Volatile:    true,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	serverURL = server.URL
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

var databases atomic.Int64

// newPool connects to an empty database that this test alone owns.
func newPool(t *testing.T, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	name := fmt.Sprintf("idem_migrations_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), databases.Add(1))
	onServer(t, "create database "+name)
	t.Cleanup(func() { onServer(t, "drop database "+name+" with (force)") })
	return poolFor(t, name, options...)
}

// poolFor connects to a database that exists.
func poolFor(t *testing.T, database string, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(serverURL)
	must(t, err)
	config.ConnConfig.Database = database
	for _, option := range options {
		option(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// onServer runs one statement that belongs to no test database. Cleanups call
// it too, when the test's own context is over.
func onServer(t *testing.T, sql string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, serverURL)
	must(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	must(t, err)
}

// one reads a single value.
func one[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var value T
	must(t, pool.QueryRow(t.Context(), sql, args...).Scan(&value))
	return value
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql)
	must(t, err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
