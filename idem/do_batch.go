package idem

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idempg/idempg/internal/failpoint"
)

// errClaimLost says that the pipeline of a Batch stopped at its claim: nothing
// after it ran, and the key must be looked at.
var errClaimLost = errors.New("idem: the key is not free")

// DoBatch is [Store.Do] for a mutation that is SQL through and through: the
// claim, the statements of batch, the record and COMMIT travel in one round
// trip, which is less than the same statements take without any idempotency.
//
// It answers and guarantees what Do does. A constraint that [Batch.RejectOn]
// names is a rejection and takes a second round trip, as does a replay; every
// other error of a statement aborts. The statements do not end with ctx once
// they were sent: [Config].CommitTimeout bounds them together with COMMIT, and
// the statement and lock timeouts of Config hold for each. An answer that was
// found by settling an unanswered COMMIT is marked as a replay, for nothing
// tells it from that of a rival.
//
// With [Config].IsolationLevel set, a batch that fails takes one more trip.
func (s *Store) DoBatch(ctx context.Context, request Request, batch *Batch) (Result, error) {
	c, err := s.newCall(ctx, request)
	if err == nil {
		err = batch.validate()
	}
	return s.observed(ctx, c, func() (Result, error) {
		if err != nil {
			return Result{}, err
		}
		return s.remembered(ctx, c, func() (Result, error) { return s.runBatch(ctx, c, batch) })
	})
}

func (s *Store) runBatch(ctx context.Context, c *call, batch *Batch) (Result, error) {
	return s.run(ctx, c, s.obtainForBatch, func(ctx context.Context, c *call, u *unit) (Result, error) {
		return s.executeBatch(ctx, c, u, batch)
	})
}

// obtainForBatch returns a unit without a claim for a key that is probably free,
// and what obtain does otherwise.
func (s *Store) obtainForBatch(ctx context.Context, c *call) (*unit, Result, error) {
	if c.claimLost || c.unsettled != nil || s.lead(c) != c.flight {
		return s.obtain(ctx, c)
	}
	if err := ctx.Err(); err != nil {
		return nil, Result{}, err
	}
	u, err := s.acquire(ctx)
	return u, Result{}, err
}

// executeBatch runs the batch on a unit, which it claims the key for unless the
// unit has it already, and ends the unit.
func (s *Store) executeBatch(ctx context.Context, c *call, u *unit, b *Batch) (Result, error) {
	var a answer
	since := time.Now()
	err := s.sendUnit(ctx, c, u, b, &a)
	c.seen.Commit += time.Since(since)
	if isClaimLost(u, err) {
		return s.lookAfter(ctx, c, u, b)
	}
	defer u.release(ctx)
	if err == nil {
		c.clock = clockReading{sent: since, database: a.finishedAt.Time}
		return a.result(b.header), nil
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && u.look.verdict == claimed && classify(err) == definite {
		if response, ok := b.rejections[pgErr.ConstraintName]; ok && pgErr.ConstraintName != "" {
			c.cause = err
			return s.reject(ctx, c, u, response)
		}
	}
	return Result{}, respondError(err, s.config.BodyBytesMax)
}

// sendUnit sends what is left of the unit in one pipeline: begin and claim unless
// the unit has them, the statements, the record and COMMIT.
//
// Without a configured isolation level, the pipeline is its own transaction: it
// commits at its end, and undoes itself without a further word when a statement
// fails (PostgreSQL manual, section 55.2.3, Extended Query).
func (s *Store) sendUnit(ctx context.Context, c *call, u *unit, b *Batch, a *answer) error {
	owned, whole := u.look.verdict == claimed, s.config.IsolationLevel == ""
	var batch *pgx.Batch
	switch {
	case owned:
		batch = &pgx.Batch{}
	case whole:
		batch = s.begin.batchWithoutBegin()
	default:
		batch = s.begin.batch()
	}
	if !owned {
		if err := s.at(ctx, failpoint.BeforeClaim, u.conn, nil); err != nil {
			return err
		}
		c.queueClaimOrFail(batch, &u.look)
	}
	if err := b.queue(ctx, u.conn.Conn(), batch); err != nil {
		return err
	}
	if err := b.queueRespond(ctx, u.conn.Conn(), batch, c.id.recordID(), s.config, a); err != nil {
		return err
	}
	if whole && !owned {
		return explain(s.sendWhole(ctx, u, batch))
	}
	return explain(s.sendCommit(ctx, u, batch))
}

// queueClaimOrFail queues claimOrFailSQL. l then says whether it was passed.
func (c *call) queueClaimOrFail(batch *pgx.Batch, l *look) {
	r := c.request
	batch.Queue(claimOrFailSQL,
		pgtype.UUID{Bytes: c.id.recordID(), Valid: true}, c.payloadLock, c.id.keyLock(),
		r.Scope, r.Key, r.Operation, r.Fingerprint[:], r.TTL.Microseconds(),
	).Exec(func(pgconn.CommandTag) error {
		l.verdict = claimed
		return nil
	})
}

// isClaimLost reports whether err is that of claimOrFailSQL for a key that is
// not free.
func isClaimLost(u *unit, err error) bool {
	var pgErr *pgconn.PgError
	if u.look.verdict == claimed || !errors.As(err, &pgErr) {
		return false
	}
	_, refused := reason(pgErr, "22P02")
	return refused || pgErr.Code == "23505" && pgErr.ConstraintName == "records_pkey"
}

// lookAfter finds out why the claim failed, executes the batch if the key can be
// had after all, and ends the unit.
func (s *Store) lookAfter(ctx context.Context, c *call, u *unit, b *Batch) (Result, error) {
	c.claimLost = true
	c.seen.Attempts--
	result, err := Result{}, u.rollback(ctx)
	if err == nil {
		result, err = s.lookAtKey(ctx, c, u)
	}
	if err == nil && u.look.verdict == claimed {
		c.seen.Attempts++
		c.claimedAt = u.look.row.createdAt
		return s.executeBatch(ctx, c, u, b)
	}
	err = u.lost(err)
	u.releaseLater()
	switch {
	case errors.Is(err, ErrInFlight) && s.config.ClaimWait > 0,
		errors.Is(err, errLookAgain), errors.Is(err, errReusedInFlight), err != nil && classify(err) == retry:
		return Result{}, errClaimLost
	}
	return result, err
}

// respondError names the errors that respondSQL raises, and those of the
// schema's CHECKs that a response can break.
func respondError(err error, bodyBytesMax int) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err
	}
	if pgErr.ConstraintName == "records_status" {
		return &InvalidResponseError{Field: "Status", Reason: "that the batch returned is not 200 to 599"}
	}
	why, found := reason(pgErr, claimGone)
	if !found {
		return err
	}
	what, count, _ := strings.Cut(why, ": ")
	n, _ := strconv.Atoi(count)
	switch what {
	case "rows":
		return &InvalidResponseError{Field: "Status", Reason: fmt.Sprintf("is not there: the statement of Batch.Respond returned %d rows, want 1", n)}
	case "body":
		return &ResponseTooLargeError{Field: "Body", Bytes: n, BytesMax: bodyBytesMax}
	}
	return finishError(err)
}

// reason returns what a statement of this package wrote behind "idem." into the
// text that a cast refused with the given SQLSTATE.
func reason(err *pgconn.PgError, code string) (string, bool) {
	_, why, found := strings.Cut(err.Message, `"idem.`)
	return strings.TrimSuffix(why, `"`), found && err.Code == code
}
