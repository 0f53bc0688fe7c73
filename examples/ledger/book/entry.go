package book

import (
	"context"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/idempg/idempg/examples/ledger/postgres"
)

// Entry is one line of an account's statement.
type Entry struct {
	Version    int64     `json:"version"`
	TransferID uuid.UUID `json:"transfer_id"`
	Amount     int64     `json:"amount"`  // negative for the payer
	Balance    int64     `json:"balance"` // after it
	CreatedAt  time.Time `json:"created_at"`
}

// NewestVersion is above every version of an account.
const NewestVersion = math.MaxInt64

// Entries lists the entries of an account below a version, newest first.
func (b Book) Entries(ctx context.Context, id string, limit int32, beforeVersion int64) ([]Entry, error) {
	if _, err := b.Account(ctx, id); err != nil {
		return nil, err
	}
	rows, err := b.db.Entries(ctx, postgres.EntriesParams{
		Tenant: b.tenant, AccountID: id, BeforeVersion: beforeVersion, RowLimit: limit,
	})
	entries := make([]Entry, len(rows))
	for i, row := range rows {
		entries[i] = Entry(row)
		entries[i].CreatedAt = row.CreatedAt.UTC()
	}
	return entries, err
}
