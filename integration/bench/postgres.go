package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/internal/localpg"
	"github.com/idempg/idempg/migrations"
)

// serverConnections have room for the pools of all systems.
const serverConnections = 800

// postgresServer is a server of our own, with everything in it that systems need.
type postgresServer struct {
	*localpg.Server
	version string
	admin   *pgxpool.Pool
}

// startPostgres starts a server whose data are on disk and safe there, or in
// memory and not. Checkpoints are far apart, so that none falls into the slice
// of one system.
func startPostgres(ctx context.Context, durable bool) (*postgresServer, error) {
	settings := map[string]string{
		"max_connections": strconv.Itoa(serverConnections), "shared_buffers": "256MB",
		"max_wal_size": "8GB", "checkpoint_timeout": "1h",
	}
	if dir := memoryDir(); !durable && dir != "" {
		defer setTempDir(dir)()
	}
	server, err := localpg.Start(ctx, localpg.Options{Volatile: !durable, Settings: settings, NoDocker: true})
	if err != nil {
		return nil, err
	}
	p := &postgresServer{Server: server}
	if p.admin, err = pgxpool.New(ctx, server.URL); err == nil {
		err = p.admin.QueryRow(ctx, "select current_setting('server_version')").Scan(&p.version)
	}
	if err == nil {
		err = setUpDatabase(ctx, p.admin)
	}
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// setTempDir puts temporary directories elsewhere until it is undone.
func setTempDir(dir string) (undo func()) {
	before, was := os.LookupEnv("TMPDIR")
	_ = os.Setenv("TMPDIR", dir) // fails for a malformed name alone
	return func() {
		if was {
			_ = os.Setenv("TMPDIR", before)
		} else {
			_ = os.Unsetenv("TMPDIR")
		}
	}
}

func (p *postgresServer) stop() error {
	if p.admin != nil {
		p.admin.Close()
	}
	return p.Stop()
}

// businessTables are what the mutation works on. There is room on the pages of
// the accounts for HOT updates, as a database has that is set up for them.
const businessTables = `
create schema bench;
create table bench.accounts (
    id      int    primary key,
    balance bigint not null default 0
) with (fillfactor = 50);
create table bench.transfers (
    id      bigint generated always as identity primary key,
    account int    not null,
    cents   bigint not null check (cents > 0),
    key     text   not null
);`

// setUpDatabase makes the tables of the mutation and of every system.
func setUpDatabase(ctx context.Context, pool *pgxpool.Pool) error {
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	for _, sql := range []string{
		businessTables, separateTable, transactionsTable, answersTable,
		fmt.Sprintf("insert into bench.accounts (id) select generate_series(1, %d)", accounts),
		"vacuum analyze bench.accounts",
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("set up the database: %w", err)
		}
	}
	return nil
}

// checkOnce fails when a key was carried out more than once. The bare
// transactions have no duplicates to carry out.
func (p *postgresServer) checkOnce(ctx context.Context) error {
	var key string
	var times int
	err := p.admin.QueryRow(ctx, `select key, count(*) from bench.transfers
		group by key having count(*) > 1 limit 1`).Scan(&key, &times)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("the key %s was carried out %d times", key, times)
}

// throughLine is a URL of the same database over a line.
func throughLine(postgresURL, address string) string {
	parsed, err := url.Parse(postgresURL)
	if err != nil {
		panic(err) // it connected before
	}
	parsed.Host = address
	return parsed.String()
}

// hostOf is the address of the server that a URL names.
func hostOf(postgresURL string) string {
	parsed, err := url.Parse(postgresURL)
	if err != nil {
		panic(err) // it connected before
	}
	return parsed.Host
}
