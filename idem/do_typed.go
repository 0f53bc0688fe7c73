package idem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
)

// Do is [Store.Do] for a mutation that returns a value instead of a Response.
// The value is recorded as JSON (encoding/json) with status 200, and a replay
// decodes it: value must survive that. Every caller, the first included, gets
// what was decoded from the recorded bytes, so first answer and replay cannot
// differ.
//
// A mutation that ends with [Reject], now or when it was recorded, makes Do
// return [*RejectedError] and the Result. Other errors are those of Store.Do,
// and an error that names T when its value cannot be encoded (the mutation is
// aborted) or a record cannot be decoded (it was written for another type).
func Do[T any](
	ctx context.Context, s *Store, request Request,
	mutation func(ctx context.Context, tx pgx.Tx) (T, error),
) (value T, result Result, err error) {
	var rejected *rejection
	result, err = s.Do(ctx, request, func(ctx context.Context, tx pgx.Tx) (Response, error) {
		made, err := mutation(ctx, tx)
		if err != nil {
			errors.As(err, &rejected)
			return Response{}, err
		}
		body, err := json.Marshal(made)
		if err != nil {
			return Response{}, fmt.Errorf("idem: encode %T as JSON: %w", made, err)
		}
		return Response{
			Status: http.StatusOK,
			Header: http.Header{"Content-Type": {"application/json"}},
			Body:   body,
		}, nil
	})
	switch {
	case err != nil:
		return value, result, err
	case result.State == StateRejected && rejected != nil && !result.Replayed:
		return value, result, &RejectedError{Response: result.Response, Cause: rejected.cause}
	case result.State == StateRejected:
		return value, result, &RejectedError{Response: result.Response}
	}
	if err := json.Unmarshal(result.Body, &value); err != nil {
		return value, result, fmt.Errorf("idem: decode the record as %T: %w", value, err)
	}
	return value, result, nil
}
