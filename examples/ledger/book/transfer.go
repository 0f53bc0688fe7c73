package book

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/examples/ledger/postgres"
)

// Transfer is a transfer as it is answered.
type Transfer struct {
	ID          uuid.UUID       `json:"id"`
	From        string          `json:"from"`
	To          string          `json:"to"`
	Amount      int64           `json:"amount"`
	Currency    string          `json:"currency"`
	FromBalance int64           `json:"from_balance"` // after it
	ToBalance   int64           `json:"to_balance"`   // after it
	Reference   *string         `json:"reference"`
	Metadata    json.RawMessage `json:"metadata"`
	CreatedAt   time.Time       `json:"created_at"`
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
	return b.post(ctx, id, t)
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

// post writes a transfer that was admitted.
func (b Book) post(ctx context.Context, id uuid.UUID, t NewTransfer) (Transfer, error) {
	posted, err := b.db.PostTransfer(ctx, postgres.PostTransferParams{
		Tenant: b.tenant, ID: id, FromAccount: t.From, ToAccount: t.To,
		Amount: t.Amount, Currency: t.Currency, Reference: t.Reference, Metadata: t.Metadata,
	})
	return Transfer{
		ID: id, From: t.From, To: t.To, Amount: t.Amount, Currency: t.Currency,
		FromBalance: posted.FromBalance, ToBalance: posted.ToBalance,
		Reference: t.Reference, Metadata: t.Metadata, CreatedAt: posted.CreatedAt.UTC(),
	}, err
}

// FindTransfer finds a transfer.
func (b Book) FindTransfer(ctx context.Context, id uuid.UUID) (Transfer, error) {
	row, err := b.db.Transfer(ctx, postgres.TransferParams{Tenant: b.tenant, ID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		return Transfer{}, fmt.Errorf("%w: %s", ErrTransferNotFound, id)
	}
	return Transfer{
		ID: row.ID, From: row.FromAccount, To: row.ToAccount, Amount: row.Amount, Currency: row.Currency,
		FromBalance: row.FromBalance, ToBalance: row.ToBalance,
		Reference: row.Reference, Metadata: row.Metadata, CreatedAt: row.CreatedAt.UTC(),
	}, err
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
	case t.Reference != nil && utf8.RuneCountInString(*t.Reference) > ReferenceCharsMax:
		return Invalid("reference", "must have at most %d characters", ReferenceCharsMax)
	case len(t.Metadata) > MetadataBytesMax:
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
