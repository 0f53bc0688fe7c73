package migrations

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckOnAnEmptyDatabaseCreatesNothing(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	if err := Check(t.Context(), pool); !errors.Is(err, ErrMissing) {
		t.Fatalf("got %v, want ErrMissing", err)
	}
	if one[bool](t, pool, `select to_regnamespace('idem') is not null`) {
		t.Error("Check created the schema")
	}
}

func TestCheckWorksReadOnly(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	must(t, Up(t.Context(), pool))
	exec(t, pool, "alter database "+pool.Config().ConnConfig.Database+" set default_transaction_read_only = on")
	must(t, Check(t.Context(), poolFor(t, pool.Config().ConnConfig.Database)))
}

func TestCheckSaysHowFarTheDatabaseIs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change string
		want   error
		remedy string
	}{
		"every migration undone": {
			`delete from idem.goose_db_version where version_id > 0`,
			ErrMissing, "run migrations.Up",
		},
		"newer than this library": {
			`insert into idem.goose_db_version (version_id, is_applied) values (99, true)`,
			&VersionError{Have: 99, Want: 1}, "upgrade github.com/idempg/idempg",
		},
		"a newer one, undone by an old goose": {
			`insert into idem.goose_db_version (version_id, is_applied) values (99, false)`,
			nil, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			must(t, Up(t.Context(), pool))
			exec(t, pool, test.change)

			err := Check(t.Context(), pool)
			wantCheckError(t, err, test.want, test.remedy)
		})
	}
}

func wantCheckError(t *testing.T, got, want error, remedy string) {
	t.Helper()
	if version, ok := errors.AsType[*VersionError](want); ok {
		have, ok := errors.AsType[*VersionError](got)
		if !ok || *have != *version {
			t.Fatalf("got %v, want %v", got, want)
		}
	} else if !errors.Is(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	if got != nil && !strings.Contains(got.Error(), remedy) {
		t.Errorf("%q does not say %q", got, remedy)
	}
}

// With one migration there is no older version to be at yet, only none.
func TestVersionErrorOfAnOlderDatabaseSaysToMigrate(t *testing.T) {
	t.Parallel()
	err := &VersionError{Have: 1, Want: 2}
	const want = "idem: the database is at migration 1, this library needs 2: run migrations.Up"
	if !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestUpRefusesADatabaseOfANewerLibrary(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	must(t, Up(t.Context(), pool))
	exec(t, pool, `insert into idem.goose_db_version (version_id, is_applied) values (99, true)`)
	wantCheckError(t, Up(t.Context(), pool), &VersionError{Have: 99, Want: 1}, "upgrade")
}

func TestCheckPassesOtherFailuresOn(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	pool.Close()
	err := Check(t.Context(), pool)
	if err == nil || errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "closed pool") {
		t.Fatalf("got %v, want the pool's own error", err)
	}
}
