package book

import (
	"context"
	"encoding/json"
	"fmt"
)

// Audit is what the entries say about the book of a tenant, compared with the
// balances that are kept beside them.
type Audit struct {
	OK                  bool             `json:"ok"`
	Accounts            int64            `json:"accounts"`
	Transfers           int64            `json:"transfers"`
	SumByCurrency       map[string]int64 `json:"sum_by_currency"`      // of all entries: each must be 0
	BalanceMismatches   int64            `json:"balance_mismatches"`   // accounts whose balance or version is not what their entries make
	HeldMismatches      int64            `json:"held_mismatches"`      // accounts whose held is not what their pending holds make
	UnbalancedTransfers int64            `json:"unbalanced_transfers"` // transfers whose entries are not two or do not sum to 0
}

// Audit recomputes the book from the entries.
func (b Book) Audit(ctx context.Context) (Audit, error) {
	row, err := b.db.Audit(ctx, b.tenant)
	if err != nil {
		return Audit{}, err
	}
	audit := Audit{
		Accounts: row.Accounts, Transfers: row.Transfers,
		BalanceMismatches: row.BalanceMismatches,
		HeldMismatches:    row.HeldMismatches, UnbalancedTransfers: row.UnbalancedTransfers,
	}
	if err := json.Unmarshal(row.SumByCurrency, &audit.SumByCurrency); err != nil {
		return Audit{}, fmt.Errorf("sum_by_currency: %w", err)
	}
	audit.OK = audit.BalanceMismatches == 0 && audit.HeldMismatches == 0 && audit.UnbalancedTransfers == 0
	for _, sum := range audit.SumByCurrency {
		audit.OK = audit.OK && sum == 0
	}
	return audit, nil
}
