package migrations

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// row is an insert into idem.records: an SQL expression per column.
type row map[string]string

func (r row) with(changes row) row {
	changed := maps.Clone(r)
	maps.Copy(changed, changes)
	return changed
}

func (r row) insert() string {
	columns := slices.Sorted(maps.Keys(r))
	values := make([]string, len(columns))
	for i, column := range columns {
		values[i] = r[column]
	}
	return "insert into idem.records (" + strings.Join(columns, ", ") + ") values (" + strings.Join(values, ", ") + ")"
}

var (
	claim = row{
		"id": "gen_random_uuid()", "created_at": "now()", "expires_at": "now() + '1 day'",
		"scope": "'tenant'", "key": "'k'", "operation": "'POST /transfers'",
		"fingerprint": `decode(repeat('01', 33), 'hex')`,
	}
	record = claim.with(row{
		"finished_at": "now()", "status": "201", "state": "'completed'", "unfinished": "null",
		"headers": `'{"Location": ["/transfers/1"]}'`, "body": "''",
	})
)

func TestAClaimWithoutAnOutcomeCannotCommit(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	must(t, Up(t.Context(), pool))
	exec(t, pool, "create table effects (n int)")

	tx, err := pool.Begin(t.Context())
	must(t, err)
	defer tx.Rollback(t.Context())
	for _, sql := range []string{claim.insert(), "insert into effects values (1)"} {
		_, err = tx.Exec(t.Context(), sql)
		must(t, err)
	}
	wantRefused(t, tx.Commit(t.Context()), "23503", "records_a_claim_without_an_outcome_cannot_commit")
	if n := one[int](t, pool, `select (select count(*) from idem.records) + (select count(*) from effects)`); n != 0 {
		t.Errorf("%d rows stayed", n)
	}
}

// What idem does, to show that the guard refuses nothing else.
func TestAFinishedClaimCommits(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	must(t, Up(t.Context(), pool))
	exec(t, pool, claim.insert()+"; update idem.records set unfinished = null, state = 'rejected', status = 402, finished_at = now()")
	if n := one[int](t, pool, `select count(*) from idem.records`); n != 1 {
		t.Errorf("%d records, want 1", n)
	}
}

func TestNothingCanBeWhatAClaimPointsAt(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	must(t, Up(t.Context(), pool))
	_, err := pool.Exec(t.Context(), `insert into idem.unfinished values (1)`)
	wantRefused(t, err, "23514", "unfinished_is_always_empty")
}

func TestEveryLimitOfTheTableRefuses(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	must(t, Up(t.Context(), pool))
	for _, test := range []struct {
		constraint string
		row        row
	}{
		{"records_scope_limit", record.with(row{"scope": "''"})},
		{"records_scope_limit", record.with(row{"scope": "repeat('s', 256)"})},
		{"records_scope_limit", record.with(row{"scope": "repeat('é', 128)"})},
		{"records_key_limit", record.with(row{"key": "''"})},
		{"records_key_limit", record.with(row{"key": "repeat('k', 256)"})},
		{"records_operation_limit", record.with(row{"operation": "repeat('o', 2049)"})},
		{"records_fingerprint_length", record.with(row{"fingerprint": `decode(repeat('01', 32), 'hex')`})},
		{"records_state", record.with(row{"state": "'failed'"})},
		{"records_status", record.with(row{"status": "199"})},
		{"records_status", record.with(row{"status": "600"})},
		{"records_headers_limit", record.with(row{"headers": "'[]'"})},
		{"records_headers_limit", record.with(row{"headers": "jsonb_build_object('X', repeat('x', 262144))"})},
		{"records_body_limit", record.with(row{"body": "decode(repeat('00', 67108865), 'hex')"})},
		{"records_whole", record.with(row{"expires_at": "now()"})},
		{"records_whole", record.with(row{"state": "null"})},
		{"records_whole", record.with(row{"status": "null"})},
		{"records_whole", record.with(row{"finished_at": "null"})},
		{"records_whole", record.with(row{"unfinished": "1"})},
		{"records_whole", claim.with(row{"unfinished": "null"})},
	} {
		_, err := pool.Exec(t.Context(), test.row.insert())
		wantRefused(t, err, "23514", test.constraint)
	}
	if n := one[int](t, pool, `select count(*) from idem.records`); n != 0 {
		t.Errorf("%d refused rows stayed", n)
	}
}

func TestEveryLimitOfTheTableIsReachable(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	must(t, Up(t.Context(), pool))
	for _, edge := range []row{
		{"scope": "repeat('s', 255)", "key": "repeat('k', 255)", "operation": "repeat('o', 2048)"},
		{"operation": "''", "status": "200"},
		{"status": "599", "headers": "null", "body": "null", "state": "'rejected'"},
		{"body": "decode(repeat('00', 67108864), 'hex')"},
	} {
		exec(t, pool, record.with(edge).insert())
	}
}

func TestBodiesAreStoredWithLZ4WhereTheServerHasIt(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	must(t, Up(t.Context(), pool))
	want := ""
	if hasLZ4(t, pool) {
		want = "l"
	}
	got := one[string](t, pool, `select attcompression::text from pg_attribute
		where attrelid = 'idem.records'::regclass and attname = 'body'`)
	if got != want {
		t.Errorf("compression of body is %q, want %q", got, want)
	}
}

func hasLZ4(t *testing.T, pool *pgxpool.Pool) bool {
	t.Helper()
	return one[bool](t, pool, `select 'lz4' = any(enumvals) from pg_settings where name = 'default_toast_compression'`)
}

func wantRefused(t *testing.T, err error, code, constraint string) {
	t.Helper()
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != code || pgErr.ConstraintName != constraint {
		t.Errorf("got %v, want SQLSTATE %s from %s", err, code, constraint)
	}
}
