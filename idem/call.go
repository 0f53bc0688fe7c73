package idem

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// call is one call of the Store, from its arguments to what it tells the
// Observer.
type call struct {
	request     Request
	id          identity
	payloadLock int64
	pool        *pgxpool.Pool
	outer       *call       // the call whose mutation makes this one
	pooled      bool        // its mutation holds a connection of the pool
	ended       atomic.Bool // its mutation's context may live on

	start     time.Time
	claimedAt pgtype.Timestamptz // of the first claim, unless nothing stayed of it; all later claims carry it
	unsettled error              // the COMMIT of the latest attempt, if it was not answered
	claimLost bool               // a Batch found the key taken: look before the next attempt
	flight    *flight            // that the call leads, if it does
	cause     error              // given to Reject
	seen      Call

	replayedClaim pgtype.Timestamptz // of the record that answers
	clock         clockReading       // of the latest claim
}

// newCall checks request and fills in the defaults.
func (s *Store) newCall(ctx context.Context, request Request) (*call, error) {
	c := &call{start: time.Now(), pool: s.pool, outer: callFrom(ctx)}
	c.seen.Operation = request.Operation
	if err := request.validate(); err != nil {
		return c, err
	}
	setDefault(&request.TTL, s.config.TTL)
	setDefault(&request.AttemptsMax, s.config.AttemptsMax)
	c.request = request
	c.id = newIdentity(request.Scope, request.Key)
	c.payloadLock = c.id.payloadLock(request.Operation, request.Fingerprint)
	for outer := c.outer; outer != nil; outer = outer.outer {
		if outer.id == c.id && outer.pool == c.pool && !outer.ended.Load() {
			return c, ErrReentrant
		}
	}
	return c, nil
}

// newKeylessCall is for a mutation without a key. Its identity is random: it
// only serves DerivedKey.
func (s *Store) newKeylessCall(ctx context.Context, request Request) (*call, error) {
	c := &call{start: time.Now(), pool: s.pool, outer: callFrom(ctx)}
	c.seen.Operation = request.Operation
	if request.Key != "" {
		return c, &InvalidRequestError{Field: "Key", Reason: "is set: use Do"}
	}
	if err := request.validateAttemptsMax(); err != nil {
		return c, err
	}
	setDefault(&request.AttemptsMax, s.config.AttemptsMax)
	c.request.AttemptsMax = request.AttemptsMax
	_, _ = rand.Read(c.id[:]) // never fails, says crypto/rand
	return c, nil
}

type callKey struct{}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// connections is how many connections of pool this mutation and those around
// it hold.
func (c *call) connections(pool *pgxpool.Pool) (held int32) {
	for ; c != nil; c = c.outer {
		if c.pooled && c.pool == pool && !c.ended.Load() {
			held++
		}
	}
	return held
}

// DerivedKey makes an idempotency key for a call that the mutation has to make
// outside the database, such as the charge at a payment provider: the same
// scope, key and step give the same derived key in every attempt and every
// retry. ctx is the one given to the mutation. step names the call within the
// mutation; two calls need two steps.
//
// The key is a UUID of version 8 (RFC 9562, section 5.8) with 122 bits of
// SHA-256. In a call without a key it is unique to the call. DerivedKey panics
// when ctx does not come from a mutation, for any key it could return then
// would be one that protects nothing.
func DerivedKey(ctx context.Context, step string) string {
	c := callFrom(ctx)
	if c == nil {
		panic("idem: DerivedKey needs the context that was given to the mutation")
	}
	u := digest("idempg.derived", string(c.id[:]), step)
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// errPanicked is what the Observer sees of a mutation that did not return.
var errPanicked = errors.New("idem: the mutation panicked or ended its goroutine")

// finish publishes how the call ended: to the duplicates that wait for it and
// to the Observer.
func (s *Store) finish(ctx context.Context, c *call, result Result, err error) {
	c.ended.Store(true)
	if c.flight != nil {
		s.flights.land(c.flight, result, err)
	}
	c.seen.Total = time.Since(c.start)
	c.seen.Outcome = c.outcome(result, err)
	c.seen.Err = err
	if c.seen.Outcome == OutcomeRejected {
		c.seen.Err = c.cause
	}
	if s.config.Observer == nil {
		return
	}
	if c.request.Key != "" {
		id := c.id.recordID()
		c.seen.RecordID = hex.EncodeToString(id[:])
	}
	s.config.Observer.ObserveCall(ctx, c.seen)
}

func (c *call) outcome(result Result, err error) Outcome {
	switch {
	case err != nil:
		return c.failure(err)
	case result.Replayed:
		return OutcomeReplayed
	case result.State == StateRejected:
		return OutcomeRejected
	}
	return OutcomeCompleted
}

func (c *call) failure(err error) Outcome {
	var invalid *InvalidRequestError
	var outcomeUnknown *OutcomeUnknownError
	switch {
	case errors.As(err, &outcomeUnknown):
		return OutcomeUnknown
	case c.seen.Attempts > 0:
		return OutcomeAborted
	case errors.Is(err, ErrInFlight):
		return OutcomeInFlight
	case errors.Is(err, ErrKeyReused):
		return OutcomeKeyReused
	case errors.Is(err, ErrReentrant), errors.As(err, &invalid):
		return OutcomeInvalid
	}
	return OutcomeFailed
}
