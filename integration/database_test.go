package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// settleWait bounds the wait for what ends shortly after a test: connections
// on their way back to a pool, backends of connections that were cut.
const settleWait = 5 * time.Second

// database is a migrated database that one test owns.
type database struct {
	URL string

	name  string
	mutex sync.Mutex
	pools []*pgxpool.Pool
}

// newDatabase clones the template. When the test and its other cleanups are
// over, the invariants are checked, see violations, and the database is
// dropped together with what is still connected to it.
func newDatabase(t testing.TB) *database {
	t.Helper()
	return newDatabaseOn(t, testServer)
}

// newDatabaseOn is newDatabase on another server than the run's.
func newDatabaseOn(t testing.TB, s *server) *database {
	t.Helper()
	name, err := s.createDatabase(t.Context(), s.template)
	if err != nil {
		t.Fatal(err)
	}
	d := &database{URL: s.urlOf(name), name: name}
	t.Cleanup(func() {
		ctx := context.Background() // the test's own is over
		if err := d.violations(ctx, settleWait); err != nil {
			t.Errorf("left by the test: %v", err)
		}
		d.closePools()
		if err := s.dropDatabase(ctx, name); err != nil {
			t.Errorf("drop the database of the test: %v", err)
		}
	})
	return d
}

// Pool returns a new pool on the database, closed with it. The functions may
// change its configuration before it connects.
func (d *database) Pool(t testing.TB, mutate ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range mutate {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.pools = append(d.pools, pool)
	return pool
}

// closePools closes what can be closed: Close waits for borrowed connections.
func (d *database) closePools() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, pool := range d.pools {
		if pool.Stat().AcquiredConns() == 0 {
			pool.Close()
		}
	}
}

// violations says which invariants the database breaks, once it had the given
// time to settle: every pool has its connections back, no claim is committed
// without an outcome, no backend sits in a transaction.
func (d *database) violations(ctx context.Context, settle time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, settle+10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, d.URL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return errors.Join(
		eventually(settle, func() error { return d.borrowedConnections() }),
		unfinishedRecords(ctx, conn),
		eventually(settle, func() error { return idleTransactions(ctx, conn) }),
	)
}

func (d *database) borrowedConnections() error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for i, pool := range d.pools {
		if borrowed := pool.Stat().AcquiredConns(); borrowed != 0 {
			return fmt.Errorf("pool %d of the test never got %d connections back", i, borrowed)
		}
	}
	return nil
}

func unfinishedRecords(ctx context.Context, conn *pgx.Conn) error {
	keys, err := texts(ctx, conn, `
		select format('(%s, %s)', scope, key) from idem.records
		where unfinished is not null or state is null`)
	if err == nil && len(keys) > 0 {
		err = fmt.Errorf("committed claims without an outcome: %s", strings.Join(keys, ", "))
	}
	return err
}

func idleTransactions(ctx context.Context, conn *pgx.Conn) error {
	backends, err := texts(ctx, conn, `
		select format('pid %s, last statement: %s', pid, query) from pg_stat_activity
		where datname = current_database() and state like 'idle in transaction%'`)
	if err == nil && len(backends) > 0 {
		err = fmt.Errorf("backends idle in a transaction: %s", strings.Join(backends, "; "))
	}
	return err
}

func texts(ctx context.Context, conn *pgx.Conn, sql string) ([]string, error) {
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// eventually repeats a check until it passes or the time is up, and returns
// its last answer.
func eventually(limit time.Duration, check func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}
