package jobs

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/examples/ledger/provider"
)

// payment asks the provider to carry out a payout.
type payment struct {
	Tenant string    `json:"tenant"`
	Payout uuid.UUID `json:"payout"`
}

func (payment) Kind() string { return "pay" }

func (o outbox) Pay(ctx context.Context, tenant string, payout uuid.UUID) error {
	if o.jobs.provider == nil {
		return book.ErrPayoutsUnavailable
	}
	return o.insert(ctx, payment{tenant, payout}, &river.InsertOpts{Queue: queuePayouts})
}

type payer struct {
	river.WorkerDefaults[payment]
	pool     *pgxpool.Pool
	provider *provider.Client
	once     once
}

// Work charges and then applies what the provider said. It may die in between,
// or not hear the answer: the next attempt asks with the same key, and the
// provider says the same again.
func (p *payer) Work(ctx context.Context, job *river.Job[payment]) error {
	if p.provider == nil {
		return errors.New("no provider is configured any more")
	}
	payout, err := book.New(job.Args.Tenant, p.pool).FindPayout(ctx, job.Args.Payout)
	if err != nil || payout.State != book.PayoutPending {
		return err
	}
	paid, err := p.provider.Charge(ctx, payout.ChargeKey.String(), provider.Charge{
		Amount: payout.Amount, Currency: payout.Currency, Destination: payout.Destination, Reference: payout.Reference,
	})
	var refused *provider.RefusedError
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	outcome := "paid " + paid.ID
	if refused != nil {
		outcome = "refused"
	}
	return p.once.do(ctx, job.Args.Tenant, "pay", payout.ID, outcome, func(ctx context.Context, ledger book.Book) error {
		if refused != nil {
			return ledger.PayoutFailed(ctx, payout.ID, refused.Reason)
		}
		return ledger.PayoutPaid(ctx, payout.ID, paid.ID)
	})
}
