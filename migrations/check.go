package migrations

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"
)

// ErrMissing says that the database has no tables of this library.
var ErrMissing = errors.New("idem: the database has no idem tables: run migrations.Up first")

// VersionError says that the database has the tables of another version.
type VersionError struct {
	Have int64 // what the database has
	Want int64 // what this library needs
}

func (e *VersionError) Error() string {
	remedy := "run migrations.Up of this version first"
	if e.Have > e.Want {
		remedy = "upgrade github.com/idempg/idempg, or migrate down with the newer version"
	}
	return fmt.Sprintf("idem: the database is at migration %d, this library needs %d: %s",
		e.Have, e.Want, remedy)
}

const undefinedTable = "42P01"

// Deleted rows are how goose marks a migration as undone, and older goose
// tools wrote false instead.
const readVersionSQL = `select coalesce(max(version_id), 0) from ` + versionTable + ` where is_applied`

// Check reads which migration the database is at, and changes nothing. It
// returns nil when that is the one this library needs, [ErrMissing] when there
// is none, and a [*VersionError] when it is older or newer.
func Check(ctx context.Context, pool *pgxpool.Pool) error {
	want, err := latest(FS())
	if err != nil {
		return err
	}
	var have int64
	err = pool.QueryRow(ctx, readVersionSQL).Scan(&have)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == undefinedTable {
		return ErrMissing
	}
	switch {
	case err != nil:
		return fmt.Errorf("idem: read the migration version: %w", err)
	case have == 0:
		return ErrMissing
	case have != want:
		return &VersionError{Have: have, Want: want}
	}
	return nil
}

// latest returns the version of the last migration in files.
func latest(files fs.FS) (int64, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return 0, fmt.Errorf("idem: list migrations: %w", err)
	}
	var last int64
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return 0, fmt.Errorf("idem: read the version of migration %s: %w", name, err)
		}
		last = max(last, version)
	}
	return last, nil
}
