package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

const answersTable = `
create table bench.answers (
    key    uuid     primary key,
    status smallint not null,
    body   bytea    compression lz4 not null
);`

// newPrimaryKey is the floor of a replay: one SELECT of an answer by its primary
// key, with no transaction around it and nothing compared. What it reads it has
// made in a transaction that nothing protects from duplicates.
func newPrimaryKey(ctx context.Context, p *place) (*system, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	do := func(ctx context.Context, r request) (a answer, err error) {
		err = pool.QueryRow(ctx, "select status, body from bench.answers where key = $1::text::uuid", r.key).Scan(&a.status, &a.body)
		if !errors.Is(err, pgx.ErrNoRows) {
			return a, err
		}
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			a.status = statusCreated
			if a.body, err = r.mutate(ctx, tx); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "insert into bench.answers (key, status, body) values ($1::text::uuid, $2, $3)", r.key, a.status, a.body)
			return err
		})
		return a, err
	}
	return &system{name: primaryKey, role: floor, floor: primaryKey, newClient: func() client { return do }}, nil
}
