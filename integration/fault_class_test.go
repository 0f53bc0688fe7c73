package integration

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

// isClassified reports whether the documentation says what err means: that a
// retry is in order, that this call wrote nothing, or that the caller's own
// context ended it.
func isClassified(err error) bool {
	if err == nil || idem.Retryable(err) {
		return true
	}
	var invalidRequest *idem.InvalidRequestError
	var invalidResponse *idem.InvalidResponseError
	var tooLarge *idem.ResponseTooLargeError
	var invalidBatch *idem.InvalidBatchError
	if errors.As(err, &invalidBatch) || errors.As(err, &invalidRequest) || errors.As(err, &invalidResponse) || errors.As(err, &tooLarge) {
		return true
	}
	for _, documented := range []error{
		idem.ErrKeyReused, idem.ErrReentrant, idem.ErrSchema, idem.ErrTxEnded, idem.ErrNotFound,
		pgx.ErrTxCommitRollback, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, documented) {
			return true
		}
	}
	return false
}

// isUnknown reports whether err leaves open what is durable.
func isUnknown(err error) bool {
	var unknown *idem.OutcomeUnknownError
	return errors.As(err, &unknown)
}
