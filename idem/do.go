package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idempg/idempg/internal/failpoint"
)

// Mutation changes the database on the transaction lent to it and makes the
// answer. How it ends decides what stays:
//
//   - a Response and nil: its writes and the record of the answer are committed
//     together;
//   - an error made by [Reject]: its writes are undone, the answer is recorded;
//   - any other error, a panic, or runtime.Goexit: its writes are undone, nothing
//     is recorded, and the next request with the key runs again.
//
// It may run again in the same call, in a new transaction, when its error is a
// serialization failure or a deadlock (an error chain with SQLSTATE 40001 or
// 40P01), when COMMIT is one, or when a COMMIT without an answer turned out not
// to have happened; see [Config].AttemptsMax. So it must not keep anything
// outside tx from one run for the next. Effects outside the database need a job
// row written on tx, and [DerivedKey].
//
// tx works like any pgx.Tx, except that the library ends it: Commit returns
// [ErrTxEnded] and aborts the unit, Rollback has the library roll back, after
// which only an error or Reject is accepted. Begin makes savepoints as usual. tx
// must not be used after the mutation has returned. ctx is the caller's, for tx
// and for DerivedKey.
type Mutation func(ctx context.Context, tx pgx.Tx) (Response, error)

// Do makes mutation happen exactly once for the request's scope and key. The
// claim of the key, what mutation writes, and the record of its answer commit
// in one transaction, which begins with the claim in one round trip and ends
// with the record in another.
//
// It returns nil and the Result when the mutation was committed or rejected, by
// this call or, with Replayed set, by an earlier one. Otherwise, in the order
// of the request's life: [InvalidRequestError], [ErrReentrant], [ErrSchema],
// [ErrInFlight], [ErrKeyReused]; whatever error the mutation returned, wrapped
// or not; [ErrTxEnded], [InvalidResponseError], [ResponseTooLargeError] and
// pgx.ErrTxCommitRollback for a mutation that cannot be committed; errors of
// pgx; and [OutcomeUnknownError]. After every error but the last nothing that
// this call wrote stays. [Retryable] tells which are worth another try.
//
// COMMIT does not end with ctx; everything before it does.
func (s *Store) Do(ctx context.Context, request Request, mutation Mutation) (Result, error) {
	c, err := s.newCall(ctx, request)
	return s.observed(ctx, c, func() (Result, error) {
		if err != nil {
			return Result{}, err
		}
		return s.remembered(ctx, c, func() (Result, error) {
			return s.run(ctx, c, s.obtain, s.executing(mutation))
		})
	})
}

// DoWithoutKey runs mutation in a transaction of its own with the same endings
// and guards as [Store.Do], but with no key and no record: every call runs it.
// An unanswered COMMIT cannot be settled and is [OutcomeUnknownError] at once.
// Of request only AttemptsMax and Operation, which is for the Observer, are
// used. A request with a Key is refused.
func (s *Store) DoWithoutKey(ctx context.Context, request Request, mutation Mutation) (Result, error) {
	c, err := s.newKeylessCall(ctx, request)
	return s.observed(ctx, c, func() (Result, error) {
		if err != nil {
			return Result{}, err
		}
		return s.run(ctx, c, s.obtainWithoutKey, s.executing(mutation))
	})
}

// observed runs one call to its end, whichever way it ends.
func (s *Store) observed(ctx context.Context, c *call, run func() (Result, error)) (result Result, err error) {
	err = errPanicked
	defer func() { s.finish(ctx, c, result, err) }()
	result, err = run()
	return result, err
}

// run obtains the key and executes the mutation, as often as it takes.
func (s *Store) run(
	ctx context.Context, c *call,
	obtain func(context.Context, *call) (*unit, Result, error),
	execute func(context.Context, *call, *unit) (Result, error),
) (Result, error) {
	c.pooled = true // before any run: a goroutine that a run leaves behind may read it
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		since := time.Now()
		u, result, err := obtain(ctx, c)
		c.addClaimTime(time.Since(since))
		if u == nil {
			return result, err
		}
		if c.seen.Attempts == c.request.AttemptsMax { // COMMIT was settled as not happened
			u.release(ctx)
			return Result{}, fmt.Errorf("%w: %w", errNotCommitted, c.unsettled)
		}
		c.seen.Attempts++
		c.claimedAt, c.unsettled = u.look.row.createdAt, nil

		result, err = execute(ctx, c, u)
		var unsettled *unsettledError
		switch {
		case errors.Is(err, errClaimLost): // nothing ran
		case errors.As(err, &unsettled):
			c.unsettled, c.seen.Unsettled = unsettled.cause, true
		case err != nil && classify(err) == retry && c.seen.Attempts < c.request.AttemptsMax && sleep(ctx, pause):
			c.claimedAt = pgtype.Timestamptz{} // nothing stays of that claim: the next one counts its own time
		default:
			return result, err
		}
	}
}

// addClaimTime counts the time before the first attempt as the claim's, and
// what comes after an unanswered COMMIT as part of that.
func (c *call) addClaimTime(d time.Duration) {
	if c.unsettled != nil {
		c.seen.Commit += d
	} else {
		c.seen.Claim += d
	}
}

// executing is execute with the mutation filled in.
func (s *Store) executing(mutation Mutation) func(context.Context, *call, *unit) (Result, error) {
	return func(ctx context.Context, c *call, u *unit) (Result, error) { return s.execute(ctx, c, u, mutation) }
}

// execute runs the mutation once on a unit that owns the key, and ends the unit.
func (s *Store) execute(ctx context.Context, c *call, u *unit, mutation Mutation) (Result, error) {
	defer u.release(ctx) // undoes what is not committed: also when a panic or Goexit passes

	if err := s.at(ctx, failpoint.AfterClaim, u.conn, nil); err != nil {
		return Result{}, err
	}
	response, err := c.invoke(ctx, u.conn.Conn(), u.tx, mutation)
	since := time.Now()
	defer func() { c.seen.Commit += time.Since(since) }()

	if failed := s.at(ctx, failpoint.AfterMutation, u.conn, err); failed != nil {
		return Result{}, failed
	}
	var rejected *rejection
	switch {
	case errors.As(err, &rejected):
		c.cause = rejected.cause
		return s.reject(ctx, c, u, rejected.response)
	case err != nil:
		return Result{}, err
	}
	return s.complete(ctx, c, u, StateCompleted, response)
}

// complete commits the unit with the record of response.
func (s *Store) complete(ctx context.Context, c *call, u *unit, state State, response Response) (Result, error) {
	f, err := s.newFinish(c, state, &response)
	if err != nil {
		return Result{}, err
	}
	if err := s.commit(ctx, u, f); err != nil {
		return Result{}, c.commitError(err)
	}
	return f.result(response, u.look.row.expiresAt.Time), nil
}

// newFinish checks that response can be stored, and encodes it. For a call
// without a key there is nothing to finish, and it returns nil.
func (s *Store) newFinish(c *call, state State, response *Response) (*finish, error) {
	outcome, err := newOutcome(state, response, s.config.BodyBytesMax, s.config.HeaderBytesMax)
	if err != nil || c.request.Key == "" {
		return nil, err
	}
	return &finish{id: c.id.recordID(), outcome: outcome}, nil
}

// commitError makes the error of a commit that will not be settled.
func (c *call) commitError(err error) error {
	var unsettled *unsettledError
	if c.request.Key == "" && errors.As(err, &unsettled) {
		return &OutcomeUnknownError{Cause: unsettled.cause}
	}
	return err
}

// reject undoes what the mutation wrote and records response in a new
// transaction: claim, record and COMMIT in one round trip. A rival may get the
// key in between; then its answer counts, as for any duplicate.
func (s *Store) reject(ctx context.Context, c *call, u *unit, response Response) (Result, error) {
	f, err := s.newFinish(c, StateRejected, &response)
	if err != nil {
		return Result{}, err
	}
	if err := u.rollback(ctx); err != nil {
		return Result{}, err
	}
	if f == nil {
		return Result{Response: response, State: StateRejected}, nil
	}

	batch := s.begin.batch()
	u.look = look{}
	c.queueClaim(batch, &u.look)
	f.queue(batch)
	err = s.sendCommit(ctx, u, batch)
	var unsettled *unsettledError
	switch {
	case err == nil:
		return f.result(response, u.look.row.expiresAt.Time), nil
	case errors.As(err, &unsettled), u.look.verdict == claimed, u.look.verdict == "":
		return Result{}, err
	}

	// Someone else's row is in the way, live or expired: the ordinary claim decides.
	u.release(ctx)
	u, result, err := s.obtain(ctx, c)
	if u == nil {
		return result, err
	}
	defer u.release(ctx)
	return s.complete(ctx, c, u, StateRejected, response)
}

func (f *finish) result(response Response, expiresAt time.Time) Result {
	if f == nil {
		return Result{Response: response, State: StateCompleted}
	}
	return Result{Response: response, State: f.outcome.state, RecordedAt: f.finishedAt, ExpiresAt: expiresAt}
}

// obtainWithoutKey begins the transaction of a call without a key.
func (s *Store) obtainWithoutKey(ctx context.Context, _ *call) (*unit, Result, error) {
	u, err := s.acquire(ctx)
	if err != nil {
		return nil, Result{}, err
	}
	if err := u.send(ctx, s.begin.batch()).Close(); err != nil {
		err = u.lost(err)
		u.release(ctx)
		return nil, Result{}, err
	}
	return u, Result{}, nil
}

// invoke lends tx to the mutation, takes it back, and refuses a success that
// the transaction cannot deliver.
func (c *call) invoke(ctx context.Context, conn *pgx.Conn, tx pgx.Tx, mutation Mutation) (Response, error) {
	lent := lend(tx)
	since := time.Now()
	defer func() {
		lent.loan.takeBack()
		c.seen.Mutation += time.Since(since)
	}()
	response, err := mutation(withCall(ctx, c), lent)
	lent.loan.takeBack()

	var rejected *rejection
	switch {
	case lent.loan.committed && errors.As(err, &rejected): // the unit is doomed: this is no rejection any more
		return Response{}, errors.Join(ErrTxEnded, rejected.cause)
	case lent.loan.committed:
		return Response{}, errors.Join(ErrTxEnded, err)
	case err != nil && !errors.As(err, &rejected) && conn.IsClosed():
		return Response{}, fmt.Errorf("%w: %w", errConnectionLost, err)
	case err != nil:
		return Response{}, err
	case conn.IsClosed():
		return Response{}, errConnectionLost
	case lent.loan.rolledBack:
		return Response{}, ErrTxEnded
	}
	return response, checkTx(conn)
}

// checkTx reports what makes COMMIT on conn pointless.
func checkTx(conn *pgx.Conn) error {
	switch status := conn.PgConn().TxStatus(); {
	case conn.PgConn().IsBusy():
		return errors.New("idem: the mutation left rows or batch results open: close them before returning")
	case status == 'I':
		return ErrTxEnded
	case status == 'E':
		return fmt.Errorf("idem: a statement failed and the mutation went on as if it had not: %w", pgx.ErrTxCommitRollback)
	}
	return nil
}
