package main

import (
	"context"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/idem/replaycache"
)

// newCoreFiber is fibermw.Handle with the defaults.
func newCoreFiber(ctx context.Context, p *place) (*system, error) {
	return newHandleSystem(ctx, p, coreFiber, idem.Config{})
}

// newCachedFiber is fibermw.Handle that answers retries from memory where it can.
func newCachedFiber(ctx context.Context, p *place) (*system, error) {
	cache, err := replaycache.New(replaycache.Config{BytesMax: cacheBytes})
	if err != nil {
		return nil, err
	}
	return newHandleSystem(ctx, p, cacheFiber, idem.Config{ReplayCache: cache})
}

func newHandleSystem(ctx context.Context, p *place, name string, config idem.Config) (*system, error) {
	store, err := newStore(ctx, p, config)
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
	return &system{name: name, role: ours, floor: bareFiber, newClient: fiberClients(app)}, nil
}

// newDoBatchFiber is fibermw.HandleBatch with the defaults.
func newDoBatchFiber(ctx context.Context, p *place) (*system, error) {
	store, err := newStore(ctx, p, idem.Config{})
	if err != nil {
		return nil, err
	}
	app := fiber.New()
	config := fibermw.Config{Store: store, Scope: fiberUser}
	app.Post("/transfers", fibermw.HandleBatch(config, func(c *fiber.Ctx) (*idem.Batch, error) {
		r, err := fiberRequest(c)
		if err != nil {
			return nil, err
		}
		return r.batch(), nil
	}))
	return &system{
		name: "idempg DoBatch, Fiber", role: ours, floor: bareFiber, newClient: fiberClients(app),
	}, nil
}
