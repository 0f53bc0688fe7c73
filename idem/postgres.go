package idem

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// postgresTimeoutMax is the largest timeout setting: 2^31-1 milliseconds.
const postgresTimeoutMax = (1<<31 - 1) * time.Millisecond

// class says what an error of pgx means for the transaction it happened in.
//
//	class     | which errors                                            | the transaction
//	----------|---------------------------------------------------------|------------------------------
//	retry     | 40001, 40P01                                            | undone; a new one may succeed
//	unknown   | no answer: EOF, reset, timeout; FATAL and PANIC;        | undone, unless COMMIT was
//	          | 57P0x, 08xxx, 40003                                     | sent: then unknown
//	unsent    | nothing reached the server                              | undone
//	definite  | every other SQLSTATE, ErrTxCommitRollback               | undone
//
// Source: PostgreSQL manual, appendix A (error codes) and section 13.5
// (serialization failure handling).
type class int

const (
	definite class = iota
	retry
	unknown
	unsent
)

func classify(err error) class {
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return definite
	case errors.As(err, &pgErr):
		return classifySQLSTATE(pgErr)
	case pgconn.SafeToRetry(err):
		return unsent
	default:
		return unknown
	}
}

func classifySQLSTATE(err *pgconn.PgError) class {
	switch err.Code {
	case "40001", "40P01": // serialization_failure, deadlock_detected
		return retry
	case "40003", // statement_completion_unknown
		"57P01", "57P02", "57P03", "57P04", "57P05": // server or session going away
		return unknown
	}
	severity := cmp.Or(err.SeverityUnlocalized, err.Severity) // some poolers send the localized one alone
	if severity == "FATAL" || severity == "PANIC" || len(err.Code) == 5 && err.Code[:2] == "08" {
		return unknown
	}
	return definite
}

// Retryable reports whether the same request with the same key may succeed a
// little later although err ended this call: the key is in flight or the
// outcome unknown, or the database could not be reached, was going away, was
// out of connections, or chose this transaction as the victim of a conflict.
// Nothing is lost by trying again.
func Retryable(err error) bool {
	var outcomeUnknown *OutcomeUnknownError
	if errors.As(err, &outcomeUnknown) || errors.Is(err, ErrInFlight) ||
		errors.Is(err, errPoolExhausted) || errors.Is(err, errNotCommitted) {
		return true
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch pgErr.Code {
		case "53300", "25006", "25P03": // too_many_connections, read_only_sql_transaction (a standby), idle_in_transaction_session_timeout
			return true
		}
		c := classifySQLSTATE(pgErr)
		return c == retry || c == unknown
	}
	var connectErr *pgconn.ConnectError
	return errors.As(err, &connectErr) || errors.Is(err, errConnectionLost) || pgconn.Timeout(err) || pgconn.SafeToRetry(err)
}

// isUnsendable reports whether err is about a batch that pgx could not encode, so
// that nothing of it was sent, rather than about the connection or the server.
func isUnsendable(err error) bool {
	var unsent pgx.ErrPreprocessingBatch
	var pgErr *pgconn.PgError
	var netErr net.Error
	return errors.As(err, &unsent) && !errors.As(err, &pgErr) && !errors.As(err, &netErr) &&
		!errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, context.DeadlineExceeded)
}

// explain adds what to do to an error of the library's own statements.
func explain(err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch pgErr.Code {
		case "42P01", "3F000", "42703": // undefined_table, invalid_schema_name, undefined_column
			return errors.Join(ErrSchema, err)
		}
	}
	return err
}

// detach returns a context that ends after timeout and not with ctx, for what
// must be carried through although the caller has gone.
func detach(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}
