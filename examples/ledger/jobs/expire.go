package jobs

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"github.com/idempg/idempg/examples/ledger/book"
)

// earlyWait is for clocks that disagree: the database says when a hold expires.
const earlyWait = time.Second

// expiry releases a hold when its time is over. Every hold has one, but those of
// payouts.
type expiry struct {
	Tenant string    `json:"tenant"`
	Hold   uuid.UUID `json:"hold"`
}

func (expiry) Kind() string { return "expire_hold" }

func (o outbox) ExpireHold(ctx context.Context, tenant string, hold uuid.UUID, at time.Time) error {
	return o.insert(ctx, expiry{tenant, hold}, &river.InsertOpts{ScheduledAt: at})
}

type expirer struct {
	river.WorkerDefaults[expiry]
	once once
}

// Work releases the hold and writes its event. The hold may have been released
// by others before, so its state does not tell whether there is an event.
func (e *expirer) Work(ctx context.Context, job *river.Job[expiry]) error {
	return e.once.do(ctx, job.Args.Tenant, "expire", job.Args.Hold, "", func(ctx context.Context, ledger book.Book) error {
		hold, err := ledger.Expire(ctx, job.Args.Hold)
		if err == nil && hold.State == book.HoldPending {
			return river.JobSnooze(max(time.Until(hold.ExpiresAt), earlyWait))
		}
		return err
	})
}
