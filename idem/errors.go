package idem

import (
	"errors"
	"fmt"
)

// Errors that say how a call ended without its mutation. Nothing was written
// by the call that returns one.
var (
	// ErrInFlight says that the same request is running now, here or on another
	// instance. Try again with the same key a little later.
	ErrInFlight = errors.New("idem: a request with this key is in flight")

	// ErrKeyReused says that the key belongs to a request that asks for
	// something else: another operation or another fingerprint. It is final for
	// as long as the record lives. While that request is in flight there is none
	// yet, and when its transaction is undone another request can get the key.
	ErrKeyReused = errors.New("idem: the key was used for a different request")

	// ErrNotFound says that Lookup knows no live record of the key. A mutation
	// may be in flight.
	ErrNotFound = errors.New("idem: no record of this key")

	// ErrTxEnded says that the mutation tried to end the transaction lent to it,
	// or used it after it had returned. The unit is aborted: nothing it wrote
	// stays, and the key is free.
	ErrTxEnded = errors.New("idem: only the library ends the transaction it lends: return a response to commit, an error to abort")

	// ErrReentrant says that a mutation asked for its own key again. It would
	// wait for itself.
	ErrReentrant = errors.New("idem: the mutation of this key is running in this very call: use another key inside it")

	// ErrSchema says that the tables of this library are missing or of another
	// version.
	ErrSchema = errors.New(`idem: schema "idem" is missing or of another version: run migrations.Up(ctx, pool), or the SQL files of package migrations, with a role that may create it`)
)

// InvalidRequestError says which field of a [Request] is out of its limits.
// Nothing was sent to the database.
type InvalidRequestError struct {
	Field  string // name of the field of Request
	Reason string // what is wrong and what is allowed, in words
}

// Error names the field and what is wrong with it.
func (e *InvalidRequestError) Error() string {
	return fmt.Sprintf("idem: Request.%s %s", e.Field, e.Reason)
}

// InvalidBatchError says why a [Batch] cannot be sent. Nothing was sent to the
// database.
type InvalidBatchError struct {
	Reason string // what is wrong and what is allowed, in words
}

// Error tells what is wrong.
func (e *InvalidBatchError) Error() string { return "idem: the batch " + e.Reason }

// InvalidResponseError says which part of a [Response] cannot be stored. The
// mutation was aborted before COMMIT: nothing it wrote stays, and the key is
// free.
type InvalidResponseError struct {
	Field  string // name of the field of Response
	Reason string // what is wrong and what is allowed, in words
}

// Error names the field and what is wrong with it.
func (e *InvalidResponseError) Error() string {
	return fmt.Sprintf("idem: Response.%s %s: the mutation was aborted", e.Field, e.Reason)
}

// ResponseTooLargeError says that a response exceeds what a record may hold. The
// mutation was aborted before COMMIT: nothing it wrote stays, and the key is
// free.
type ResponseTooLargeError struct {
	Field    string // "Body" or "Header"
	Bytes    int    // size found; for a stream, how much was read before giving up
	BytesMax int    // the limit: Config.BodyBytesMax or Config.HeaderBytesMax
}

// Error tells both sizes and the setting to raise.
func (e *ResponseTooLargeError) Error() string {
	return fmt.Sprintf("idem: Response.%s has %d bytes, Config.%sBytesMax is %d: the mutation was aborted",
		e.Field, e.Bytes, e.Field, e.BytesMax)
}

// OutcomeUnknownError says that COMMIT was sent and that nobody could be asked
// how it ended before [Config].SettleTimeout ran out. The effect happened once
// or not at all. Calling again with the same key is safe and finds out.
type OutcomeUnknownError struct {
	Cause error // what the connection that sent COMMIT said
	Last  error // what the last try to learn the outcome said; may be nil
}

// Error tells what is unknown and what to do.
func (e *OutcomeUnknownError) Error() string {
	if e.Last == nil {
		return fmt.Sprintf("idem: the outcome of COMMIT is unknown: call again with the same key: %v", e.Cause)
	}
	return fmt.Sprintf("idem: the outcome of COMMIT is unknown: call again with the same key: %v (last try to learn it: %v)", e.Cause, e.Last)
}

// Unwrap returns both causes.
func (e *OutcomeUnknownError) Unwrap() []error {
	if e.Last == nil {
		return []error{e.Cause}
	}
	return []error{e.Cause, e.Last}
}

// RejectedError is what the typed [Do] returns for a mutation that ended with
// [Reject], now or when it was recorded. The rejection is recorded: the same
// key gets it again.
type RejectedError struct {
	Response Response // what was recorded
	Cause    error    // the cause given to Reject; nil on a replay
}

// Error tells the cause, or the status that was recorded.
func (e *RejectedError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("idem: rejected: %v", e.Cause)
	}
	return fmt.Sprintf("idem: rejected earlier with status %d", e.Response.Status)
}

// Unwrap returns the cause given to Reject.
func (e *RejectedError) Unwrap() error { return e.Cause }
