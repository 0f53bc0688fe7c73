package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/internal/failpoint"
)

const (
	// looksMax bounds how often a claim looks at a key that changes hands
	// between two looks.
	looksMax = 10

	// rollbackTimeout bounds a ROLLBACK, after which the connection is closed
	// instead.
	rollbackTimeout = 5 * time.Second
)

var (
	errPoolExhausted = errors.New("idem: no connection became free within Config.AcquireTimeout")
	errPoolNested    = errors.New("idem: the mutations around this call hold every connection of the pool, so it would wait for itself: use DoTx with the transaction that was lent")
	errUnstable      = fmt.Errorf("%w: it changed hands %d times while it was looked at", ErrInFlight, looksMax)

	// Two endings of a look after which the key must be looked at again.
	errLookAgain      = errors.New("idem: the key changed hands")
	errReusedInFlight = errors.New("idem: the owner of the key asks for something else")
)

// verdict is the first column of claimSQL.
type verdict string

const (
	claimed        verdict = "claimed"          // the row is ours
	recorded       verdict = "recorded"         // a live record answers
	inFlight       verdict = "in_flight"        // someone holds the payload lock
	reusedInFlight verdict = "reused_in_flight" // someone with another payload holds the key lock
	expired        verdict = "expired"          // a dead record is in the way
	free           verdict = "free"             // a rival's row kept ours out and is not visible yet
	reentrant      verdict = "reentrant"        // this transaction holds the claim already
)

// look is one row of claimSQL: the verdict, and the record it is about.
type look struct {
	verdict verdict
	now     pgtype.Timestamptz // by the database's clock
	row     recordRow
}

// unit is one transaction of one call: a connection of the pool, the
// transaction on it, and the claim in that.
type unit struct {
	conn *pgxpool.Conn
	tx   pgx.Tx
	look look
}

// claim returns a unit that owns the key; or no unit and the Result that is
// recorded for the key; or an error: ErrInFlight, ErrKeyReused, ErrReentrant,
// or what the database said. It never waits for a key in flight.
func (s *Store) claim(ctx context.Context, c *call) (*unit, Result, error) {
	if s.flights.isOwnedHere(c) {
		return nil, Result{}, ErrInFlight
	}
	u, err := s.acquire(ctx)
	if err != nil {
		return nil, Result{}, err
	}
	if s.flights.isOwnedHere(c) { // by now: another key can use the connection
		u.release(ctx)
		return nil, Result{}, ErrInFlight
	}
	previous := error(nil)
	for range looksMax {
		result, err := s.lookAtKey(ctx, c, u)
		switch {
		case err == nil && u.look.verdict == claimed:
			return u, Result{}, nil
		case mustLookAgain(err, previous), err != nil && classify(err) == retry:
			previous = err
			if err := u.rollback(ctx); err != nil {
				u.release(ctx)
				return nil, Result{}, err
			}
			continue
		}
		err = u.lost(err)
		u.releaseLater()
		if errors.Is(err, errReusedInFlight) {
			err = ErrKeyReused
		}
		return nil, result, err
	}
	u.releaseLater()
	return nil, Result{}, errUnstable
}

// mustLookAgain reports whether err, after the previous look's error, leaves the
// answer open. A key that its owner uses for something else is looked at twice:
// the second look has a newer snapshot, and would see a record of this request
// that was committed between the first one's snapshot and its locks.
func mustLookAgain(err, previous error) bool {
	return errors.Is(err, errLookAgain) || errors.Is(err, errReusedInFlight) && !errors.Is(previous, errReusedInFlight)
}

// acquire takes a connection of the pool. A call inside a mutation does not wait
// for a connection that only its own end could free.
func (s *Store) acquire(ctx context.Context) (*unit, error) {
	held := callFrom(ctx).connections(s.pool)
	if held > 0 && held >= s.pool.Stat().MaxConns() {
		return nil, errPoolNested
	}
	acquireCtx, cancel := context.WithTimeoutCause(ctx, s.config.AcquireTimeout, errPoolExhausted)
	defer cancel()
	conn, err := s.pool.Acquire(acquireCtx)
	if err != nil {
		if cause := context.Cause(acquireCtx); cause != nil && acquireCtx.Err() != nil {
			if held > 0 {
				cause = fmt.Errorf("%w (the mutation around this call holds one: use DoTx with its transaction)", cause)
			}
			return nil, fmt.Errorf("%w: %w", cause, err)
		}
		return nil, err
	}
	return &unit{conn: conn}, nil
}

// lookAtKey begins a transaction and looks at the key in one round trip, and
// judges what it found.
func (s *Store) lookAtKey(ctx context.Context, c *call, u *unit) (Result, error) {
	if err := s.at(ctx, failpoint.BeforeClaim, u.conn, nil); err != nil {
		return Result{}, err
	}
	batch := s.begin.batch()
	u.look = look{}
	c.queueClaim(batch, &u.look)
	if err := u.send(ctx, batch).Close(); err != nil {
		return Result{}, explain(err)
	}
	return c.judge(ctx, u.tx, &u.look)
}

// queueClaim queues claimSQL, to be read into l.
func (c *call) queueClaim(batch *pgx.Batch, l *look) {
	r := c.request
	sent := time.Now() // a little before it is
	batch.Queue(claimSQL,
		pgtype.UUID{Bytes: c.id.recordID(), Valid: true}, c.payloadLock, c.id.keyLock(),
		r.Scope, r.Key, r.Operation, r.Fingerprint[:], r.TTL.Microseconds(), c.claimedAt,
	).QueryRow(func(row pgx.Row) error {
		err := row.Scan(append([]any{&l.verdict, &l.now}, l.row.destinations()...)...)
		c.clock = clockReading{sent: sent, database: l.now.Time}
		return err
	})
}

// judge turns the verdict of a look into an ending. It returns no error when
// the key is claimed, perhaps only now by taking over an expired record, and
// when the Result is the answer.
func (c *call) judge(ctx context.Context, tx pgx.Tx, l *look) (Result, error) {
	switch l.verdict {
	case claimed:
		return Result{}, nil
	case recorded:
		return c.replay(&l.row)
	case reentrant:
		return Result{}, ErrReentrant
	case reusedInFlight:
		return Result{}, errReusedInFlight
	case inFlight:
		return Result{}, c.judgeHolder(ctx, tx)
	case expired:
		err := tx.QueryRow(ctx, takeOverSQL,
			pgtype.UUID{Bytes: c.id.recordID(), Valid: true},
			c.request.Operation, c.request.Fingerprint[:], c.request.TTL.Microseconds(), c.claimedAt,
		).Scan(&l.row.createdAt, &l.row.expiresAt)
		if errors.Is(err, pgx.ErrNoRows) {
			return Result{}, errLookAgain
		}
		l.verdict = claimed
		return Result{}, err
	case free:
		return Result{}, errLookAgain
	}
	return Result{}, fmt.Errorf("idem: the claim answered %q, which this version does not know", l.verdict)
}

// judgeHolder tells a request in flight from another duplicate that is being
// refused at this moment, whose payload lock is in the way.
func (c *call) judgeHolder(ctx context.Context, tx pgx.Tx) error {
	var holder string
	recordID := pgtype.UUID{Bytes: c.id.recordID(), Valid: true}
	err := tx.QueryRow(ctx, holderSQL, c.payloadLock, c.id.keyLock(), recordID).Scan(&holder)
	switch {
	case err != nil:
		return err
	case holder == "same":
		return ErrInFlight
	case holder == "other":
		return errReusedInFlight
	}
	return errLookAgain
}

// replay answers from a record, if it answers this request.
func (c *call) replay(row *recordRow) (Result, error) {
	record, err := row.record()
	switch {
	case err != nil:
		return Result{}, err
	case record.Scope != c.request.Scope || record.Key != c.request.Key:
		return Result{}, fmt.Errorf("idem: two keys share the record id %x", c.id.recordID())
	case record.Operation != c.request.Operation || record.Fingerprint != c.request.Fingerprint:
		return Result{}, ErrKeyReused
	}
	c.replayedClaim = row.createdAt
	return record.result(), nil
}

// beginStatements open every transaction. They travel with the claim.
type beginStatements struct {
	options  pgx.TxOptions
	timeouts []string
	limits   []string // those of the timeouts that a pipeline without BEGIN needs
}

func newBeginStatements(config Config) beginStatements {
	b := beginStatements{options: pgx.TxOptions{IsoLevel: config.IsolationLevel}}
	for _, t := range []struct {
		setting string
		value   time.Duration
		limit   bool
	}{
		{"idle_in_transaction_session_timeout", config.IdleInTransactionTimeout, false},
		{"statement_timeout", config.StatementTimeout, true},
		{"lock_timeout", config.LockTimeout, true},
	} {
		if t.value == 0 {
			continue
		}
		b.timeouts = append(b.timeouts, fmt.Sprintf("set local %s = %d", t.setting, t.value.Milliseconds()))
		if t.limit {
			b.limits = append(b.limits, fmt.Sprintf("select set_config('%s', '%d', true)", t.setting, t.value.Milliseconds()))
		}
	}
	return b
}

func (b beginStatements) batch() *pgx.Batch {
	batch := &pgx.Batch{}
	batch.BeginTx(b.options)
	for _, sql := range b.timeouts {
		batch.Queue(sql)
	}
	return batch
}

// batchWithoutBegin opens a batch that is a transaction of its own, in which SET
// LOCAL would warn and nobody can idle.
func (b beginStatements) batchWithoutBegin() *pgx.Batch {
	batch := &pgx.Batch{}
	for _, sql := range b.limits {
		batch.Queue(sql)
	}
	return batch
}

// send sends a batch on the unit's connection.
func (u *unit) send(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	results := u.conn.SendBatch(ctx, batch)
	if tx := results.Tx(); tx != nil {
		u.tx = tx // the batch begins it
	}
	return results
}

// rollback ends the transaction, if there is one. Afterwards the connection is
// out of it or closed; in both cases the key is free.
func (u *unit) rollback(ctx context.Context) error {
	if u.conn.Conn().IsClosed() {
		return errConnectionLost
	}
	if u.conn.Conn().PgConn().TxStatus() == 'I' {
		return nil
	}
	ctx, cancel := detach(ctx, rollbackTimeout)
	defer cancel()
	if u.tx == nil { // a statement of a Batch began it
		return u.conn.Conn().Close(ctx)
	}
	return u.lost(u.tx.Rollback(ctx))
}

// lost names the error that has ended the unit's connection before COMMIT was
// sent: what the network says of it is in no class.
func (u *unit) lost(err error) error {
	if err != nil && u.conn.Conn().IsClosed() {
		return fmt.Errorf("%w: %w", errConnectionLost, err)
	}
	return err
}

// release undoes what was not committed and gives the connection back. The
// second call does nothing.
func (u *unit) release(ctx context.Context) {
	if u.conn == nil {
		return
	}
	_ = u.rollback(ctx) // a connection that cannot roll back is closed, which rolls back
	u.conn.Release()
	u.conn = nil
}

// releaseLater is release for a transaction that wrote nothing: the caller's
// answer need not wait for the ROLLBACK. The caller's context may be gone by then.
func (u *unit) releaseLater() {
	go u.release(context.Background())
}
