package jobs

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/idem"
)

// outbox writes jobs on a transaction.
type outbox struct {
	jobs *Jobs
	tx   pgx.Tx
}

// On returns an outbox whose jobs commit with tx.
func (j *Jobs) On(tx pgx.Tx) book.Outbox { return outbox{j, tx} }

// In returns an outbox whose jobs commit with batch, in which it queues River's
// own statements.
func (j *Jobs) In(batch *idem.Batch) book.Outbox {
	return outbox{j, recorder{pool: j.pool, batch: batch}}
}

func (o outbox) Emit(ctx context.Context, e book.Event) error {
	if o.jobs.webhook == nil {
		return nil
	}
	return o.insert(ctx, delivery{e}, &river.InsertOpts{Queue: queueWebhooks})
}

func (o outbox) insert(ctx context.Context, args river.JobArgs, options *river.InsertOpts) error {
	// Not InsertTx, which reads the row that it wrote.
	_, err := o.jobs.client.InsertManyTx(ctx, o.tx, []river.InsertManyParams{{Args: args, InsertOpts: options}})
	return err
}

// recorder is a transaction that takes down what River sends, to be sent with a
// batch. There are no rows yet, and so none are read.
type recorder struct {
	pgx.Tx // nil: River uses nothing but what is below
	pool   *pgxpool.Pool
	batch  *idem.Batch
}

func (r recorder) Exec(_ context.Context, sql string, arguments ...any) (pgconn.CommandTag, error) {
	r.batch.Queue(sql, arguments...)
	return pgconn.CommandTag{}, nil
}

func (r recorder) Query(_ context.Context, sql string, arguments ...any) (pgx.Rows, error) {
	r.batch.Queue(sql, arguments...)
	return noRows{}, nil
}

// QueryRow asks the database: River asks once which server it is.
func (r recorder) QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row {
	return r.pool.QueryRow(ctx, sql, arguments...)
}

// Config tells River how the connections of the pool spell arguments.
func (r recorder) Config() *pgxpool.Config { return r.pool.Config() }

type noRows struct{ pgx.Rows }

func (noRows) Next() bool { return false }
func (noRows) Err() error { return nil }
func (noRows) Close()     {}
