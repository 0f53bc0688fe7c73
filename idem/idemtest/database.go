package idemtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/internal/localpg"
	"github.com/idempg/idempg/migrations"
)

// URLVariable names the environment variable with the URL of a server on which
// [NewDatabase] makes its databases, as a role that may create them.
const URLVariable = "IDEM_TEST_DATABASE_URL"

// returnWait bounds the wait for connections on their way back to the pool.
const returnWait = 5 * time.Second

// server is the one server of this process. It ends with the process.
var server = sync.OnceValues(func() (*localpg.Server, error) {
	return localpg.Start(context.Background(), localpg.Options{
		URLVariable: URLVariable, Volatile: true, Settings: map[string]string{"max_connections": "300"},
	})
})

// NewDatabase returns a pool on a new database that has this library's tables
// and is dropped when the test is over. The setup functions run after each
// other; the app's own migrations go there.
//
// The server is the one named by IDEM_TEST_DATABASE_URL; or a throwaway cluster
// of the server programs on this machine; or a container. Tests of one process
// share it. The test fails when there is none, and when the pool does not have
// all connections back in the end.
func NewDatabase(t testing.TB, setup ...func(context.Context, *pgxpool.Pool) error) *pgxpool.Pool {
	t.Helper()
	s, err := server()
	if err != nil {
		t.Fatalf("idemtest: %v", err)
	}
	name := "idemtest_" + strings.ToLower(rand.Text())
	if err := onServer(t.Context(), s, "create database "+name); err != nil {
		t.Fatalf("idemtest: create a database: %v", err)
	}
	t.Cleanup(func() {
		if err := onServer(context.Background(), s, "drop database "+name+" with (force)"); err != nil {
			t.Errorf("idemtest: drop the database: %v", err)
		}
	})
	pool, err := connect(t.Context(), s, name)
	if err != nil {
		t.Fatalf("idemtest: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	for _, up := range append([]func(context.Context, *pgxpool.Pool) error{migrations.Up}, setup...) {
		if err := up(t.Context(), pool); err != nil {
			t.Fatalf("idemtest: set up the database: %v", err)
		}
	}
	return pool
}

func connect(ctx context.Context, s *localpg.Server, name string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(s.URL)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.Database = name
	return pgxpool.NewWithConfig(ctx, config)
}

// closePool closes the pool, unless that would wait for ever.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	for deadline := time.Now().Add(returnWait); pool.Stat().AcquiredConns() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("idemtest: %d connections never came back to the pool: does the app release what it acquires, and close its rows?",
				pool.Stat().AcquiredConns())
			return
		}
	}
	pool.Close()
}

func onServer(ctx context.Context, s *localpg.Server, sql string) (err error) {
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", s.Source, err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	_, err = conn.Exec(ctx, sql)
	return err
}
