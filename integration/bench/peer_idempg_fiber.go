package main

import (
	"context"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// newCoreFiber is fibermw.Handle with the defaults.
func newCoreFiber(ctx context.Context, p *place) (*system, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		return nil, err
	}
	handler := fibermw.Handle(fibermw.Config{Store: store, Scope: fiberUser}, func(c *fiber.Ctx, tx pgx.Tx) error {
		r, err := fiberRequest(c)
		if err != nil {
			return err
		}
		body, err := r.mutate(c.UserContext(), tx)
		if err != nil {
			return err
		}
		return sendCreated(c, body)
	})
	app := fiber.New()
	app.Post("/transfers", handler)
	app.Post("/noop", handler)
	return &system{name: coreFiber, floor: bareFiber, newClient: fiberClients(app), inFlight: "409"}, nil
}
