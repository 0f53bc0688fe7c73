package idem

import (
	"context"
	"time"
)

// Outcome says how one call ended.
type Outcome string

// The outcomes of a call.
const (
	OutcomeCompleted Outcome = "completed" // the mutation ran and was committed with its record
	OutcomeRejected  Outcome = "rejected"  // the mutation ran and its refusal was recorded
	OutcomeReplayed  Outcome = "replayed"  // the record of an earlier call answered
	OutcomeInFlight  Outcome = "in_flight" // ErrInFlight
	OutcomeKeyReused Outcome = "key_reused"
	OutcomeInvalid   Outcome = "invalid" // InvalidRequestError or ErrReentrant
	OutcomeAborted   Outcome = "aborted" // the mutation ran, nothing stays, the key is free
	OutcomeFailed    Outcome = "failed"  // the mutation never ran: database away, pool exhausted, caller gone
	OutcomeUnknown   Outcome = "unknown" // OutcomeUnknownError
)

// Call describes a finished call to an [Observer].
type Call struct {
	Operation string
	RecordID  string // the id of the key's row in idem.records, as 32 hex digits; "" without a valid key
	Outcome   Outcome
	Cached    bool          // Config.ReplayCache decided, not the database: OutcomeReplayed or OutcomeKeyReused
	Attempts  int           // how often the mutation ran: 0 for a replay, more than 1 after re-runs
	Unsettled bool          // a COMMIT was not answered, so the database was asked how it ended
	Claim     time.Duration // from the call to the decision of the claim, waiting included
	Mutation  time.Duration // in the mutation, all attempts
	Commit    time.Duration // finishing the record, COMMIT, and settling when it was needed
	Total     time.Duration
	Err       error // the error of the call, or the cause given to Reject; nil otherwise
}

// Observer is told how each call ended, after it has: the place for metrics
// and logs. It must be safe for concurrent use and must not block. Keys and
// scopes are left out on purpose: they are secrets to a log, in which
// Call.RecordID, a digest of both, can name them. ctx is the caller's and may be
// done already.
type Observer interface {
	ObserveCall(ctx context.Context, call Call)
}
