// Package failpoint is how the tests of this module make a call of idem.Store
// fail on purpose between two of its steps. It is switched on per Store, by
// package idemtest alone; switched off, a step costs one nil check.
package failpoint

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Step is a moment between two actions of a call.
type Step string

// The steps of a call, in the order of its life.
const (
	// BeforeClaim: a connection was acquired, nothing was sent.
	BeforeClaim Step = "before the claim"

	// AfterClaim: the transaction holds the key, the mutation has not begun.
	AfterClaim Step = "between the claim and the mutation"

	// AfterMutation: the mutation has ended, and with it the loan of the
	// transaction. [Event].Err says how.
	AfterMutation Step = "after the mutation"

	// BeforeCommit: the record and COMMIT are about to be sent. For a rejection
	// that is the moment between the rollback and the new claim, in which the key
	// is free.
	BeforeCommit Step = "before COMMIT is sent"

	// AfterCommit: COMMIT was acknowledged and the library has not seen it. An
	// error of the hook is taken for the loss of the acknowledgement.
	AfterCommit Step = "between COMMIT and the answer"

	// BeforeSettle: COMMIT got no answer. The event has no connection.
	BeforeSettle Step = "before settling"
)

// Event is a call at a step.
type Event struct {
	Step Step
	Conn *pgx.Conn // the call's own connection, not in use at this moment
	Err  error
}

// Hook runs at every step of every call, in the goroutine of the call and with
// its context. An error ends the step as the loss of the connection would.
type Hook func(ctx context.Context, event Event) error

// Store is what package idem opens up of one of its Stores.
type Store struct {
	Pool    *pgxpool.Pool
	SetHook func(Hook) // nil switches off
	Waits   func() int // calls that others in the process may wait for
}

// Open opens up an *idem.Store. Package idem sets it.
var Open func(store any) Store
