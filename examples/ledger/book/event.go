package book

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Event is a fact about the book that others are told of, any number of times
// but always with the same id.
type Event struct {
	ID        uuid.UUID       `json:"id"` // version 7
	Type      string          `json:"type"`
	Tenant    string          `json:"tenant"`
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"` // what stays true: no balances, no states
}

// Outbox takes what others have to do or to know because of what a book writes.
// It writes that in the same transaction.
type Outbox interface {
	// Emit tells e to whoever listens to events.
	Emit(ctx context.Context, e Event) error

	// ExpireHold has Book.Expire called when the time of a hold is over.
	ExpireHold(ctx context.Context, tenant string, hold uuid.UUID, at time.Time) error

	// Pay has the provider asked to carry out a payout, and one of Book.PayoutPaid
	// and Book.PayoutFailed called. It returns ErrPayoutsUnavailable if there is
	// no provider.
	Pay(ctx context.Context, tenant string, payout uuid.UUID) error
}

// EmitTransferPosted tells that t was posted. Its balances and its metadata stay
// here.
func EmitTransferPosted(ctx context.Context, outbox Outbox, tenant string, t Transfer) error {
	type pair struct {
		From     string `json:"from"`
		To       string `json:"to"`
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
	}
	type leg struct {
		Account  string `json:"account"`
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
	}
	data := struct {
		ID uuid.UUID `json:"id"`
		*pair
		Legs      []leg      `json:"legs,omitempty"`
		Reference *string    `json:"reference"`
		Reverses  *uuid.UUID `json:"reverses"`
	}{ID: t.ID, Reference: t.Reference, Reverses: t.Reverses}
	if t.Pair != nil {
		data.pair = &pair{t.From, t.To, t.Amount, t.Currency}
	}
	for _, l := range t.Legs {
		data.Legs = append(data.Legs, leg{l.Account, l.Amount, l.Currency})
	}
	return emit(ctx, outbox, tenant, "transfer.posted", data)
}

// emitHold tells what has become of a hold.
func (b Book) emitHold(ctx context.Context, kind string, h Hold) error {
	return emit(ctx, b.outbox, b.tenant, kind, struct {
		ID         uuid.UUID  `json:"id"`
		From       string     `json:"from"`
		To         string     `json:"to"`
		Amount     int64      `json:"amount"`
		Currency   string     `json:"currency"`
		ExpiresAt  time.Time  `json:"expires_at"`
		Captured   *int64     `json:"captured,omitempty"`
		TransferID *uuid.UUID `json:"transfer_id,omitempty"`
	}{h.ID, h.From, h.To, h.Amount, h.Currency, h.ExpiresAt, h.Captured, h.TransferID})
}

// emitPayout tells how a payout has ended.
func (b Book) emitPayout(ctx context.Context, kind string, p Payout) error {
	return emit(ctx, b.outbox, b.tenant, kind, struct {
		ID          uuid.UUID `json:"id"`
		From        string    `json:"from"`
		Amount      int64     `json:"amount"`
		Currency    string    `json:"currency"`
		Destination string    `json:"destination"`
		Reference   *string   `json:"reference"`
		ChargeID    *string   `json:"charge_id,omitempty"`
		Reason      *string   `json:"reason,omitempty"`
	}{p.ID, p.From, p.Amount, p.Currency, p.Destination, p.Reference, p.ChargeID, p.Reason})
}

func emit(ctx context.Context, outbox Outbox, tenant, kind string, data any) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return outbox.Emit(ctx, Event{ID: id, Type: kind, Tenant: tenant, Timestamp: time.Now().UTC(), Data: encoded})
}
