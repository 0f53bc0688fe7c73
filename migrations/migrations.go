package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

const (
	// lockID is "idempg" in ASCII: not goose's default, so that the
	// application's own goose migrations never wait for these.
	lockID = 0x69_64_65_6d_70_67

	lockProbeSeconds   = 1 // the shortest that goose offers
	lockProbesMax      = 300
	unlockProbesMax    = 3
	migrationDirectory = "sql"
)

//go:embed sql/*.sql
var embedded embed.FS

// FS returns the migration files, at its root, in goose's format.
func FS() fs.FS {
	files, err := fs.Sub(embedded, migrationDirectory)
	if err != nil {
		panic(err) // only an invalid path fails, and this one is a constant
	}
	return files
}

// Up applies every migration that the database does not have yet, each in a
// transaction of its own, and then does what [Check] does. A database that is
// up to date is left as it is. It borrows one connection of the pool.
//
// When a migration fails, those before it stay applied: the error names them
// and wraps goose's PartialError.
func Up(ctx context.Context, pool *pgxpool.Pool) error {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close() // returns the connection; the pool stays open

	provider, err := NewProvider(db)
	if err != nil {
		return err
	}
	if err := apply(ctx, provider); err != nil {
		return err
	}
	return Check(ctx, pool)
}

// NewProvider returns a goose provider over [FS], for callers that want more
// than [Up]: one step at a time, the way down, the status. It records versions
// in idem.goose_db_version, whose schema it creates, and takes a session lock.
// It reads no migration from goose's globals.
//
// Going down drops the tables and with them every record: keys that were
// answered run again. The schema and its version table stay.
func NewProvider(db *sql.DB) (*goose.Provider, error) {
	return newProvider(db, FS())
}

func newProvider(db *sql.DB, files fs.FS) (*goose.Provider, error) {
	store, err := newStore()
	if err != nil {
		return nil, fmt.Errorf("idem: build the version store: %w", err)
	}
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(lockID),
		lock.WithLockTimeout(lockProbeSeconds, lockProbesMax),
		lock.WithUnlockTimeout(lockProbeSeconds, unlockProbesMax),
	)
	if err != nil {
		return nil, fmt.Errorf("idem: build the migration lock: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, files,
		goose.WithStore(store),
		goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true),
	)
	if err != nil {
		return nil, fmt.Errorf("idem: build the migration provider: %w", err)
	}
	return provider, nil
}

func apply(ctx context.Context, provider *goose.Provider) error {
	_, err := provider.Up(ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		return fmt.Errorf("idem: migration %s failed (applied before it: %s): %w",
			partial.Failed.Source.Path, appliedNames(partial.Applied), err)
	}
	if err != nil {
		return fmt.Errorf("idem: apply migrations: %w", err)
	}
	return nil
}

func appliedNames(applied []*goose.MigrationResult) string {
	if len(applied) == 0 {
		return "none"
	}
	names := make([]string, len(applied))
	for i, result := range applied {
		names[i] = result.Source.Path
	}
	return strings.Join(names, ", ")
}
