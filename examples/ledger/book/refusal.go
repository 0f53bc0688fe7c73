package book

import (
	"errors"
	"fmt"
)

// The refusals of the ledger. They are wrapped with what they are about, in
// words that the client may read.
var (
	ErrAccountNotFound    = errors.New("account not found")
	ErrAccountExists      = errors.New("account exists")
	ErrTransferNotFound   = errors.New("transfer not found")
	ErrAlreadyReversed    = errors.New("already reversed")
	ErrNotReversible      = errors.New("not reversible")
	ErrVersionNotFound    = errors.New("version not found")
	ErrHoldNotFound       = errors.New("hold not found")
	ErrHoldNotPending     = errors.New("hold not pending")
	ErrCaptureExceedsHold = errors.New("capture exceeds hold")
	ErrHoldOfPayout       = errors.New("hold of payout")
	ErrPayoutNotFound     = errors.New("payout not found")
	ErrPayoutExists       = errors.New("payout exists")
	ErrPayoutsUnavailable = errors.New("payouts unavailable")
	ErrInsufficientFunds  = errors.New("insufficient funds")
	ErrCurrencyMismatch   = errors.New("currency mismatch")
	ErrBalanceLimit       = errors.New("balance limit")
)

// InvalidError says which field of a request is wrong, and why.
type InvalidError struct{ Field, Reason string }

func (e *InvalidError) Error() string { return e.Field + " " + e.Reason }

// Invalid returns an InvalidError.
func Invalid(field, format string, args ...any) error {
	return &InvalidError{field, fmt.Sprintf(format, args...)}
}
