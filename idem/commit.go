package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/internal/failpoint"
)

var (
	errConnectionLost = errors.New("idem: the connection was lost before COMMIT was sent: nothing stays, and the key is free")
	errNotCommitted   = errors.New("idem: COMMIT got no answer and did not happen: nothing stays, and the key is free")
	errMayHaveExpired = errors.New("idem: the record would have expired by now, so its absence proves nothing: Request.TTL is too short")
	errNotReplicated  = errors.New("idem: the wait for a synchronous standby was cancelled after COMMIT")
)

// unsettledError says that COMMIT was sent and not answered.
type unsettledError struct{ cause error }

func (e *unsettledError) Error() string { return "idem: COMMIT got no answer: " + e.cause.Error() }
func (e *unsettledError) Unwrap() error { return e.cause }

// finish is what turns a claim into a record: queued with COMMIT.
type finish struct {
	id         [16]byte
	outcome    outcome
	finishedAt time.Time // read back
}

func (f *finish) queue(batch *pgx.Batch) {
	o := &f.outcome
	batch.Queue(finishSQL,
		pgtype.UUID{Bytes: f.id, Valid: true}, string(o.state), o.status, o.headers, o.body,
	).QueryRow(func(row pgx.Row) error { return finishError(row.Scan(&f.finishedAt)) })
}

// finishError names the one SQL error of finishSQL that a mutation can cause.
func finishError(err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == claimGone {
		return fmt.Errorf("%w: the claim is no longer in it: %w", ErrTxEnded, err)
	}
	return err
}

// commit finishes the record, if f is not nil, and commits, in one round trip.
// It ends as sendCommit does.
func (s *Store) commit(ctx context.Context, u *unit, f *finish) error {
	batch := &pgx.Batch{}
	if f != nil {
		f.queue(batch)
	}
	return s.sendCommit(ctx, u, batch)
}

// sendCommit adds COMMIT to batch, sends it, and says how COMMIT ended. It does
// not end with the caller's context. nil means that COMMIT was acknowledged and
// is as durable as the server is configured to make it. An *unsettledError means
// that nobody knows. After any other error nothing stays.
func (s *Store) sendCommit(ctx context.Context, u *unit, batch *pgx.Batch) error {
	var tag pgconn.CommandTag
	batch.Queue("commit").Exec(func(t pgconn.CommandTag) error {
		tag = t
		return nil
	})
	return s.sendLast(ctx, u, batch, func() bool { return tag.String() == "COMMIT" })
}

// sendWhole sends a batch that is a transaction of its own and so commits at its
// end. It ends as sendCommit does.
func (s *Store) sendWhole(ctx context.Context, u *unit, batch *pgx.Batch) error {
	return s.sendLast(ctx, u, batch, func() bool { return u.conn.Conn().PgConn().TxStatus() == 'I' })
}

// sendLast sends the batch that ends a unit. committed tells whether a batch
// without an error has committed.
func (s *Store) sendLast(ctx context.Context, u *unit, batch *pgx.Batch, committed func() bool) error {
	ctx, cancel := detach(ctx, s.config.CommitTimeout)
	defer cancel()
	if err := s.at(ctx, failpoint.BeforeCommit, u.conn, nil); err != nil {
		return err
	}
	keepPrepared(batch)
	results := u.send(ctx, batch)
	notices := watchNotices(u.conn)
	err := results.Close()
	noticed := notices.stop()
	if err == nil {
		err = s.at(ctx, failpoint.AfterCommit, u.conn, nil)
	}

	switch {
	case isUnsendable(err):
		return err
	case err != nil && classify(err) == unknown && !errors.Is(err, ErrTxEnded):
		return &unsettledError{cause: err}
	case err != nil:
		return err
	case !committed():
		return pgx.ErrTxCommitRollback
	case noticed:
		return s.awaitReplication(ctx, u.conn)
	}
	return nil
}

// keepPrepared has pgx keep the prepared statements of a batch in which one
// refuses its data, as the claim and the constraints are there to do. pgx drops
// every statement of a batch that failed, for any of them may have outlived a
// change of the schema; preparing them again would cost the next call two round
// trips. Once nothing is queued any more, there is nothing to drop.
func keepPrepared(batch *pgx.Batch) {
	last := len(batch.QueuedQueries) - 1
	for i, q := range batch.QueuedQueries {
		read := q.Fn
		if read == nil {
			read = func(results pgx.BatchResults) error {
				_, err := results.Exec()
				return err
			}
		}
		q.Fn = func(results pgx.BatchResults) error {
			err := read(results)
			if err == nil && i == last || refusesData(err) {
				batch.QueuedQueries = nil
			}
			return err
		}
	}
}

// refusesData reports whether err is of a class that no change of the schema can
// cause: data exception, integrity constraint violation, raised by PL/pgSQL.
func refusesData(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && len(pgErr.Code) == 5 && slices.Contains([]string{"22", "23", "P0"}, pgErr.Code[:2])
}

// awaitReplication makes sure that what was committed before is on the
// synchronous standbys, if the server has any: a cancelled wait for them ends
// COMMIT with success and a mere notice (PostgreSQL manual, section 27.2.8).
func (s *Store) awaitReplication(ctx context.Context, conn *pgxpool.Conn) error {
	notices := watchNotices(conn)
	_, err := conn.Exec(ctx, barrierSQL)
	if noticed := notices.stop(); err != nil || noticed {
		return &OutcomeUnknownError{Cause: errNotReplicated, Last: err}
	}
	return nil
}

// noticeWatch sees whether the server sends a notice. The pool belongs to the
// caller, and so does the one notice handler that pgx has; its protocol trace
// is free.
type noticeWatch struct {
	conn *pgconn.PgConn
	seen bool
}

func watchNotices(conn *pgxpool.Conn) *noticeWatch {
	w := &noticeWatch{conn: conn.Conn().PgConn()}
	if !w.conn.IsClosed() {
		w.conn.Frontend().Trace(w, pgproto3.TracerOptions{SuppressTimestamps: true})
	}
	return w
}

// Write receives one line per protocol message. A line that starts with F is
// sent by pgx, by the goroutine that closes a broken connection too.
func (w *noticeWatch) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("B\tNoticeResponse")) {
		w.seen = true
	}
	return len(line), nil
}

// stop reports what was seen. A connection that is closed belongs to the
// goroutine that closes it, and its commit failed anyway.
func (w *noticeWatch) stop() (seen bool) {
	if w.conn.IsClosed() {
		return false
	}
	w.conn.Frontend().Untrace()
	return w.seen
}

// settle learns how an unanswered COMMIT ended, by the ordinary claim on
// another connection. It returns the Result of the record when there is one; a
// unit that owns the key when COMMIT did not happen, which the primary key
// proves as long as no record can have expired; or OutcomeUnknownError when
// nobody answered in time. While the old backend is alive it holds the key, and
// settle waits.
func (s *Store) settle(ctx context.Context, c *call) (*unit, Result, error) {
	ctx, cancel := detach(ctx, s.config.SettleTimeout)
	defer cancel()
	if err := s.at(ctx, failpoint.BeforeSettle, nil, nil); err != nil {
		return nil, Result{}, &OutcomeUnknownError{Cause: c.unsettled, Last: err}
	}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		u, result, err := s.claim(ctx, c)
		switch {
		case u != nil && time.Since(c.start) >= c.request.TTL:
			u.release(ctx)
			return nil, Result{}, &OutcomeUnknownError{Cause: c.unsettled, Last: errMayHaveExpired}
		case u != nil:
			return u, Result{}, nil
		case err == nil:
			result.Replayed = c.replayedClaim != c.claimedAt
			return nil, result, s.settleReplication(ctx)
		case errors.Is(err, ErrKeyReused):
			return nil, Result{}, err
		}
		if !sleep(ctx, pause) {
			return nil, Result{}, &OutcomeUnknownError{Cause: c.unsettled, Last: err}
		}
	}
}

// settleReplication makes sure that a COMMIT found durable here is so on the
// synchronous standbys too.
func (s *Store) settleReplication(ctx context.Context) error {
	u, err := s.acquire(ctx)
	if err != nil {
		return &OutcomeUnknownError{Cause: errNotReplicated, Last: err}
	}
	defer u.release(ctx)
	return s.awaitReplication(ctx, u.conn)
}

// sleep waits for about d, and reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
