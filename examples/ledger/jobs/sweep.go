package jobs

import (
	"context"
	"log/slog"
	"time"

	"github.com/riverqueue/river"

	"github.com/idempg/idempg/idem"
)

// sweep forgets expired idempotency records.
type sweep struct{}

func (sweep) Kind() string { return "sweep" }

// periodicSweep is written by the instance that leads, and once in an interval
// although another may become it.
func periodicSweep(interval time.Duration) *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(interval), func() (river.JobArgs, *river.InsertOpts) {
		// The next one does what is left when this one fails.
		return sweep{}, &river.InsertOpts{MaxAttempts: 1, UniqueOpts: river.UniqueOpts{ByPeriod: interval}}
	}, &river.PeriodicJobOpts{RunOnStart: true})
}

type sweeper struct {
	river.WorkerDefaults[sweep]
	store   *idem.Store
	onSweep func(idem.SweepResult, time.Duration, error)
}

// Work sweeps until nothing that has expired is left, or the time of a job is
// over: the next one goes on then.
func (s *sweeper) Work(ctx context.Context, _ *river.Job[sweep]) error {
	for {
		start := time.Now()
		result, err := s.store.Sweep(ctx, idem.SweepOptions{})
		slog.InfoContext(ctx, "sweep", "records", result.Records, "more", result.More) // River logs err
		if s.onSweep != nil {
			s.onSweep(result, time.Since(start), err)
		}
		if err != nil || !result.More {
			return err
		}
	}
}
