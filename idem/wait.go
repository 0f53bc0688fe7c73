package idem

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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

// flight is what calls with one payload share in this process. The first of them
// leads: it claims the key, and waits in the database if another process has it.
// The others wait for the leader's answer, if they wait at all.
type flight struct {
	payload   payload
	owned     atomic.Bool   // the leader holds the key
	held      atomic.Bool   // someone elsewhere holds it for the same request, and the leader waits
	landed    chan struct{} // closed when the leader's call has ended
	followers int           // how many joined it; guarded by flights.mu
	result    Result        // valid after landed, as is what follows
	ok        bool          // the result answers the followers, too
	reused    bool          // ErrKeyReused does
}

// flights are the calls of one Store that run now. An entry lives as long as its
// leader's call.
type flights struct {
	mu   sync.Mutex
	open map[payload]*flight
}

// join returns the flight of p and whether the caller leads it.
func (f *flights) join(p payload) (joined *flight, leads bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if joined = f.open[p]; joined != nil {
		joined.followers++
		return joined, false
	}
	if f.open == nil {
		f.open = make(map[payload]*flight)
	}
	joined = &flight{payload: p, landed: make(chan struct{})}
	f.open[p] = joined
	return joined, true
}

// land ends a flight with the leader's answer. Errors but ErrKeyReused are the
// leader's own.
func (f *flights) land(led *flight, result Result, err error) {
	f.mu.Lock()
	delete(f.open, led.payload)
	followers := led.followers
	f.mu.Unlock()
	led.reused = errors.Is(err, ErrKeyReused)
	if err == nil && followers > 0 {
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
	waitCtx, waits := ctx, s.config.ClaimWait > 0
	if waits {
		var cancel context.CancelFunc
		waitCtx, cancel = context.WithDeadlineCause(ctx, c.start.Add(s.config.ClaimWait), ErrInFlight)
		defer cancel()
	}
	for {
		if f := s.lead(c); f != c.flight && waits {
			result, landed, err := f.follow(waitCtx)
			switch {
			case errors.Is(err, ErrInFlight) && !f.owned.Load() && !f.held.Load(): // the leader cannot tell yet
				return s.claim(ctx, c)
			case landed || err != nil:
				return nil, result, err
			}
			continue
		}
		u, result, err := s.claim(ctx, c)
		if u != nil && c.flight != nil {
			c.flight.owned.Store(true)
		}
		if !errors.Is(err, ErrInFlight) || !waits {
			return u, result, err
		}
		c.flight.held.Store(true)
		if err := s.awaitHolder(ctx, waitCtx, c); err != nil {
			return nil, Result{}, err
		}
	}
}

// lead returns the flight of the call's payload: the call's own if it leads.
func (s *Store) lead(c *call) *flight {
	if c.flight != nil {
		return c.flight
	}
	f, leads := s.flights.join(c.payload())
	if leads {
		c.flight = f
	}
	return f
}

// isOwnedHere reports whether another call of this process holds the key for the
// same request.
func (f *flights) isOwnedHere(c *call) bool {
	if c.flight != nil { // nobody else leads
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	led := f.open[c.payload()]
	return led != nil && led.owned.Load()
}

// follow waits for the leader's answer. It reports neither an answer nor an
// error when the leader's call failed: then someone else must lead.
func (f *flight) follow(ctx context.Context) (result Result, landed bool, err error) {
	select {
	case <-f.landed:
		if f.reused {
			return Result{}, false, ErrKeyReused
		}
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
