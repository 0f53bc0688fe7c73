package book

import (
	"context"
	"fmt"
	"time"

	"github.com/idempg/idempg/examples/ledger/postgres"
)

// Statement is what happened to an account in a period. The opening balance and
// the amounts of all lines, those of later pages too, add up to the closing one.
type Statement struct {
	Account    string    `json:"account"`
	Currency   string    `json:"currency"`
	From       time.Time `json:"from"` // inclusive
	To         time.Time `json:"to"`   // exclusive, and not in the future
	Opening    int64     `json:"opening"`
	Closing    int64     `json:"closing"`
	Lines      []Entry   `json:"lines"` // oldest first
	NextCursor *string   `json:"next_cursor"`
}

// Statement makes the statement of an account from one time to another. It is
// cut by versions, not by the times of its lines, so it reconciles whatever a
// clock has done. The cursor keeps the cut, so the pages of a statement belong
// together while transfers go on.
func (b Book) Statement(ctx context.Context, id string, from, to time.Time, page Page) (Statement, error) {
	account, err := b.Account(ctx, id)
	if err != nil {
		return Statement{}, err
	}
	if from.IsZero() {
		from = account.CreatedAt
	}
	span, err := b.span(ctx, id, from, to, page)
	if err != nil {
		return Statement{}, err
	}
	opening, err := b.asOf(ctx, account, span.opening)
	if err != nil {
		return Statement{}, err
	}
	closing, err := b.asOf(ctx, account, span.closing)
	if err != nil {
		return Statement{}, err
	}
	s := Statement{
		Account: id, Currency: account.Currency, From: from.UTC(), To: span.to,
		Opening: opening.Balance, Closing: closing.Balance,
	}
	rows, err := b.db.StatementLines(ctx, postgres.StatementLinesParams{
		Tenant: b.tenant, AccountID: id, AfterVersion: span.after, UpToVersion: span.closing, RowLimit: page.rows(),
	})
	if err != nil {
		return Statement{}, err
	}
	s.Lines = make([]Entry, len(rows))
	for i, row := range rows {
		s.Lines[i] = entryOf(row)
	}
	s.Lines, s.NextCursor = cut(page, s.Lines, func(last Entry) string {
		span.after = last.Version
		return span.cursor()
	})
	return s, nil
}

// statementSpan is the part of an account's entries that a statement shows, and
// how far the pages before have come.
type statementSpan struct {
	opening, closing, after int64 // versions
	to                      time.Time
}

const spanFormat = "%d.%d.%d.%d"

func (s statementSpan) cursor() string {
	return fmt.Sprintf(spanFormat, s.opening, s.closing, s.after, s.to.UnixMicro())
}

// span asks the database on the first page, and the cursor on the others.
func (b Book) span(ctx context.Context, id string, from, to time.Time, page Page) (statementSpan, error) {
	if page.Cursor == "" {
		bounds, err := b.db.StatementBounds(ctx, postgres.StatementBoundsParams{Tenant: b.tenant, AccountID: id, Since: from, Until: to})
		return statementSpan{bounds.Opening, bounds.Closing, bounds.Opening, bounds.Until.UTC()}, err
	}
	var s statementSpan
	var to64 int64
	if n, err := fmt.Sscanf(page.Cursor, spanFormat, &s.opening, &s.closing, &s.after, &to64); n != 4 || err != nil {
		return statementSpan{}, errCursor
	}
	s.to = time.UnixMicro(to64).UTC()
	return s, nil
}
