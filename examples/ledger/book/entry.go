package book

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/examples/ledger/postgres"
)

// Entry is one change of an account.
type Entry struct {
	Version    int64     `json:"version"` // counts the entries of the account, without gaps
	TransferID uuid.UUID `json:"transfer_id"`
	Amount     int64     `json:"amount"`  // negative for an account that paid
	Balance    int64     `json:"balance"` // after it
	CreatedAt  time.Time `json:"created_at"`
}

// AccountAt is an account as it was at one of its versions.
type AccountAt struct {
	ID       string    `json:"id"`
	Currency string    `json:"currency"`
	Balance  int64     `json:"balance"`
	Version  int64     `json:"version"`
	At       time.Time `json:"at"` // since when it was so
}

// Entries lists the entries of an account, newest first.
func (b Book) Entries(ctx context.Context, id string, page Page) ([]Entry, *string, error) {
	before := int64(math.MaxInt64)
	if page.Cursor != "" {
		var err error
		if before, err = strconv.ParseInt(page.Cursor, 10, 64); err != nil {
			return nil, nil, errCursor
		}
	}
	if _, err := b.Account(ctx, id); err != nil {
		return nil, nil, err
	}
	rows, err := b.db.Entries(ctx, postgres.EntriesParams{
		Tenant: b.tenant, AccountID: id, BeforeVersion: before, RowLimit: page.rows(),
	})
	entries := make([]Entry, len(rows))
	for i, row := range rows {
		entries[i] = entryOf(row)
	}
	entries, next := cut(page, entries, func(e Entry) string { return strconv.FormatInt(e.Version, 10) })
	return entries, next, err
}

// AccountAt finds an account as it was at a version, from 0.
func (b Book) AccountAt(ctx context.Context, id string, version int64) (AccountAt, error) {
	account, err := b.Account(ctx, id)
	if err != nil {
		return AccountAt{}, err
	}
	return b.asOf(ctx, account, version)
}

// asOf returns an account that was read as it was at a version.
func (b Book) asOf(ctx context.Context, account Account, version int64) (AccountAt, error) {
	at := AccountAt{ID: account.ID, Currency: account.Currency, Version: version, At: account.CreatedAt}
	if version == 0 {
		return at, nil
	}
	row, err := b.db.EntryAt(ctx, postgres.EntryAtParams{Tenant: b.tenant, AccountID: account.ID, Version: version})
	if errors.Is(err, pgx.ErrNoRows) {
		return AccountAt{}, fmt.Errorf("%w: account %s is at version %d", ErrVersionNotFound, account.ID, account.Version)
	}
	at.Balance, at.At = row.Balance, row.CreatedAt.UTC()
	return at, err
}

func entryOf(row postgres.Entry) Entry {
	return Entry{row.Version, row.TransferID, row.Amount, row.Balance, row.CreatedAt.UTC()}
}
