package book

import (
	"context"
	"fmt"

	"github.com/idempg/idempg/examples/ledger/postgres"
)

// lock returns the accounts of ids under their locks, which everything that
// changes an account takes first, in the order of the ids. What is held in them
// beyond its time is released.
func (b Book) lock(ctx context.Context, ids ...string) (map[string]*postgres.Account, error) {
	accounts, held, err := b.readLocked(ctx, ids)
	if err != nil || !held {
		return accounts, err
	}
	released, err := b.db.ReleaseDueHolds(ctx, postgres.ReleaseDueHoldsParams{Tenant: b.tenant, Accounts: ids})
	if err == nil && released > 0 {
		accounts, _, err = b.readLocked(ctx, ids)
	}
	return accounts, err
}

// readLocked also tells whether anything is held in the accounts.
func (b Book) readLocked(ctx context.Context, ids []string) (accounts map[string]*postgres.Account, held bool, err error) {
	rows, err := b.db.LockAccounts(ctx, postgres.LockAccountsParams{Tenant: b.tenant, Ids: ids})
	if err != nil {
		return nil, false, err
	}
	accounts = map[string]*postgres.Account{}
	for i, row := range rows {
		accounts[row.ID] = &rows[i]
		held = held || row.Held > 0
	}
	for _, id := range ids {
		if accounts[id] == nil {
			return nil, false, fmt.Errorf("%w: %s", ErrAccountNotFound, id)
		}
	}
	return accounts, held, nil
}

// admit decides whether an account, as it is under its lock, permits a change
// of its balance, or a hold if change is negative.
func admit(account *postgres.Account, change int64) error {
	available := account.Balance - account.Held
	switch {
	case change > 0 && account.Balance+change > MinorUnitsMax:
		return fmt.Errorf("%w: the balance of account %s would exceed %d", ErrBalanceLimit, account.ID, MinorUnitsMax)
	case change > 0:
		return nil
	case account.MinBalance != nil && available+change < *account.MinBalance:
		return fmt.Errorf("%w: account %s may pay %d", ErrInsufficientFunds, account.ID, available-*account.MinBalance)
	case available+change < -MinorUnitsMax:
		return fmt.Errorf("%w: the balance of account %s would fall below -%d", ErrBalanceLimit, account.ID, MinorUnitsMax)
	}
	return nil
}

// ofCurrency checks what the accounts hold, in the order of ids.
func ofCurrency(accounts map[string]*postgres.Account, currency string, ids ...string) error {
	for _, id := range ids {
		if holds := accounts[id].Currency; holds != currency {
			return fmt.Errorf("%w: account %s holds %s, not %s", ErrCurrencyMismatch, id, holds, currency)
		}
	}
	return nil
}
