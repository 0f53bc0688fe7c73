package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// newBare is the floor: begin, the mutation, commit. A duplicate is carried out
// again.
func newBare(ctx context.Context, p *place) (*system, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	do := func(ctx context.Context, r request) (a answer, err error) {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			a.status = statusCreated
			a.body, err = r.mutate(ctx, tx)
			return err
		})
		return a, err
	}
	return &system{name: bare, role: floor, floor: bare, newClient: func() client { return do }}, nil
}

// newBareBatch is the same in one round trip: the two statements in one pipeline,
// which Postgres makes a transaction of. The answer is rendered after COMMIT.
func newBareBatch(ctx context.Context, p *place) (*system, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	do := func(ctx context.Context, r request) (answer, error) {
		var id int64
		var batch pgx.Batch
		batch.Queue(insertTransfer, r.transfer.Account, r.transfer.Cents, r.key).QueryRow(func(row pgx.Row) error {
			return row.Scan(&id)
		})
		batch.Queue(updateAccount, r.transfer.Account, r.transfer.Cents)
		err := pool.SendBatch(ctx, &batch).Close()
		return answer{status: statusCreated, body: render(id, r.transfer.BytesWant)}, err
	}
	return &system{name: bareBatch, role: floor, floor: bare, newClient: func() client { return do }}, nil
}
