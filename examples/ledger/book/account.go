package book

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/examples/ledger/postgres"
)

var (
	accountIDPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	currencyPattern  = regexp.MustCompile(`^[A-Z]{3}$`)
)

// Account is an account as it is answered.
type Account struct {
	ID         string    `json:"id"`
	Currency   string    `json:"currency"`
	Balance    int64     `json:"balance"`
	Held       int64     `json:"held"`        // reserved by pending holds
	Available  *int64    `json:"available"`   // what it may still pay; nil: without end
	MinBalance *int64    `json:"min_balance"` // nil: unbounded
	Version    int64     `json:"version"`     // how many entries it has
	CreatedAt  time.Time `json:"created_at"`
}

// NewAccount asks for an account.
type NewAccount struct {
	ID         *string // nil: a new UUID
	Currency   string
	MinBalance *int64 // nil: unbounded
}

// OpenAccount opens an account with balance 0.
func (b Book) OpenAccount(ctx context.Context, a NewAccount) (Account, error) {
	if a.ID == nil {
		id, err := uuid.NewV7()
		if err != nil {
			return Account{}, err
		}
		text := id.String()
		a.ID = &text
	}
	if err := a.Validate(); err != nil {
		return Account{}, err
	}
	row, err := b.db.OpenAccount(ctx, postgres.OpenAccountParams{
		Tenant: b.tenant, ID: *a.ID, Currency: a.Currency, MinBalance: a.MinBalance,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Account{}, fmt.Errorf("%w: %s", ErrAccountExists, *a.ID)
	}
	return accountOf(row), err
}

// Account finds an account.
func (b Book) Account(ctx context.Context, id string) (Account, error) {
	row, err := b.db.Account(ctx, postgres.AccountParams{Tenant: b.tenant, ID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		return Account{}, fmt.Errorf("%w: %s", ErrAccountNotFound, id)
	}
	row.Account.Held -= row.HeldBeyondTime
	return accountOf(row.Account), err
}

// Accounts lists accounts in the order of their ids.
func (b Book) Accounts(ctx context.Context, page Page) ([]Account, *string, error) {
	rows, err := b.db.Accounts(ctx, postgres.AccountsParams{Tenant: b.tenant, After: page.Cursor, RowLimit: page.rows()})
	accounts := make([]Account, len(rows))
	for i, row := range rows {
		row.Account.Held -= row.HeldBeyondTime
		accounts[i] = accountOf(row.Account)
	}
	accounts, next := cut(page, accounts, func(a Account) string { return a.ID })
	return accounts, next, err
}

func accountOf(row postgres.Account) Account {
	a := Account{
		ID: row.ID, Currency: row.Currency, Balance: row.Balance, Held: row.Held,
		MinBalance: row.MinBalance, Version: row.Version, CreatedAt: row.CreatedAt.UTC(),
	}
	if row.MinBalance != nil {
		available := row.Balance - row.Held - *row.MinBalance
		a.Available = &available
	}
	return a
}

// Validate checks what can be told from the request alone.
func (a NewAccount) Validate() error {
	switch {
	case ValidateAccountID("id", *a.ID) != nil:
		return ValidateAccountID("id", *a.ID)
	case !currencyPattern.MatchString(a.Currency):
		return Invalid("currency", "must be three capital letters, such as EUR")
	case a.MinBalance != nil && (*a.MinBalance > 0 || *a.MinBalance < -MinorUnitsMax):
		return Invalid("min_balance", "must be null or an integer from -%d to 0", MinorUnitsMax)
	}
	return nil
}

// ValidateAccountID checks an id, which errors call field.
func ValidateAccountID(field, id string) error {
	// Both would vanish from a URL's path.
	if !accountIDPattern.MatchString(id) || id == "." || id == ".." {
		return Invalid(field, "must be 1 to 64 of A-Z a-z 0-9 _ . - and not . or ..")
	}
	return nil
}
