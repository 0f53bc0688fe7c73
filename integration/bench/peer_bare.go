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
	return &system{name: bare, floor: bare, newClient: func() client { return do }, inFlight: "carried out again"}, nil
}
