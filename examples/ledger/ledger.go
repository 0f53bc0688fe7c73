package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/examples/ledger/postgres"
)

// The limits of the ledger. The schema repeats them.
const (
	minorUnitsMax      = 1 << 53 // exact in every JSON reader, and no sum of two overflows
	referenceCharsMax  = 140
	metadataBytesMax   = 4096
	entriesPageMax     = 1000
	entriesPageDefault = 100
)

var (
	accountIDPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	currencyPattern  = regexp.MustCompile(`^[A-Z]{3}$`)
)

// The refusals of the ledger. They are wrapped with what they are about, in
// words that the client may read.
var (
	errAccountNotFound   = errors.New("account not found")
	errAccountExists     = errors.New("account exists")
	errTransferNotFound  = errors.New("transfer not found")
	errInsufficientFunds = errors.New("insufficient funds")
	errCurrencyMismatch  = errors.New("currency mismatch")
	errBalanceLimit      = errors.New("balance limit")
)

// invalidError says which field of a request is wrong, and why.
type invalidError struct{ field, reason string }

func (e *invalidError) Error() string { return e.field + " " + e.reason }

func invalid(field, format string, args ...any) error {
	return &invalidError{field, fmt.Sprintf(format, args...)}
}

// Account is an account as it is answered.
type Account struct {
	ID         string    `json:"id"`
	Currency   string    `json:"currency"`
	Balance    int64     `json:"balance"`
	MinBalance *int64    `json:"min_balance"` // nil: unbounded
	Version    int64     `json:"version"`     // how many entries it has
	CreatedAt  time.Time `json:"created_at"`
}

// Entry is one line of an account's statement.
type Entry struct {
	Version    int64     `json:"version"`
	TransferID uuid.UUID `json:"transfer_id"`
	Amount     int64     `json:"amount"`  // negative for the payer
	Balance    int64     `json:"balance"` // after it
	CreatedAt  time.Time `json:"created_at"`
}

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

// NewAccount asks for an account.
type NewAccount struct {
	ID         *string // nil: a new UUID
	Currency   string
	MinBalance *int64 // nil: unbounded
}

// NewTransfer asks for a transfer.
type NewTransfer struct {
	From, To  string
	Amount    int64
	Currency  string
	Reference *string
	Metadata  json.RawMessage
}

// Ledger is the book of one tenant. It works on the pool to read, and on the
// transaction it is given to write.
type Ledger struct {
	tenant string
	db     *postgres.Queries
}

func newLedger(tenant string, db postgres.DBTX) Ledger {
	return Ledger{tenant: tenant, db: postgres.New(db)}
}

// OpenAccount opens an account with balance 0.
func (l Ledger) OpenAccount(ctx context.Context, a NewAccount) (Account, error) {
	if a.ID == nil {
		id, err := uuid.NewV7()
		if err != nil {
			return Account{}, err
		}
		text := id.String()
		a.ID = &text
	}
	if err := a.validate(); err != nil {
		return Account{}, err
	}
	row, err := l.db.OpenAccount(ctx, postgres.OpenAccountParams{
		Tenant: l.tenant, ID: *a.ID, Currency: a.Currency, MinBalance: a.MinBalance,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Account{}, fmt.Errorf("%w: %s", errAccountExists, *a.ID)
	}
	return accountOf(row), err
}

// Transfer moves an amount from one account to the other.
func (l Ledger) Transfer(ctx context.Context, t NewTransfer) (Transfer, error) {
	if err := t.validate(); err != nil {
		return Transfer{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Transfer{}, err
	}
	locked, err := l.db.LockAccounts(ctx, postgres.LockAccountsParams{Tenant: l.tenant, Ids: []string{t.From, t.To}})
	if err != nil {
		return Transfer{}, err
	}
	if err := t.check(locked); err != nil {
		return Transfer{}, err
	}
	posted, err := l.db.PostTransfer(ctx, postgres.PostTransferParams{
		Tenant: l.tenant, ID: id, FromAccount: t.From, ToAccount: t.To,
		Amount: t.Amount, Currency: t.Currency, Reference: t.Reference, Metadata: t.Metadata,
	})
	return Transfer{
		ID: id, From: t.From, To: t.To, Amount: t.Amount, Currency: t.Currency,
		FromBalance: posted.FromBalance, ToBalance: posted.ToBalance,
		Reference: t.Reference, Metadata: t.Metadata, CreatedAt: posted.CreatedAt.UTC(),
	}, err
}

// Account finds an account.
func (l Ledger) Account(ctx context.Context, id string) (Account, error) {
	row, err := l.db.Account(ctx, postgres.AccountParams{Tenant: l.tenant, ID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		return Account{}, fmt.Errorf("%w: %s", errAccountNotFound, id)
	}
	return accountOf(row), err
}

// Entries lists the entries of an account below a version, newest first.
func (l Ledger) Entries(ctx context.Context, id string, limit int32, beforeVersion int64) ([]Entry, error) {
	if _, err := l.Account(ctx, id); err != nil {
		return nil, err
	}
	rows, err := l.db.Entries(ctx, postgres.EntriesParams{
		Tenant: l.tenant, AccountID: id, BeforeVersion: beforeVersion, RowLimit: limit,
	})
	entries := make([]Entry, len(rows))
	for i, row := range rows {
		entries[i] = Entry(row)
		entries[i].CreatedAt = row.CreatedAt.UTC()
	}
	return entries, err
}

// FindTransfer finds a transfer.
func (l Ledger) FindTransfer(ctx context.Context, id uuid.UUID) (Transfer, error) {
	row, err := l.db.Transfer(ctx, postgres.TransferParams{Tenant: l.tenant, ID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		return Transfer{}, fmt.Errorf("%w: %s", errTransferNotFound, id)
	}
	return Transfer{
		ID: row.ID, From: row.FromAccount, To: row.ToAccount, Amount: row.Amount, Currency: row.Currency,
		FromBalance: row.FromBalance, ToBalance: row.ToBalance,
		Reference: row.Reference, Metadata: row.Metadata, CreatedAt: row.CreatedAt.UTC(),
	}, err
}

func accountOf(row postgres.Account) Account {
	return Account{
		ID: row.ID, Currency: row.Currency, Balance: row.Balance,
		MinBalance: row.MinBalance, Version: row.Version, CreatedAt: row.CreatedAt.UTC(),
	}
}

func (a NewAccount) validate() error {
	switch {
	case validateAccountID("id", *a.ID) != nil:
		return validateAccountID("id", *a.ID)
	case !currencyPattern.MatchString(a.Currency):
		return invalid("currency", "must be three capital letters, such as EUR")
	case a.MinBalance != nil && (*a.MinBalance > 0 || *a.MinBalance < -minorUnitsMax):
		return invalid("min_balance", "must be null or an integer from -%d to 0", minorUnitsMax)
	}
	return nil
}

func validateAccountID(field, id string) error {
	// Both would vanish from a URL's path.
	if !accountIDPattern.MatchString(id) || id == "." || id == ".." {
		return invalid(field, "must be 1 to 64 of A-Z a-z 0-9 _ . - and not . or ..")
	}
	return nil
}

// validate checks what can be told from the request alone.
func (t NewTransfer) validate() error {
	if err := validateAccountID("from", t.From); err != nil {
		return err
	}
	if err := validateAccountID("to", t.To); err != nil {
		return err
	}
	switch {
	case t.From == t.To:
		return invalid("to", "must be another account than from")
	case t.Amount < 1 || t.Amount > minorUnitsMax:
		return invalid("amount", "must be an integer from 1 to %d", minorUnitsMax)
	case !currencyPattern.MatchString(t.Currency):
		return invalid("currency", "must be three capital letters, such as EUR")
	case t.Reference != nil && utf8.RuneCountInString(*t.Reference) > referenceCharsMax:
		return invalid("reference", "must have at most %d characters", referenceCharsMax)
	case len(t.Metadata) > metadataBytesMax:
		return invalid("metadata", "must have at most %d bytes", metadataBytesMax)
	}
	return nil
}

// check decides whether the accounts, as they are under their locks, permit
// the transfer.
func (t NewTransfer) check(locked []postgres.Account) error {
	accounts := map[string]postgres.Account{}
	for _, account := range locked {
		accounts[account.ID] = account
	}
	for _, id := range []string{t.From, t.To} {
		if _, found := accounts[id]; !found {
			return fmt.Errorf("%w: %s", errAccountNotFound, id)
		}
	}
	for _, id := range []string{t.From, t.To} {
		if currency := accounts[id].Currency; currency != t.Currency {
			return fmt.Errorf("%w: account %s holds %s, not %s", errCurrencyMismatch, id, currency, t.Currency)
		}
	}

	payer, payee := accounts[t.From], accounts[t.To]
	least := int64(-minorUnitsMax)
	if payer.MinBalance != nil {
		least = *payer.MinBalance
	}
	switch {
	case payer.Balance-t.Amount < least && payer.MinBalance != nil:
		return fmt.Errorf("%w: account %s may pay %d", errInsufficientFunds, t.From, payer.Balance-least)
	case payer.Balance-t.Amount < least:
		return fmt.Errorf("%w: the balance of account %s would fall below -%d", errBalanceLimit, t.From, minorUnitsMax)
	case payee.Balance+t.Amount > minorUnitsMax:
		return fmt.Errorf("%w: the balance of account %s would exceed %d", errBalanceLimit, t.To, minorUnitsMax)
	}
	return nil
}

// newestVersion is above every version of an account.
const newestVersion = math.MaxInt64
