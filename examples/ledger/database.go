package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/idempg/idempg/migrations"
)

const (
	connectTimeout = 10 * time.Second
	connectionsMax = 16 // unless DATABASE_URL has pool_max_conns
	versionTable   = "ledger_goose_version"
)

//go:embed sql/migrations/*.sql
var embedded embed.FS

// openDatabase connects to the database at url and migrates it.
func openDatabase(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := connect(ctx, url)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, pool); err != nil {
		pool.Close()
		return nil, fmt.Errorf("migrate: %w", err)
	}
	return pool, nil
}

func connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = connectionsMax
	}
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

// migrate brings the tables of idem and those of the ledger up to date. Each
// has a version table of its own, so neither minds the other's numbers.
func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	provider, done, err := newProvider(pool)
	if err != nil {
		return err
	}
	defer done()
	_, err = provider.Up(ctx)
	return err
}

// newProvider returns the migrations of the ledger. The caller calls done in
// the end.
func newProvider(pool *pgxpool.Pool) (provider *goose.Provider, done func(), err error) {
	files, err := fs.Sub(embedded, "sql/migrations")
	if err != nil {
		return nil, nil, err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, nil, err
	}
	db := stdlib.OpenDBFromPool(pool)
	provider, err = goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versionTable), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	return provider, func() { _ = db.Close() }, err // the pool stays open
}
