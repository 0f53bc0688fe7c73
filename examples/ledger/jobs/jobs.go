// Package jobs is what the ledger does outside of a request: it delivers events,
// has payouts carried out, releases holds whose time is over, and forgets expired
// idempotency records. A job is a row that commits with the change it follows
// from. River works it off, at least once, so whatever a job does, it does under
// a key that is the same in every attempt.
package jobs

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/idempg/idempg/examples/ledger/provider"
	"github.com/idempg/idempg/idem"
)

const (
	schema = "river"

	// A job is over long before it is taken for that of a process that died.
	jobTimeout    = 30 * time.Second
	rescueAfter   = time.Minute
	softStopAfter = 10 * time.Second // jobs that still run are cancelled; they run again
	stopTimeout   = softStopAfter + 5*time.Second
)

// Whoever is slow to answer must hold up nothing else.
const (
	queueWebhooks   = "webhooks"
	queuePayouts    = "payouts"
	workersWebhooks = 8
	workersPayouts  = 8
	workersDefault  = 4
)

// Config is what jobs stand on.
type Config struct {
	Pool     *pgxpool.Pool
	Store    *idem.Store
	Webhook  *Webhook         // where events go; nil: nowhere, and none is written
	Provider *provider.Client // who carries out payouts; nil: nobody, and none is accepted

	// RetryPolicy says when a job that failed runs again. Defaults to River's:
	// after n^4 seconds, 25 times, which is three weeks.
	RetryPolicy river.ClientRetryPolicy

	// SweepInterval is the time between two sweeps. Defaults to 5 minutes.
	SweepInterval time.Duration

	// OnSweep is told how each sweep ended, and how long it took. Defaults to
	// nobody.
	OnSweep func(idem.SweepResult, time.Duration, error)
}

// Jobs writes jobs, and works them off once it is started.
type Jobs struct {
	pool     *pgxpool.Pool
	client   *river.Client[pgx.Tx]
	webhook  *Webhook
	provider *provider.Client
}

// New returns jobs that can be written. Start works them off.
func New(config Config) (*Jobs, error) {
	if config.SweepInterval == 0 {
		config.SweepInterval = 5 * time.Minute
	}
	j := &Jobs{pool: config.Pool, webhook: config.Webhook, provider: config.Provider}
	once := once{config.Store, j.On}
	workers := river.NewWorkers()
	river.AddWorker(workers, &sweeper{store: config.Store, onSweep: config.OnSweep})
	river.AddWorker(workers, &deliverer{webhook: config.Webhook})
	river.AddWorker(workers, &expirer{once: once})
	river.AddWorker(workers, &payer{pool: config.Pool, provider: config.Provider, once: once})
	var err error
	j.client, err = river.NewClient(riverpgxv5.New(config.Pool), &river.Config{
		Schema: schema,
		Logger: slog.Default(),
		Queues: map[string]river.QueueConfig{
			river.QueueDefault: {MaxWorkers: workersDefault},
			queueWebhooks:      {MaxWorkers: workersWebhooks},
			queuePayouts:       {MaxWorkers: workersPayouts},
		},
		Workers:              workers,
		PeriodicJobs:         []*river.PeriodicJob{periodicSweep(config.SweepInterval)},
		RetryPolicy:          config.RetryPolicy,
		JobTimeout:           jobTimeout,
		RescueStuckJobsAfter: rescueAfter,
		SoftStopTimeout:      softStopAfter,
	})
	return j, err
}

// Start works off jobs until Stop. It returns an error when the database does
// not answer.
func (j *Jobs) Start(ctx context.Context) error {
	return j.client.Start(context.WithoutCancel(ctx)) // the end of ctx drains first
}

// Stop lets the jobs that run finish, cancels them after 10 seconds, and returns
// when the pool is no longer used. After 15 seconds it returns an error.
func (j *Jobs) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return j.client.Stop(ctx)
}
