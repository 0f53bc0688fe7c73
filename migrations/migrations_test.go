package migrations

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

const (
	rowsOfVersionTable = `select array_agg(version_id order by id) from idem.goose_db_version`
	recordsExists      = `select to_regclass('idem.records') is not null`
	advisoryLocks      = `select count(*) from pg_locks where locktype = 'advisory'
		and database = (select oid from pg_database where datname = current_database())`
)

func TestUpTwiceAppliesOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	must(t, Up(t.Context(), pool))
	must(t, Up(t.Context(), pool))
	wantInstalledOnce(t, pool)
}

// Four instances of a service start at the same moment on an empty database.
func TestConcurrentUpsApplyOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	start := make(chan struct{})
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		instance := poolFor(t, pool.Config().ConnConfig.Database)
		wg.Go(func() {
			<-start
			errs[i] = Up(t.Context(), instance)
		})
	}
	close(start)
	wg.Wait()
	must(t, errors.Join(errs...))
	wantInstalledOnce(t, pool)
}

func TestUpNeedsOneConnection(t *testing.T) {
	t.Parallel()
	pool := newPool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	must(t, Up(t.Context(), pool))
	wantInstalledOnce(t, pool)
}

func TestUpWithoutThePreparedProtocol(t *testing.T) {
	t.Parallel()
	pool := newPool(t, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	})
	must(t, Up(t.Context(), pool))
	wantInstalledOnce(t, pool)
}

// An administrator made the schema; the role may create nothing outside it.
func TestUpNeedsNoRightsOutsideItsSchema(t *testing.T) {
	t.Parallel()
	admin := newPool(t)
	database := admin.Config().ConnConfig.Database
	role := database + "_app"
	onServer(t, "create role "+role)
	t.Cleanup(func() { onServer(t, "drop role "+role) })
	exec(t, admin, "create schema idem authorization "+role)
	t.Cleanup(func() {
		_, err := admin.Exec(context.WithoutCancel(t.Context()), "drop owned by "+role+" cascade")
		must(t, err)
	})

	app := poolFor(t, database, func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "set role "+role)
			return err
		}
	})
	must(t, Up(t.Context(), app))
	wantInstalledOnce(t, admin)
}

func TestDownThenUp(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	must(t, Up(t.Context(), pool))

	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	provider, err := NewProvider(db)
	must(t, err)
	_, err = provider.DownTo(t.Context(), 0)
	must(t, err)
	if one[bool](t, pool, recordsExists) {
		t.Error("idem.records is still there after going down")
	}
	if rows := one[[]int64](t, pool, rowsOfVersionTable); len(rows) != 1 || rows[0] != 0 {
		t.Errorf("the version table holds %v after going down, want [0]", rows)
	}

	must(t, Up(t.Context(), pool))
	wantInstalledOnce(t, pool)
}

// The goose command uses goose's own store with the documented table name.
func TestGooseCommandAndUpAgree(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	exec(t, pool, "create schema if not exists idem")
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, FS(),
		goose.WithTableName("idem.goose_db_version"), goose.WithDisableGlobalRegistry(true))
	must(t, err)
	_, err = provider.Up(t.Context())
	must(t, err)

	must(t, Check(t.Context(), pool))
	must(t, Up(t.Context(), pool))
	wantInstalledOnce(t, pool)
	_, err = provider.DownTo(t.Context(), 0)
	must(t, err)
}

func TestAFailedMigrationNamesWhatWasApplied(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	provider, err := newProvider(db, fstest.MapFS{
		"00001_first.sql":  {Data: []byte("-- +goose Up\ncreate table idem.first ();")},
		"00002_second.sql": {Data: []byte("-- +goose Up\ncreate table idem.second ();\nselect 1/0;")},
	})
	must(t, err)

	err = apply(t.Context(), provider)
	partial, ok := errors.AsType[*goose.PartialError](err)
	if !ok || len(partial.Applied) != 1 {
		t.Fatalf("got %v, want a PartialError with one applied migration", err)
	}
	const want = "migration 00002_second.sql failed (applied before it: 00001_first.sql)"
	if !strings.Contains(err.Error(), want) {
		t.Errorf("got %q, want it to say %q", err, want)
	}
	if one[bool](t, pool, `select to_regclass('idem.second') is not null`) {
		t.Error("the failed migration left a table behind")
	}
	if n := one[int](t, pool, advisoryLocks); n != 0 {
		t.Errorf("%d advisory locks are left", n)
	}
}

func TestUpStopsWithItsContext(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Up(ctx, pool); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
}

func wantInstalledOnce(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if !one[bool](t, pool, recordsExists) {
		t.Error("idem.records is missing")
	}
	if rows := one[[]int64](t, pool, rowsOfVersionTable); len(rows) != 2 || rows[0] != 0 || rows[1] != 1 {
		t.Errorf("the version table holds %v, want [0 1]", rows)
	}
	if n := one[int](t, pool, advisoryLocks); n != 0 {
		t.Errorf("%d advisory locks are left", n)
	}
	must(t, Check(t.Context(), pool))
}
