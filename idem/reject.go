package idem

import "fmt"

// Reject makes the error with which a [Mutation] says: undo what I wrote, but
// keep this answer. The call returns response with [StateRejected] and no
// error; the same key gets the same answer until it expires. cause is for the
// operator: it reaches [Observer] and is not stored. It may be nil.
//
// The mutation may wrap the error, as long as errors.As finds it.
func Reject(response Response, cause error) error {
	return &rejection{response: response, cause: cause}
}

// rejection is an ending of a mutation, as a value of its own type.
type rejection struct {
	response Response
	cause    error
}

func (r *rejection) Error() string {
	if r.cause == nil {
		return fmt.Sprintf("idem: rejected with status %d", r.response.Status)
	}
	return fmt.Sprintf("idem: rejected with status %d: %v", r.response.Status, r.cause)
}

func (r *rejection) Unwrap() error { return r.cause }
