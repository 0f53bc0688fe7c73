package jobs

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/idem"
)

// onceTTL is longer than River goes on trying, which is three weeks.
const onceTTL = 60 * 24 * time.Hour

// once changes the book, once for all attempts of a job. Two of them may run at
// a time, when River has taken the first for that of a dead process. To complete
// the job in the same transaction (river.JobCompleteTx) does not exclude that:
// it succeeds for a job that was completed before.
type once struct {
	store *idem.Store
	on    func(pgx.Tx) book.Outbox
}

// do runs change for the book of tenant unless it was done for this step and id.
// With another outcome than it was done for, do returns idem.ErrKeyReused.
func (o once) do(ctx context.Context, tenant, step string, id uuid.UUID, outcome string, change func(context.Context, book.Book) error) error {
	request := idem.Request{
		Scope:       "jobs:" + tenant, // no tenant has a colon
		Operation:   step,
		Key:         step + " " + id.String(),
		Fingerprint: idem.NewFingerprint([]byte(outcome)),
		TTL:         onceTTL,
	}
	_, err := o.store.Do(ctx, request, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		return idem.Response{}, change(ctx, book.New(tenant, tx).With(o.on(tx)))
	})
	return err
}
