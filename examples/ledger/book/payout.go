package book

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/examples/ledger/postgres"
)

const (
	// DestinationCharsMax bounds where a payout goes.
	DestinationCharsMax = 140

	// payoutHoldSeconds is a hundred years: a charge that may have happened keeps
	// its money reserved until somebody knows.
	payoutHoldSeconds = 100 * 365 * 24 * 60 * 60
)

// The states of a payout. It begins pending and ends once.
const (
	PayoutPending = "pending"
	PayoutPaid    = "paid"
	PayoutFailed  = "failed"
)

// Payout is money that leaves through a payment provider, as it is answered.
type Payout struct {
	ID          uuid.UUID `json:"id"`
	From        string    `json:"from"`
	Amount      int64     `json:"amount"`
	Currency    string    `json:"currency"`
	Destination string    `json:"destination"`
	Reference   *string   `json:"reference"`
	State       string    `json:"state"`
	HoldID      uuid.UUID `json:"hold_id"`   // reserves the amount for the clearing account
	ChargeID    *string   `json:"charge_id"` // the provider's, when it is paid
	Reason      *string   `json:"reason"`    // why it failed
	CreatedAt   time.Time `json:"created_at"`

	ChargeKey uuid.UUID `json:"-"` // the idempotency key of every call to the provider
}

// NewPayout asks for a payout.
type NewPayout struct {
	From        string
	Amount      int64
	Currency    string
	Destination string
	Reference   *string
	ChargeKey   uuid.UUID
}

// Payout writes down what the provider shall do, and reserves the money.
func (b Book) Payout(ctx context.Context, p NewPayout) (Payout, error) {
	if err := p.Validate(); err != nil {
		return Payout{}, err
	}
	if err := b.openClearing(ctx, p.Currency); err != nil {
		return Payout{}, err
	}
	hold, err := b.placeHold(ctx, p.hold())
	if err != nil {
		return Payout{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Payout{}, err
	}
	row, err := b.db.CreatePayout(ctx, postgres.CreatePayoutParams{
		Tenant: b.tenant, ID: id, HoldID: hold.ID, Destination: p.Destination, Reference: p.Reference, ChargeKey: p.ChargeKey,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Payout{}, fmt.Errorf("%w: the idempotency key made one before, long ago", ErrPayoutExists)
	}
	if err != nil {
		return Payout{}, err
	}
	return payoutOf(row, hold), b.outbox.Pay(ctx, b.tenant, id)
}

// PayoutPaid takes the money out of the account: the provider has paid it.
func (b Book) PayoutPaid(ctx context.Context, id uuid.UUID, chargeID string) error {
	payout, err := b.endPayout(ctx, postgres.EndPayoutParams{ID: id, State: PayoutPaid, ChargeID: &chargeID})
	if err != nil {
		return err
	}
	if _, err := b.Capture(ctx, payout.HoldID, nil); err != nil {
		return err
	}
	return b.emitPayout(ctx, "payout.paid", payout)
}

// PayoutFailed gives the money back: the provider has refused.
func (b Book) PayoutFailed(ctx context.Context, id uuid.UUID, reason string) error {
	payout, err := b.endPayout(ctx, postgres.EndPayoutParams{ID: id, State: PayoutFailed, Reason: &reason})
	if err != nil {
		return err
	}
	if _, err := b.Void(ctx, payout.HoldID); err != nil {
		return err
	}
	return b.emitPayout(ctx, "payout.failed", payout)
}

// endPayout comes before the end of the hold, which belongs to the payout as
// long as that is pending.
func (b Book) endPayout(ctx context.Context, end postgres.EndPayoutParams) (Payout, error) {
	payout, err := b.FindPayout(ctx, end.ID)
	if err != nil {
		return Payout{}, err
	}
	end.Tenant = b.tenant
	row, err := b.db.EndPayout(ctx, end)
	payout.State, payout.ChargeID, payout.Reason = row.State, row.ChargeID, row.Reason
	return payout, err
}

// FindPayout finds a payout.
func (b Book) FindPayout(ctx context.Context, id uuid.UUID) (Payout, error) {
	row, err := b.db.Payout(ctx, postgres.PayoutParams{Tenant: b.tenant, ID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		return Payout{}, fmt.Errorf("%w: %s", ErrPayoutNotFound, id)
	}
	return payoutOf(row.Payout, holdOf(row.Hold, false)), err
}

// openClearing opens the account that payouts of a currency go to, if it is not
// there.
func (b Book) openClearing(ctx context.Context, currency string) error {
	_, err := b.db.OpenAccount(ctx, postgres.OpenAccountParams{
		Tenant: b.tenant, ID: clearing(currency), Currency: currency, MinBalance: new(int64),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

func clearing(currency string) string { return "payouts-" + currency }

func payoutOf(row postgres.Payout, hold Hold) Payout {
	return Payout{
		ID: row.ID, From: hold.From, Amount: hold.Amount, Currency: hold.Currency,
		Destination: row.Destination, Reference: row.Reference, State: row.State, HoldID: row.HoldID,
		ChargeID: row.ChargeID, Reason: row.Reason, CreatedAt: row.CreatedAt.UTC(), ChargeKey: row.ChargeKey,
	}
}

// Validate checks what can be told from the request alone.
func (p NewPayout) Validate() error {
	h := p.hold()
	switch {
	case !currencyPattern.MatchString(p.Currency): // it is part of the id of the clearing account
		return Invalid("currency", "must be three capital letters, such as EUR")
	case p.From == h.To:
		return Invalid("from", "must be another account than %s", h.To)
	case p.Destination == "" || utf8.RuneCountInString(p.Destination) > DestinationCharsMax:
		return Invalid("destination", "must have 1 to %d characters", DestinationCharsMax)
	}
	transfer := h.transfer(p.Amount)
	transfer.Reference = p.Reference
	return transfer.Validate()
}

// hold is what the payout reserves.
func (p NewPayout) hold() NewHold {
	return NewHold{From: p.From, To: clearing(p.Currency), Amount: p.Amount, Currency: p.Currency, ExpiresIn: payoutHoldSeconds}
}
