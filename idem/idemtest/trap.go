package idemtest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/internal/failpoint"
)

var (
	errInjected = errors.New("idemtest: a failure on purpose")
	errDead     = errors.New("idemtest: the app is dead, on purpose")
	errCut      = errors.New("idemtest: the connection was cut, on purpose")
)

// steps are those that every call goes through.
var steps = []failpoint.Step{
	failpoint.BeforeClaim, failpoint.AfterClaim, failpoint.AfterMutation, failpoint.BeforeCommit, failpoint.AfterCommit,
}

// trap waits at a step for the first call that comes by.
type trap struct {
	step   failpoint.Step
	spring func(ctx context.Context, conn *pgx.Conn) error
	kills  bool          // every step after the spring fails, as if the process had ended there
	sprung chan struct{} // closed when the call is in the trap
	taken  atomic.Bool
	ended  chan error // how the first mutation ended
}

// set puts a trap up in the place of the one before.
func (k *kit) set(tr *trap) *trap {
	tr.sprung, tr.ended = make(chan struct{}), make(chan error, 1)
	k.store.SetHook(tr.hook)
	return tr
}

func (k *kit) clear() { k.store.SetHook(nil) }

func (tr *trap) hook(ctx context.Context, event failpoint.Event) error {
	if event.Step == failpoint.AfterMutation {
		select {
		case tr.ended <- event.Err:
		default:
		}
	}
	if tr.kills && tr.taken.Load() {
		return errDead
	}
	if event.Step != tr.step || !tr.taken.CompareAndSwap(false, true) {
		return nil
	}
	close(tr.sprung)
	return tr.spring(ctx, event.Conn)
}

func (tr *trap) caught() bool {
	select {
	case <-tr.sprung:
		return true
	default:
		return false
	}
}

// nothing lets the call go on.
func nothing(context.Context, *pgx.Conn) error { return nil }

// die cuts the connection without a farewell, as the end of a process does.
func die(ctx context.Context, conn *pgx.Conn) error {
	_ = conn.PgConn().Conn().Close() // the server sees the end of the stream
	_ = conn.Close(ctx)              // pgx knows that it is closed
	return errDead
}

// fail ends the unit by an error, as a mutation would.
func fail(context.Context, *pgx.Conn) error { return errInjected }

// poison makes every later statement of the transaction fail.
func poison(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "select 1/0"); err == nil {
		return errors.New("idemtest: division by zero succeeded")
	}
	return nil
}

// pause keeps the call until release is closed.
func pause(release <-chan struct{}) func(context.Context, *pgx.Conn) error {
	return func(context.Context, *pgx.Conn) error {
		<-release
		return nil
	}
}

// terminate ends the backend of the call and returns when it is gone. After
// COMMIT that hides the acknowledgement.
func (k *kit) terminate(step failpoint.Step) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		var gone bool
		err := k.conn.QueryRow(context.WithoutCancel(ctx), "select pg_terminate_backend($1::int, 10000)", conn.PgConn().PID()).Scan(&gone)
		switch {
		case err != nil || !gone:
			return fmt.Errorf("idemtest: the backend was not terminated: %w", errors.Join(err, errCut))
		case step == failpoint.AfterCommit:
			_ = die(ctx, conn)
			return errCut
		}
		return nil
	}
}
