package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

// Each SQL error that a mutation can meet has a defined end, whether the
// mutation returns it or swallows it: nothing stays, the key is free, and the
// error says whether to try again.
func TestEverySQLErrorInAMutationHasADefinedEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{AttemptsMax: 2})
	b.exec(t, `create table parents (id int primary key check (id > 0));
		create table children (parent int references parents)`)
	raised := func(code string) string {
		return fmt.Sprintf("do $$ begin raise 'as asked' using errcode = '%s'; end $$", code)
	}
	for _, c := range []struct {
		code, sql string
		runs      int // when the error is returned
		retryable bool
	}{
		{"23505", "insert into parents values (1), (1)", 1, false},
		{"23503", "insert into children values (99)", 1, false},
		{"23514", "insert into parents values (0)", 1, false},
		{"57014", "set local statement_timeout = 1; select pg_sleep(600)", 1, false},
		{"55P03", raised("55P03"), 1, false},
		{"22012", "select 1 / 0", 1, false},
		{"42601", "selekt", 1, false},
		{"53300", raised("53300"), 1, true},
		{"40001", raised("40001"), 2, true},
		{"40P01", raised("40P01"), 2, true},
		{"57P01", "select pg_terminate_backend(pg_backend_pid())", 1, true},
	} {
		for _, swallows := range []bool{false, true} {
			key := fmt.Sprintf("%s/swallows=%v", c.code, swallows)
			runs := 0
			_, err := b.store.Do(t.Context(), request(key), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
				runs++
				if err := write(ctx, tx, key); err != nil {
					return idem.Response{}, err
				}
				_, err := tx.Conn().PgConn().Exec(ctx, c.sql).ReadAll()
				if sqlstate(err) != c.code {
					t.Errorf("%s: the statement failed with %v", key, err)
				}
				if swallows {
					err = nil
				}
				return receipt(key), err
			})
			switch {
			case err == nil:
				t.Errorf("%s: the caller was told of a success", key)
			case swallows && c.code != "57P01" && !errors.Is(err, pgx.ErrTxCommitRollback):
				t.Errorf("%s: error is %v, want ErrTxCommitRollback", key, err)
			case !swallows && (sqlstate(err) != c.code || runs != c.runs || idem.Retryable(err) != c.retryable):
				t.Errorf("%s: after %d runs (want %d) error is %v, retryable %v", key, runs, c.runs, err, idem.Retryable(err))
			}
			b.wantEffects(t, key, 0)
			if result := mustDo(t, b.store, request(key), created(key)); result.Replayed {
				t.Errorf("%s: the key was not free", key)
			}
		}
	}
}
