package main

import (
	"context"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// newBareFiber is the floor under Fiber: a handler with a transaction.
func newBareFiber(ctx context.Context, p *place) (*system, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	app := fiber.New()
	app.Post("/transfers", transferInTransaction(pool))
	return &system{name: bareFiber, role: floor, floor: bareFiber, newClient: fiberClients(app)}, nil
}

// transferInTransaction is a handler that knows nothing of keys.
func transferInTransaction(pool *pgxpool.Pool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		r, err := fiberRequest(c)
		if err != nil {
			return err
		}
		var body []byte
		err = pgx.BeginFunc(c.UserContext(), pool, func(tx pgx.Tx) error {
			body, err = r.mutate(c.UserContext(), tx)
			return err
		})
		if err != nil {
			return err
		}
		return sendCreated(c, body)
	}
}
