package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/idempg/idempg/examples/ledger/jobs"
	"github.com/idempg/idempg/examples/ledger/receiver"
	"github.com/idempg/idempg/internal/localpg"
	"github.com/idempg/idempg/migrations"
)

const (
	connectTimeout = 10 * time.Second
	connectionsMax = 16 // unless DATABASE_URL has pool_max_conns

	lockProbeSeconds = 1 // how often to ask whether another instance still migrates
	lockProbesMax    = 300
)

//go:embed sql/migrations/*.sql
var embedded embed.FS

// openDatabase connects to the database at url and migrates it. tracer, if not
// nil, is told of each statement.
func openDatabase(ctx context.Context, url string, migrate migration, tracer pgx.QueryTracer) (*pgxpool.Pool, error) {
	pool, err := connect(ctx, url, tracer)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, pool); err != nil {
		pool.Close()
		return nil, fmt.Errorf("migrate: %w", err)
	}
	return pool, nil
}

// startOwnPostgres starts a throwaway server, in place of a database that was not
// named. The caller stops it in the end.
func startOwnPostgres(ctx context.Context) (*localpg.Server, error) {
	server, err := localpg.Start(ctx, localpg.Options{})
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL is not set, and no Postgres of its own: %w", err)
	}
	return server, nil
}

func connect(ctx context.Context, url string, tracer pgx.QueryTracer) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = connectionsMax
	}
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// migration brings the tables of a command up to date.
type migration func(context.Context, *pgxpool.Pool) error

// migrate is for the service: the tables of idem, of River, and of the ledger.
func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	if err := jobs.Migrate(ctx, pool); err != nil {
		return fmt.Errorf("river: %w", err)
	}
	return ledgerTables.up(ctx, pool)
}

// migrateReceiver is for the receiver: the tables of idem, and its own.
func migrateReceiver(ctx context.Context, pool *pgxpool.Pool) error {
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	return receiverTables.up(ctx, pool)
}

// tables are migrations and the table that says which of them were applied, so
// that no set minds the others' numbers.
type tables struct {
	files     embed.FS
	directory string
	versions  string // by its whole name, whatever the search_path of the role is
}

var (
	ledgerTables   = tables{embedded, "sql/migrations", "public.ledger_goose_version"}
	receiverTables = tables{receiver.Migrations, "migrations", "public.receiver_goose_version"}
)

func (t tables) up(ctx context.Context, pool *pgxpool.Pool) error {
	provider, done, err := t.newProvider(pool)
	if err != nil {
		return err
	}
	defer done()
	_, err = provider.Up(ctx)
	return err
}

// newProvider returns the migrations of t. The caller calls done in the end.
func (t tables) newProvider(pool *pgxpool.Pool) (provider *goose.Provider, done func(), err error) {
	files, err := fs.Sub(t.files, t.directory)
	if err != nil {
		return nil, nil, err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(lockProbeSeconds, lockProbesMax))
	if err != nil {
		return nil, nil, err
	}
	db := stdlib.OpenDBFromPool(pool)
	provider, err = goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(t.versions), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	return provider, func() { _ = db.Close() }, err // the pool stays open
}
