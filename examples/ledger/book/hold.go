package book

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/examples/ledger/postgres"
)

// HoldSecondsMax is the longest time that a hold may last: 31 days.
const HoldSecondsMax = 31 * 24 * 60 * 60

// The states of a hold. It begins pending and ends once.
const (
	HoldPending  = "pending"
	HoldCaptured = "captured"
	HoldVoided   = "voided"
	HoldExpired  = "expired"
)

// Hold is the first half of a transfer in two phases, as it is answered: an
// amount of an account that nothing else can spend, until it is captured,
// voided, or expires by the clock of the database.
type Hold struct {
	ID         uuid.UUID  `json:"id"`
	From       string     `json:"from"`
	To         string     `json:"to"`
	Amount     int64      `json:"amount"`
	Currency   string     `json:"currency"`
	State      string     `json:"state"`
	Captured   *int64     `json:"captured"`    // what was transferred; the rest was released
	TransferID *uuid.UUID `json:"transfer_id"` // which did it
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  time.Time  `json:"expires_at"`
}

// NewHold asks for a hold.
type NewHold struct {
	From, To  string
	Amount    int64
	Currency  string
	ExpiresIn int64 // seconds
}

// Hold reserves an amount of an account for another.
func (b Book) Hold(ctx context.Context, h NewHold) (Hold, error) {
	if err := h.Validate(); err != nil {
		return Hold{}, err
	}
	hold, err := b.placeHold(ctx, h)
	if err != nil {
		return Hold{}, err
	}
	return hold, b.outbox.ExpireHold(ctx, b.tenant, hold.ID, hold.ExpiresAt)
}

func (b Book) placeHold(ctx context.Context, h NewHold) (Hold, error) {
	accounts, err := b.lock(ctx, h.From, h.To)
	if err != nil {
		return Hold{}, err
	}
	if err := h.transfer(h.Amount).admit(accounts); err != nil {
		return Hold{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Hold{}, err
	}
	row, err := b.db.PlaceHold(ctx, postgres.PlaceHoldParams{
		Tenant: b.tenant, ID: id, FromAccount: h.From, ToAccount: h.To,
		Amount: h.Amount, Currency: h.Currency, ExpiresInSeconds: h.ExpiresIn,
	})
	if err != nil {
		return Hold{}, err
	}
	hold := holdOf(row, false)
	return hold, b.emitHold(ctx, "hold.created", hold)
}

// Capture transfers an amount of a pending hold, or all of it if amount is nil,
// and releases the rest.
func (b Book) Capture(ctx context.Context, id uuid.UUID, amount *int64) (Hold, error) {
	hold, accounts, err := b.lockHold(ctx, id)
	if err != nil {
		return Hold{}, err
	}
	if amount == nil {
		amount = &hold.Amount
	}
	if *amount < 1 || *amount > MinorUnitsMax {
		return Hold{}, Invalid("amount", "must be an integer from 1 to %d", MinorUnitsMax)
	}
	if *amount > hold.Amount {
		return Hold{}, fmt.Errorf("%w: hold %s is of %d", ErrCaptureExceedsHold, id, hold.Amount)
	}
	reference := "hold " + id.String()
	transfer := NewHold{From: hold.From, To: hold.To, Currency: hold.Currency}.transfer(*amount)
	transfer.Reference = &reference
	accounts[hold.From].Held -= hold.Amount
	if err := transfer.admit(accounts); err != nil {
		return Hold{}, err
	}
	transferID, err := uuid.NewV7()
	if err != nil {
		return Hold{}, err
	}
	ended, err := b.endHold(ctx, postgres.EndHoldParams{ID: id, State: HoldCaptured, Captured: amount, TransferID: &transferID})
	if err != nil {
		return Hold{}, err
	}
	if _, err := b.post(ctx, transferID, transfer, nil); err != nil {
		return Hold{}, err
	}
	return ended, b.emitHold(ctx, "hold.captured", ended)
}

// Void releases a pending hold.
func (b Book) Void(ctx context.Context, id uuid.UUID) (Hold, error) {
	if _, _, err := b.lockHold(ctx, id); err != nil {
		return Hold{}, err
	}
	hold, err := b.endHold(ctx, postgres.EndHoldParams{ID: id, State: HoldVoided})
	if err != nil {
		return Hold{}, err
	}
	return hold, b.emitHold(ctx, "hold.voided", hold)
}

// FindHold finds a hold. One whose time is over is expired, whether or not
// anybody has released it yet.
func (b Book) FindHold(ctx context.Context, id uuid.UUID) (Hold, error) {
	row, err := b.db.Hold(ctx, postgres.HoldParams{Tenant: b.tenant, ID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		return Hold{}, fmt.Errorf("%w: %s", ErrHoldNotFound, id)
	}
	return holdOf(row.Hold, row.Due), err
}

// Holds lists holds, newest first.
func (b Book) Holds(ctx context.Context, page Page) ([]Hold, *string, error) {
	before, err := page.uuid()
	if err != nil {
		return nil, nil, err
	}
	rows, err := b.db.Holds(ctx, postgres.HoldsParams{Tenant: b.tenant, Before: before, RowLimit: page.rows()})
	holds := make([]Hold, len(rows))
	for i, row := range rows {
		holds[i] = holdOf(row.Hold, row.Due)
	}
	holds, next := cut(page, holds, func(h Hold) string { return h.ID.String() })
	return holds, next, err
}

// Expire releases a hold whose time is over, tells that it expired, even if it
// was released before, and returns it. One whose time is not over stays pending.
func (b Book) Expire(ctx context.Context, id uuid.UUID) (Hold, error) {
	hold, err := b.FindHold(ctx, id)
	if err != nil {
		return Hold{}, err
	}
	if _, err := b.lock(ctx, hold.From); err != nil { // which releases what is due
		return Hold{}, err
	}
	row, err := b.db.Hold(ctx, postgres.HoldParams{Tenant: b.tenant, ID: id})
	if err != nil {
		return Hold{}, err
	}
	hold = holdOf(row.Hold, false) // what came due since is not released
	if hold.State == HoldExpired {
		err = b.emitHold(ctx, "hold.expired", hold)
	}
	return hold, err
}

// lockHold returns a pending hold and its accounts under their locks. Who ends
// a hold has its account locked, so what is seen here stays.
func (b Book) lockHold(ctx context.Context, id uuid.UUID) (Hold, map[string]*postgres.Account, error) {
	hold, err := b.FindHold(ctx, id)
	if err != nil {
		return Hold{}, nil, err
	}
	accounts, err := b.lock(ctx, hold.From, hold.To)
	if err != nil {
		return Hold{}, nil, err
	}
	if hold, err = b.FindHold(ctx, id); err != nil {
		return Hold{}, nil, err
	}
	if hold.State != HoldPending {
		return Hold{}, nil, fmt.Errorf("%w: hold %s is %s", ErrHoldNotPending, id, hold.State)
	}
	ofPayout, err := b.db.HoldIsOfPayout(ctx, postgres.HoldIsOfPayoutParams{Tenant: b.tenant, HoldID: id})
	if err == nil && ofPayout {
		err = fmt.Errorf("%w: hold %s", ErrHoldOfPayout, id)
	}
	return hold, accounts, err
}

func (b Book) endHold(ctx context.Context, end postgres.EndHoldParams) (Hold, error) {
	end.Tenant = b.tenant
	row, err := b.db.EndHold(ctx, end)
	return holdOf(row, false), err
}

func holdOf(row postgres.Hold, due bool) Hold {
	h := Hold{
		ID: row.ID, From: row.FromAccount, To: row.ToAccount, Amount: row.Amount, Currency: row.Currency,
		State: row.State, Captured: row.Captured, TransferID: row.TransferID,
		CreatedAt: row.CreatedAt.UTC(), ExpiresAt: row.ExpiresAt.UTC(),
	}
	if due {
		h.State = HoldExpired
	}
	return h
}

// Validate checks what can be told from the request alone.
func (h NewHold) Validate() error {
	if err := h.transfer(h.Amount).Validate(); err != nil {
		return err
	}
	if h.ExpiresIn < 1 || h.ExpiresIn > HoldSecondsMax {
		return Invalid("expires_in", "must be a number of seconds from 1 to %d", HoldSecondsMax)
	}
	return nil
}

// transfer is what a capture of amount asks for.
func (h NewHold) transfer(amount int64) NewTransfer {
	return NewTransfer{From: h.From, To: h.To, Amount: amount, Currency: h.Currency}
}
