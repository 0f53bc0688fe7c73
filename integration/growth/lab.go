package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/internal/localpg"
	"github.com/idempg/idempg/migrations"
)

// settings are those of a durable server with room for one checkpoint per
// measurement. Vacuum looks at the tables more often than by default, so that
// it does its work while the program watches.
var settings = map[string]string{
	"shared_buffers":      "1GB",
	"max_wal_size":        "16GB",
	"checkpoint_timeout":  "15min",
	"autovacuum_naptime":  "5s",
	"max_connections":     "50",
	"autovacuum_work_mem": "64MB",
}

// facts say on what the figures were taken.
type facts struct {
	Processor, System, Go, Postgres, Server string
	Cores                                   int
	Settings                                map[string]string
}

// lab is a server with two databases: one that grows and one that stays all
// but empty, for the ratio between the two.
type lab struct {
	server       *localpg.Server
	grown, empty *database
	facts        facts
}

// database is one database with the library's schema.
type database struct {
	name    string
	pool    *pgxpool.Pool
	durable *idem.Store // on pool
	relaxed *idem.Store // on a pool whose commits do not wait for the disk
	async   *pgxpool.Pool
	filled  int          // records that fill made
	swept   int          // expired records that were added and swept
	calls   atomic.Int64 // records that first requests made
}

func newLab(ctx context.Context) (_ *lab, err error) {
	server, err := localpg.Start(ctx, localpg.Options{Settings: settings})
	if err != nil {
		return nil, err
	}
	l := &lab{server: server}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.grown, err = newDatabase(ctx, server.URL, "grown"); err != nil {
		return nil, err
	}
	if l.empty, err = newDatabase(ctx, server.URL, "empty"); err != nil {
		return nil, err
	}
	l.facts = facts{
		Processor: processorName(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		Cores: runtime.NumCPU(), Server: server.Source, Settings: settings,
	}
	return l, l.grown.pool.QueryRow(ctx, "show server_version").Scan(&l.facts.Postgres)
}

func (l *lab) close() error {
	for _, d := range []*database{l.grown, l.empty} {
		if d != nil {
			d.close()
		}
	}
	return l.server.Stop()
}

func (d *database) close() {
	d.pool.Close()
	d.async.Close()
}

func newDatabase(ctx context.Context, serverURL, name string) (*database, error) {
	if err := execute(ctx, serverURL, "create database "+pgx.Identifier{name}.Sanitize()); err != nil {
		return nil, err
	}
	address, err := url.Parse(serverURL)
	if err != nil {
		return nil, err
	}
	address.Path = name
	d := &database{name: name}
	if d.pool, err = newPool(ctx, address, "on"); err != nil {
		return nil, err
	}
	if d.async, err = newPool(ctx, address, "off"); err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, d.pool); err != nil {
		return nil, err
	}
	if d.durable, err = idem.New(d.pool, idem.Config{}); err != nil {
		return nil, err
	}
	d.relaxed, err = idem.New(d.async, idem.Config{})
	return d, err
}

// execute runs one statement on a connection of its own.
func execute(ctx context.Context, url, statement string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

func newPool(ctx context.Context, address *url.URL, synchronousCommit string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(address.String())
	if err != nil {
		return nil, err
	}
	config.MaxConns = loadClients + 2
	config.ConnConfig.RuntimeParams["synchronous_commit"] = synchronousCommit
	return pgxpool.NewWithConfig(ctx, config)
}

// exec runs statements that must not be in a transaction, one by one.
func (d *database) exec(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := d.pool.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// processorName is what the system calls the processor, or "".
func processorName() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(info)) {
		if name, found := strings.CutPrefix(line, "model name"); found {
			return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), ":"))
		}
	}
	return ""
}
