package book

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/idempg/idempg/examples/ledger/postgres"
)

// Transfer is a transfer as it is answered. It is between two accounts, or it is
// linked and has legs.
type Transfer struct {
	ID uuid.UUID `json:"id"`
	*Pair
	Legs       []Leg           `json:"legs,omitempty"` // in the order of their accounts
	Reference  *string         `json:"reference"`
	Metadata   json.RawMessage `json:"metadata"`
	Reverses   *uuid.UUID      `json:"reverses"`
	ReversedBy *uuid.UUID      `json:"reversed_by"`
	CreatedAt  time.Time       `json:"created_at"`
}

// Pair is what a transfer between two accounts moves.
type Pair struct {
	From        string `json:"from"`
	To          string `json:"to"`
	Amount      int64  `json:"amount"`
	Currency    string `json:"currency"`
	FromBalance int64  `json:"from_balance"` // after it
	ToBalance   int64  `json:"to_balance"`   // after it
}

// NewTransfer asks for a transfer.
type NewTransfer struct {
	From, To  string
	Amount    int64
	Currency  string
	Reference *string
	Metadata  json.RawMessage
}

// Transfer moves an amount from one account to the other.
func (b Book) Transfer(ctx context.Context, t NewTransfer) (Transfer, error) {
	if err := t.Validate(); err != nil {
		return Transfer{}, err
	}
	accounts, err := b.lock(ctx, t.From, t.To)
	if err != nil {
		return Transfer{}, err
	}
	if err := t.admit(accounts); err != nil {
		return Transfer{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Transfer{}, err
	}
	return b.post(ctx, id, t, nil)
}

// admit decides whether both accounts, as they are under their locks, permit
// the transfer.
func (t NewTransfer) admit(accounts map[string]*postgres.Account) error {
	if err := ofCurrency(accounts, t.Currency, t.From, t.To); err != nil {
		return err
	}
	if err := admit(accounts[t.From], -t.Amount); err != nil {
		return err
	}
	return admit(accounts[t.To], t.Amount)
}

// post writes a transfer that was admitted, which may reverse another one.
func (b Book) post(ctx context.Context, id uuid.UUID, t NewTransfer, reverses *uuid.UUID) (Transfer, error) {
	posted, err := b.db.PostTransfer(ctx, postgres.PostTransferParams{
		Tenant: b.tenant, ID: id, FromAccount: t.From, ToAccount: t.To,
		Amount: t.Amount, Currency: t.Currency, Reference: t.Reference, Metadata: t.Metadata, Reverses: reverses,
	})
	if err != nil {
		return Transfer{}, err
	}
	transfer := Transfer{
		ID: id, Pair: &Pair{t.From, t.To, t.Amount, t.Currency, posted.FromBalance, posted.ToBalance},
		Reference: t.Reference, Metadata: t.Metadata, Reverses: reverses, CreatedAt: posted.CreatedAt.UTC(),
	}
	return transfer, EmitTransferPosted(ctx, b.outbox, b.tenant, transfer)
}

// FindTransfer finds a transfer.
func (b Book) FindTransfer(ctx context.Context, id uuid.UUID) (Transfer, error) {
	found, err := b.readTransfers(ctx, id)
	if err == nil && len(found) == 0 {
		return Transfer{}, fmt.Errorf("%w: %s", ErrTransferNotFound, id)
	}
	if err != nil {
		return Transfer{}, err
	}
	return found[0], nil
}

// Transfers lists transfers, newest first.
func (b Book) Transfers(ctx context.Context, page Page) ([]Transfer, *string, error) {
	before, err := page.uuid()
	if err != nil {
		return nil, nil, err
	}
	ids, err := b.db.TransferIDs(ctx, postgres.TransferIDsParams{Tenant: b.tenant, Before: before, RowLimit: page.rows()})
	if err != nil {
		return nil, nil, err
	}
	ids, next := cut(page, ids, uuid.UUID.String)
	transfers, err := b.readTransfers(ctx, ids...)
	return transfers, next, err
}

// readTransfers returns those of ids that there are, newest first.
func (b Book) readTransfers(ctx context.Context, ids ...uuid.UUID) ([]Transfer, error) {
	texts := make([]string, len(ids)) // which pgx can encode without asking the server what they are
	for i, id := range ids {
		texts[i] = id.String()
	}
	rows, err := b.db.Transfers(ctx, postgres.TransfersParams{Tenant: b.tenant, Ids: texts})
	if err != nil {
		return nil, err
	}
	transfers := make([]Transfer, len(rows))
	for i, row := range rows {
		t := row.Transfer
		transfers[i] = Transfer{
			ID: t.ID, Reference: t.Reference, Metadata: t.Metadata,
			Reverses: t.Reverses, ReversedBy: row.ReversedBy, CreatedAt: t.CreatedAt.UTC(),
		}
		var legs []Leg
		if err := json.Unmarshal(row.Legs, &legs); err != nil {
			return nil, fmt.Errorf("transfer %s: %w", t.ID, err)
		}
		if t.FromAccount == nil {
			transfers[i].Legs = legs
			continue
		}
		pair := &Pair{From: *t.FromAccount, To: *t.ToAccount, Amount: *t.Amount, Currency: *t.Currency}
		for _, leg := range legs {
			if leg.Account == pair.From {
				pair.FromBalance = leg.Balance
			} else {
				pair.ToBalance = leg.Balance
			}
		}
		transfers[i].Pair = pair
	}
	return transfers, nil
}

// Validate checks what can be told from the request alone.
func (t NewTransfer) Validate() error {
	if err := ValidateAccountID("from", t.From); err != nil {
		return err
	}
	if err := ValidateAccountID("to", t.To); err != nil {
		return err
	}
	switch {
	case t.From == t.To:
		return Invalid("to", "must be another account than from")
	case t.Amount < 1 || t.Amount > MinorUnitsMax:
		return Invalid("amount", "must be an integer from 1 to %d", MinorUnitsMax)
	case !currencyPattern.MatchString(t.Currency):
		return Invalid("currency", "must be three capital letters, such as EUR")
	}
	return validateNotes(t.Reference, t.Metadata)
}

// validateNotes checks what a client may write on any transfer.
func validateNotes(reference *string, metadata json.RawMessage) error {
	switch {
	case reference != nil && utf8.RuneCountInString(*reference) > ReferenceCharsMax:
		return Invalid("reference", "must have at most %d characters", ReferenceCharsMax)
	case len(metadata) > MetadataBytesMax:
		return Invalid("metadata", "must have at most %d bytes", MetadataBytesMax)
	}
	return nil
}

// Canonical is the content of the request and not its spelling: compact JSON
// with the members of NewTransfer in their order, null for an absent one, and
// within the metadata the members in the order of their names and numbers as
// they were spelled. So spaces, the order of members and escapes do not matter.
func (t NewTransfer) Canonical() ([]byte, error) {
	canonical := struct {
		NewTransfer
		Metadata any
	}{NewTransfer: t}
	if t.Metadata != nil {
		decoder := json.NewDecoder(bytes.NewReader(t.Metadata))
		decoder.UseNumber()
		if err := decoder.Decode(&canonical.Metadata); err != nil {
			return nil, err
		}
	}
	return json.Marshal(canonical)
}
