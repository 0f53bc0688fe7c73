package book

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/idempg/idempg/examples/ledger/postgres"
)

// LegsMax is the most accounts that a linked transfer may change.
const LegsMax = 100

// Leg is what a linked transfer does to one account.
type Leg struct {
	Account  string `json:"account"`
	Amount   int64  `json:"amount"` // negative for an account that pays
	Currency string `json:"currency"`
	Balance  int64  `json:"balance"` // after it
}

// NewLinkedTransfer asks for a transfer with any number of legs, across accounts
// and currencies, all of which happen or none.
type NewLinkedTransfer struct {
	Legs      []NewLeg
	Reference *string
	Metadata  json.RawMessage
}

// NewLeg asks for a leg.
type NewLeg struct {
	Account  string
	Amount   int64 // negative for an account that pays
	Currency string
}

// LinkedTransfer changes all accounts of its legs. What they pay and get is the
// same in each currency.
func (b Book) LinkedTransfer(ctx context.Context, t NewLinkedTransfer) (Transfer, error) {
	if err := t.Validate(); err != nil {
		return Transfer{}, err
	}
	accounts, err := b.lock(ctx, t.accounts()...)
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
	return b.postLinked(ctx, id, t, nil)
}

func (t NewLinkedTransfer) accounts() []string {
	ids := make([]string, len(t.Legs))
	for i, leg := range t.Legs {
		ids[i] = leg.Account
	}
	return ids
}

// admit decides whether all accounts, as they are under their locks, permit the
// transfer.
func (t NewLinkedTransfer) admit(accounts map[string]*postgres.Account) error {
	for _, leg := range t.Legs {
		if err := ofCurrency(accounts, leg.Currency, leg.Account); err != nil {
			return err
		}
	}
	for _, leg := range t.Legs {
		if err := admit(accounts[leg.Account], leg.Amount); err != nil {
			return err
		}
	}
	return nil
}

// postLinked writes a transfer that was admitted, which may reverse another one.
func (b Book) postLinked(ctx context.Context, id uuid.UUID, t NewLinkedTransfer, reverses *uuid.UUID) (Transfer, error) {
	amounts := make([]int64, len(t.Legs))
	for i, leg := range t.Legs {
		amounts[i] = leg.Amount
	}
	rows, err := b.db.PostLinkedTransfer(ctx, postgres.PostLinkedTransferParams{
		Tenant: b.tenant, ID: id, Accounts: t.accounts(), Amounts: amounts,
		Reference: t.Reference, Metadata: t.Metadata, Reverses: reverses,
	})
	if err != nil {
		return Transfer{}, err
	}
	posted := Transfer{
		ID: id, Legs: make([]Leg, len(rows)), Reference: t.Reference, Metadata: t.Metadata,
		Reverses: reverses, CreatedAt: rows[0].CreatedAt.UTC(),
	}
	for i, row := range rows {
		posted.Legs[i] = Leg{row.Account, row.Amount, row.Currency, row.Balance}
	}
	return posted, EmitTransferPosted(ctx, b.outbox, b.tenant, posted)
}

// Validate checks what can be told from the request alone.
func (t NewLinkedTransfer) Validate() error {
	if len(t.Legs) < 2 || len(t.Legs) > LegsMax {
		return Invalid("legs", "must be 2 to %d", LegsMax)
	}
	sums, seen := map[string]int64{}, map[string]bool{}
	for i, leg := range t.Legs {
		field := func(name string) string { return fmt.Sprintf("legs[%d].%s", i, name) }
		if err := ValidateAccountID(field("account"), leg.Account); err != nil {
			return err
		}
		switch {
		case seen[leg.Account]:
			return Invalid(field("account"), "has a leg already: add up what one account pays and gets")
		case leg.Amount == 0 || leg.Amount < -MinorUnitsMax || leg.Amount > MinorUnitsMax:
			return Invalid(field("amount"), "must be an integer from -%d to %d, and not 0", MinorUnitsMax, MinorUnitsMax)
		case !currencyPattern.MatchString(leg.Currency):
			return Invalid(field("currency"), "must be three capital letters, such as EUR")
		}
		seen[leg.Account] = true
		sums[leg.Currency] += leg.Amount // LegsMax amounts do not overflow
	}
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		if sums[currency] != 0 {
			return Invalid("legs", "must sum to 0 in %s, and sum to %d", currency, sums[currency])
		}
	}
	return validateNotes(t.Reference, t.Metadata)
}
