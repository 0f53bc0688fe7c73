package idem

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// DoTx is [Store.Do] inside a transaction that the caller owns and commits: for
// work that must commit together with other work. The mutation runs inside a
// savepoint of tx, so its three endings work as in Do, and tx stays usable after
// every error but one of the connection; rows that the mutation left open keep
// the connection busy, and COMMIT of tx then fails.
//
// The Result and the record exist only when the caller commits: answer nobody
// before. The key is held until tx ends; duplicates elsewhere are in flight
// until then. DoTx does not wait for a key in flight, whatever [Config].ClaimWait
// says, for tx may hold what the other request needs; it does not run a
// mutation again; it sets no timeouts. Under REPEATABLE READ and SERIALIZABLE a
// record that is newer than the snapshot of tx surfaces as SQLSTATE 40001: run
// the whole transaction again. A key in flight for something else is ErrInFlight
// there, because only a newer snapshot could tell.
//
// Calling DoTx with the lent transaction of another key of the same request is
// how two keys become one unit.
func (s *Store) DoTx(ctx context.Context, tx pgx.Tx, request Request, mutation Mutation) (Result, error) {
	c, err := s.newCall(ctx, request)
	return s.observed(ctx, c, func() (Result, error) {
		if err != nil {
			return Result{}, err
		}
		return s.runTx(ctx, c, tx, mutation)
	})
}

func (s *Store) runTx(ctx context.Context, c *call, tx pgx.Tx, mutation Mutation) (result Result, err error) {
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return Result{}, err
	}
	committed := false
	defer func() { // also when a panic or Goexit passes
		if !committed {
			ctx, cancel := detach(ctx, rollbackTimeout)
			defer cancel()
			_ = savepoint.Rollback(ctx) // fails only with the connection
		}
	}()

	var l look
	if result, err = s.claimTx(ctx, c, savepoint, &l); err != nil || l.verdict != claimed {
		return result, err
	}
	c.seen.Attempts++
	c.claimedAt = l.row.createdAt
	response, err := c.invoke(ctx, tx.Conn(), savepoint, mutation)
	state := StateCompleted
	var rejected *rejection
	switch {
	case errors.As(err, &rejected):
		state, response, c.cause = StateRejected, rejected.response, rejected.cause
		if err := s.rewindTx(ctx, c, &savepoint, tx, &l); err != nil {
			return Result{}, err
		}
	case err != nil:
		return Result{}, err
	}

	f, err := s.newFinish(c, state, &response)
	if err != nil {
		return Result{}, err
	}
	batch := &pgx.Batch{}
	f.queue(batch)
	if err := savepoint.SendBatch(ctx, batch).Close(); err != nil {
		return Result{}, err
	}
	if err := savepoint.Commit(ctx); err != nil {
		return Result{}, err
	}
	committed = true
	return f.result(response, l.row.expiresAt.Time), nil
}

// claimTx claims the key inside savepoint. A look that must be repeated sees a
// newer snapshot under READ COMMITTED and fails with 40001 otherwise.
func (s *Store) claimTx(ctx context.Context, c *call, savepoint pgx.Tx, l *look) (Result, error) {
	previous := error(nil)
	for range looksMax {
		*l = look{}
		batch := &pgx.Batch{}
		c.queueClaim(batch, l)
		if err := savepoint.SendBatch(ctx, batch).Close(); err != nil {
			return Result{}, explain(err)
		}
		result, err := c.judge(ctx, savepoint, l)
		switch {
		case mustLookAgain(err, previous):
			previous = err
			continue
		case errors.Is(err, errReusedInFlight):
			return Result{}, reusedTx(ctx, savepoint)
		}
		return result, err
	}
	return Result{}, errUnstable
}

// reusedTx is what a second look at a key that its owner uses for something else
// means inside a caller's transaction. Where that reads from one snapshot, the
// second look saw no more than the first, and the answer stays open.
func reusedTx(ctx context.Context, tx pgx.Tx) error {
	var fresh bool
	err := tx.QueryRow(ctx, freshSnapshotSQL).Scan(&fresh)
	switch {
	case err != nil:
		return err
	case !fresh:
		return ErrInFlight
	}
	return ErrKeyReused
}

// rewindTx undoes the mutation's writes and claims the key anew.
func (s *Store) rewindTx(ctx context.Context, c *call, savepoint *pgx.Tx, tx pgx.Tx, l *look) error {
	if err := (*savepoint).Rollback(ctx); err != nil {
		return err
	}
	again, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	*savepoint = again
	if _, err := s.claimTx(ctx, c, again, l); err != nil {
		return err
	}
	if l.verdict != claimed {
		return ErrInFlight // a rival recorded the key in between: its answer is the next call's
	}
	return nil
}
