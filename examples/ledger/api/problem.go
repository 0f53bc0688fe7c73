package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

const (
	problemTypes = "https://github.com/idempg/idempg/blob/main/examples/ledger/README.md#"
	mimeProblem  = "application/problem+json"

	retryAfterSeconds = "1"
)

// Problem is an error as it is answered (RFC 9457).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Field  string `json:"field,omitempty"` // for invalid-request: what is wrong
}

// refusals name the errors that a client can do something about.
var refusals = []struct {
	err    error
	name   string
	status int
}{
	{errUnauthorized, "unauthorized", http.StatusUnauthorized},
	{book.ErrAccountNotFound, "account-not-found", http.StatusNotFound},
	{book.ErrTransferNotFound, "transfer-not-found", http.StatusNotFound},
	{book.ErrAccountExists, "account-exists", http.StatusConflict},
	{book.ErrVersionNotFound, "version-not-found", http.StatusNotFound},
	{book.ErrAlreadyReversed, "already-reversed", http.StatusUnprocessableEntity},
	{book.ErrNotReversible, "not-reversible", http.StatusUnprocessableEntity},
	{book.ErrHoldNotFound, "hold-not-found", http.StatusNotFound},
	{book.ErrHoldNotPending, "hold-not-pending", http.StatusUnprocessableEntity},
	{book.ErrHoldOfPayout, "hold-of-payout", http.StatusUnprocessableEntity},
	{book.ErrPayoutNotFound, "payout-not-found", http.StatusNotFound},
	{book.ErrPayoutExists, "payout-exists", http.StatusConflict},
	{book.ErrPayoutsUnavailable, "payouts-unavailable", http.StatusNotImplemented},
	{book.ErrCaptureExceedsHold, "capture-exceeds-hold", http.StatusUnprocessableEntity},
	{book.ErrInsufficientFunds, "insufficient-funds", http.StatusUnprocessableEntity},
	{book.ErrCurrencyMismatch, "currency-mismatch", http.StatusUnprocessableEntity},
	{book.ErrBalanceLimit, "balance-limit", http.StatusUnprocessableEntity},
}

// problemOf decides what a client is told of an error. What is not listed
// stays inside.
func problemOf(err error) Problem {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return Problem{Type: problemTypes + r.name, Title: r.err.Error(), Status: r.status, Detail: err.Error()}
		}
	}
	status := http.StatusInternalServerError
	var invalid *book.InvalidError
	var fiberErr *fiber.Error
	var library *fibermw.Problem
	switch {
	case errors.As(err, &library):
		return Problem{Type: library.Type, Title: library.Title, Status: library.Status, Detail: library.Detail}
	case errors.As(err, &invalid):
		return invalidRequest(invalid, http.StatusBadRequest)
	case errors.As(err, &fiberErr) && fiberErr.Code == http.StatusRequestEntityTooLarge:
		return invalidRequest(&book.InvalidError{Field: "body", Reason: "is too large"}, fiberErr.Code)
	case errors.As(err, &fiberErr):
		status = fiberErr.Code
	case idem.Retryable(err), errors.Is(err, context.DeadlineExceeded):
		status = http.StatusServiceUnavailable
	}
	return Problem{Type: "about:blank", Title: http.StatusText(status), Status: status}
}

func invalidRequest(e *book.InvalidError, status int) Problem {
	return Problem{
		Type: problemTypes + "invalid-request", Title: "invalid request",
		Status: status, Detail: e.Error(), Field: e.Field,
	}
}

// json is the problem as it is answered within another answer, or recorded.
func (p Problem) json() []byte {
	encoded, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of texts and a number
	}
	return encoded
}

// passProblem has renderError answer what fibermw refuses, so that all problems
// are rendered and logged in one way.
func passProblem(_ *fiber.Ctx, problem *fibermw.Problem) error { return problem }

// renderError answers an error of any handler.
func renderError(c *fiber.Ctx, err error) error {
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError {
		cause := err
		var library *fibermw.Problem
		if errors.As(err, &library) && errors.Unwrap(library) != nil {
			cause = errors.Unwrap(library)
		}
		slog.ErrorContext(c.UserContext(), "request failed", "method", c.Method(), "path", c.Path(), "error", cause)
	}
	if p.Status == http.StatusServiceUnavailable || errors.Is(err, idem.ErrInFlight) {
		c.Set(fiber.HeaderRetryAfter, retryAfterSeconds)
	}
	return c.Status(p.Status).JSON(p, mimeProblem)
}
