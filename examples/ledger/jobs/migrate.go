package jobs

import (
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3/lock"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// How an instance waits for another that migrates.
const (
	lockProbeSeconds = 1
	lockProbesMax    = 300
)

// Migrate brings River's tables up to date, in a schema of their own. River does
// not lock out a second instance that starts at the same time, so goose does.
func Migrate(ctx context.Context, pool *pgxpool.Pool) (err error) {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close() // the pool stays open
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(lockProbeSeconds, lockProbesMax))
	if err != nil {
		return err
	}
	if err := locker.SessionLock(ctx, conn); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.SessionUnlock(context.WithoutCancel(ctx), conn)) }()

	if _, err := conn.ExecContext(ctx, "create schema if not exists "+schema); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: schema, Logger: slog.Default()})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}
