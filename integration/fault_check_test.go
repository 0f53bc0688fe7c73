package integration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idempg/idempg/idem"
)

// check compares what the call returned with what is durable, seen through
// connections that the faults do not touch. It reports whether the key was held
// by half a pipeline, and what is wrong.
func (c *faultCell) check(ctx context.Context, result idem.Result, err error) (held bool, violation error) {
	if !isClassified(err) {
		return false, errors.New("the error is in no class")
	}
	if c.unit.keyless {
		return false, c.checkKeyless(ctx, err)
	}
	again, held, retryErr := c.retry(ctx)
	if retryErr != nil {
		return held, fmt.Errorf("the retry got: %w", retryErr)
	}
	effects, countErr := c.countEffects(ctx)
	switch {
	case countErr != nil:
		return held, countErr
	case effects != c.unit.effects:
		return held, fmt.Errorf("%d effects after the retry, want %d", effects, c.unit.effects)
	case again.State != c.unit.state || string(again.Body) != c.unit.body(c.key):
		return held, fmt.Errorf("the retry got %+v", again)
	case err == nil && (!again.Replayed || result.State != again.State || string(result.Body) != string(again.Body)):
		return held, fmt.Errorf("the answer is not durable: the retry got %+v", again)
	case c.unit.recorded && !again.Replayed:
		return held, errors.New("the record is gone")
	case c.unit.recorded, isUnknown(err):
	case errors.Is(err, idem.ErrInFlight):
		return held, errors.New("nobody else used the key")
	case err != nil && again.Replayed:
		return held, errors.New("the error says that nothing stays, and it did")
	}
	return held, nil
}

// retry calls again with the key, as long as it is in flight. Half a pipeline
// holds a key until the server learns that its client is gone: no timeout of
// PostgreSQL 15 runs while it waits for the rest. Then the network must tell it.
func (c *faultCell) retry(ctx context.Context) (result idem.Result, held bool, err error) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		result, err = c.bench.store.Do(ctx, request(c.key), c.unit.mutation(c.key))
		if !errors.Is(err, idem.ErrInFlight) {
			return result, held, err
		}
		halfSent, overdue, lookErr := c.backends(ctx)
		switch {
		case lookErr != nil:
			return result, held, lookErr
		case overdue, time.Now().After(deadline):
			return result, held, fmt.Errorf("blocked for too long: %w", err)
		case halfSent && c.deaf:
			c.wire.Break()
			held = true
		}
	}
}

// backends says whether a backend of the call waits inside a pipeline, and
// whether one has been idle in a transaction for a second longer than allowed.
func (c *faultCell) backends(ctx context.Context) (halfSent, overdue bool, err error) {
	err = c.watch.QueryRow(ctx, `select
			coalesce(bool_or(state = 'active' and wait_event = 'ClientRead'), false),
			coalesce(bool_or(state like 'idle in transaction%' and clock_timestamp() - state_change > $2::bigint * interval '1 ms'), false)
		from pg_stat_activity where application_name = $1`,
		c.app, (c.store.Config().IdleInTransactionTimeout+time.Second).Milliseconds()).Scan(&halfSent, &overdue)
	return halfSent, overdue, err
}

func (c *faultCell) countEffects(ctx context.Context) (n int, err error) {
	err = c.watch.QueryRow(ctx, "select count(*) from effects where name = $1", c.key).Scan(&n)
	return n, err
}

// checkKeyless looks when no backend of the call is left that could still commit.
func (c *faultCell) checkKeyless(ctx context.Context, err error) error {
	c.wire.Break()
	gone := eventually(settleWait, func() error {
		var n int
		countErr := c.watch.QueryRow(ctx, "select count(*) from pg_stat_activity where application_name = $1 and xact_start is not null", c.app).Scan(&n)
		if countErr == nil && n > 0 {
			countErr = fmt.Errorf("%d backends are still in a transaction", n)
		}
		return countErr
	})
	if gone != nil {
		return gone
	}
	effects, countErr := c.countEffects(ctx)
	switch {
	case countErr != nil:
		return countErr
	case err == nil && effects != 1, isUnknown(err) && effects > 1, err != nil && !isUnknown(err) && effects != 0:
		return fmt.Errorf("%d effects", effects)
	}
	return nil
}
