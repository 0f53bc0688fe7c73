package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/idem"
)

const (
	problemTypes = "https://github.com/idempg/idempg/blob/main/examples/ledger/README.md#"
	mimeProblem  = "application/problem+json"

	retryAfterSeconds = "1"
)

// problem is an error as it is answered (RFC 9457).
type problem struct {
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
	{errAccountNotFound, "account-not-found", http.StatusNotFound},
	{errTransferNotFound, "transfer-not-found", http.StatusNotFound},
	{errAccountExists, "account-exists", http.StatusConflict},
	{errInsufficientFunds, "insufficient-funds", http.StatusUnprocessableEntity},
	{errCurrencyMismatch, "currency-mismatch", http.StatusUnprocessableEntity},
	{errBalanceLimit, "balance-limit", http.StatusUnprocessableEntity},
}

// problemOf decides what a client is told of an error. What is not listed
// stays inside.
func problemOf(err error) problem {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return problem{Type: problemTypes + r.name, Title: r.err.Error(), Status: r.status, Detail: err.Error()}
		}
	}
	status := http.StatusInternalServerError
	var invalid *invalidError
	var fiberErr *fiber.Error
	switch {
	case errors.As(err, &invalid):
		return invalid.problem(http.StatusBadRequest)
	case errors.As(err, &fiberErr) && fiberErr.Code == http.StatusRequestEntityTooLarge:
		tooLarge := invalidError{"body", "is too large"}
		return tooLarge.problem(fiberErr.Code)
	case errors.As(err, &fiberErr):
		status = fiberErr.Code
	case idem.Retryable(err), errors.Is(err, context.DeadlineExceeded):
		status = http.StatusServiceUnavailable
	}
	return problem{Type: "about:blank", Title: http.StatusText(status), Status: status}
}

func (e *invalidError) problem(status int) problem {
	return problem{
		Type: problemTypes + "invalid-request", Title: "invalid request",
		Status: status, Detail: e.Error(), Field: e.field,
	}
}

// json is the problem as it is answered within another answer, or recorded.
func (p problem) json() []byte {
	encoded, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of texts and a number
	}
	return encoded
}

// renderError answers an error of any handler.
func renderError(c *fiber.Ctx, err error) error {
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError {
		slog.ErrorContext(c.UserContext(), "request failed", "method", c.Method(), "path", c.Path(), "error", err)
	}
	if p.Status == http.StatusServiceUnavailable {
		c.Set(fiber.HeaderRetryAfter, retryAfterSeconds)
	}
	return c.Status(p.Status).JSON(p, mimeProblem)
}
