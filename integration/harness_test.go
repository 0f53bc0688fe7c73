package integration

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const claim = `
	insert into idem.records (id, created_at, expires_at, scope, key, operation, fingerprint)
	values (gen_random_uuid(), now(), now() + interval '1 hour', 'scope', 'forgotten', 'operation',
		decode(repeat('00', 33), 'hex'))`

// settleBriefly is for violations that are there to stay.
const settleBriefly = 50 * time.Millisecond

func mustExec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// expectViolation checks that exactly the expected invariant is reported, and
// that it is not once the cause is gone.
func expectViolation(t *testing.T, d *database, want string, remove func()) {
	t.Helper()
	err := d.violations(t.Context(), settleBriefly)
	remove()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("violations = %v, want only %q", err, want)
	}
	if err := d.violations(t.Context(), settleWait); err != nil {
		t.Errorf("violations after the repair = %v", err)
	}
}

func TestEachTestOwnsAMigratedDatabase(t *testing.T) {
	t.Parallel()
	first, second := newDatabase(t), newDatabase(t)
	mustExec(t, first.Pool(t), "create table mine ()")
	var records, mine bool
	err := second.Pool(t).QueryRow(t.Context(),
		"select to_regclass('idem.records') is not null, to_regclass('mine') is not null").Scan(&records, &mine)
	if err != nil || !records || mine {
		t.Errorf("idem.records there: %v, table of another test there: %v, %v", records, mine, err)
	}
}

func TestAnUntouchedDatabaseBreaksNoInvariant(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	mustExec(t, d.Pool(t), "select 1")
	if err := d.violations(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// Goal: a claim that is committed without an outcome is reported. Method: the
// schema forbids one, so switch its triggers off.
func TestACommittedClaimIsReported(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	pool := d.Pool(t)
	mustExec(t, pool, "begin; set local session_replication_role = replica; "+claim+"; commit")
	expectViolation(t, d, "committed claims without an outcome: (scope, forgotten)", func() {
		mustExec(t, pool, "delete from idem.records")
	})
}

func TestABackendIdleInATransactionIsReported(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	conn, err := pgx.Connect(t.Context(), d.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), "begin"); err != nil {
		t.Fatal(err)
	}
	expectViolation(t, d, "backends idle in a transaction: pid ", func() {
		if _, err := conn.Exec(t.Context(), "rollback"); err != nil {
			t.Error(err)
		}
	})
}

func TestABorrowedConnectionIsReported(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	pool := d.Pool(t, func(config *pgxpool.Config) { config.MaxConns = 1 })
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	expectViolation(t, d, "never got 1 connections back", conn.Release)
}

func TestTheDatabaseIsDroppedWithWhatIsStillConnected(t *testing.T) {
	t.Parallel()
	var name string
	var left *pgx.Conn
	t.Run("owner", func(t *testing.T) {
		d := newDatabase(t)
		name = d.name
		var err error
		if left, err = pgx.Connect(context.Background(), d.URL); err != nil {
			t.Fatal(err)
		}
	})
	defer func() { _ = left.Close(context.Background()) }()
	var there bool
	err := testServer.admin.QueryRow(t.Context(), "select exists (select from pg_database where datname = $1)", name).Scan(&there)
	if err != nil || there {
		t.Errorf("the database is still there: %v, %v", there, err)
	}
	if err := left.Ping(t.Context()); err == nil {
		t.Error("a connection survived its database")
	}
}
