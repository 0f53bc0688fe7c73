package idem

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// lockTimeoutGrace is how late the server may say that a wait is over.
const lockTimeoutGrace = 5 * time.Second

// payload is one request as duplicates share it.
type payload struct {
	id          identity
	operation   string
	fingerprint Fingerprint
}

func (c *call) payload() payload {
	return payload{c.id, c.request.Operation, c.request.Fingerprint}
}

// flight is one wait for a request in flight. The first duplicate in this
// process leads it and waits in the database; the others wait for the leader.
type flight struct {
	payload payload
	landed  chan struct{} // closed when the leader's call has ended
	result  Result        // valid after landed, if ok
	ok      bool
}

// flights are the waits of one Store. An entry lives as long as its leader's call.
type flights struct {
	mu   sync.Mutex
	open map[payload]*flight
}

// join returns the flight of p and whether the caller leads it.
func (f *flights) join(p payload) (joined *flight, leads bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if joined = f.open[p]; joined != nil {
		return joined, false
	}
	if f.open == nil {
		f.open = make(map[payload]*flight)
	}
	joined = &flight{payload: p, landed: make(chan struct{})}
	f.open[p] = joined
	return joined, true
}

// find returns the flight of p, or nil.
func (f *flights) find(p payload) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open[p]
}

// land ends a flight with the leader's answer.
func (f *flights) land(led *flight, result Result, ok bool) {
	f.mu.Lock()
	delete(f.open, led.payload)
	f.mu.Unlock()
	if ok {
		led.result, led.ok = result.clone(), true
		led.result.Replayed = true
	}
	close(led.landed)
}

// obtain claims the key, waits for a request in flight as long as the policy
// says, and settles an unanswered COMMIT first.
func (s *Store) obtain(ctx context.Context, c *call) (*unit, Result, error) {
	if c.unsettled != nil {
		return s.settle(ctx, c)
	}
	if s.config.ClaimWait == 0 {
		return s.claim(ctx, c)
	}
	waitCtx, cancel := context.WithDeadlineCause(ctx, c.start.Add(s.config.ClaimWait), ErrInFlight)
	defer cancel()
	p := c.payload()
	for {
		if f := s.flights.find(p); f != nil && f != c.flight {
			result, landed, err := f.follow(waitCtx)
			if landed || err != nil {
				return nil, result, err
			}
			continue
		}
		u, result, err := s.claim(ctx, c)
		if !errors.Is(err, ErrInFlight) {
			return u, result, err
		}
		if c.flight == nil {
			f, leads := s.flights.join(p)
			if !leads {
				continue
			}
			c.flight = f
		}
		if err := s.awaitHolder(ctx, waitCtx, c); err != nil {
			return nil, Result{}, err
		}
	}
}

// follow waits for the leader's answer. It reports neither an answer nor an
// error when the leader's call failed: then someone else must lead.
func (f *flight) follow(ctx context.Context) (result Result, landed bool, err error) {
	select {
	case <-f.landed:
		return f.result.clone(), f.ok, nil
	case <-ctx.Done():
		return Result{}, false, context.Cause(ctx)
	}
}

// awaitHolder waits in the database until the request in flight has ended, or
// something cut the wait short: look again. It returns ErrInFlight when the
// policy's time, which ends waitCtx, is over, and the cause when the caller's
// context ends first.
func (s *Store) awaitHolder(ctx, waitCtx context.Context, c *call) error {
	deadline, _ := waitCtx.Deadline()
	left := time.Until(deadline)
	if left < time.Millisecond {
		return ErrInFlight
	}
	u, err := s.acquire(waitCtx)
	if err == nil {
		defer u.release(ctx)
		// The server ends the wait. A context that ends at the same moment would close the connection.
		execCtx, cancel := context.WithTimeout(ctx, left+lockTimeoutGrace)
		defer cancel()
		_, err = u.conn.Exec(execCtx, awaitSQL, left.Milliseconds(), c.payloadLock)
		err = u.lost(err)
	}
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pgErr) && pgErr.Code == "55P03": // lock_not_available: lock_timeout
		return ErrInFlight
	case waitCtx.Err() != nil:
		return context.Cause(waitCtx)
	case pgErr != nil && pgErr.Code == "57014": // query_canceled: a statement_timeout of the role, an operator
		return nil
	}
	return err
}
