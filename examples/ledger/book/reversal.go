package book

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/examples/ledger/postgres"
)

// NewReversal asks for the reverse of a transfer.
type NewReversal struct {
	ID        uuid.UUID // of the transfer
	Reference *string
	Metadata  json.RawMessage
}

// Reverse posts the transfer that undoes another one, which happens once. What
// was posted stays.
func (b Book) Reverse(ctx context.Context, r NewReversal) (Transfer, error) {
	if err := validateNotes(r.Reference, r.Metadata); err != nil {
		return Transfer{}, err
	}
	original, err := b.FindTransfer(ctx, r.ID)
	if err != nil {
		return Transfer{}, err
	}
	if original.Reverses != nil {
		return Transfer{}, fmt.Errorf("%w: transfer %s is itself a reversal", ErrNotReversible, r.ID)
	}
	accounts, err := b.lock(ctx, original.accounts()...)
	if err != nil {
		return Transfer{}, err
	}
	if err := b.checkNotReversed(ctx, r.ID); err != nil {
		return Transfer{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Transfer{}, err
	}
	if original.Pair != nil {
		back := NewTransfer{
			From: original.To, To: original.From, Amount: original.Amount, Currency: original.Currency,
			Reference: r.Reference, Metadata: r.Metadata,
		}
		if err := back.admit(accounts); err != nil {
			return Transfer{}, err
		}
		return b.post(ctx, id, back, &r.ID)
	}
	back := NewLinkedTransfer{Reference: r.Reference, Metadata: r.Metadata}
	for _, leg := range original.Legs {
		back.Legs = append(back.Legs, NewLeg{leg.Account, -leg.Amount, leg.Currency})
	}
	if err := back.admit(accounts); err != nil {
		return Transfer{}, err
	}
	return b.postLinked(ctx, id, back, &r.ID)
}

func (t Transfer) accounts() []string {
	if t.Pair != nil {
		return []string{t.From, t.To}
	}
	ids := make([]string, len(t.Legs))
	for i, leg := range t.Legs {
		ids[i] = leg.Account
	}
	return ids
}

// checkNotReversed is asked under the locks of the accounts of the transfer,
// where it has no rival.
func (b Book) checkNotReversed(ctx context.Context, id uuid.UUID) error {
	reversal, err := b.db.ReversalOf(ctx, postgres.ReversalOfParams{Tenant: b.tenant, ID: id})
	switch {
	case err == nil:
		return fmt.Errorf("%w: transfer %s by transfer %s", ErrAlreadyReversed, id, reversal)
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	}
	return err
}
