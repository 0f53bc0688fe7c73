package main

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
	storage "github.com/gofiber/storage/redis/v3"
)

// newFiberIdempotency is Fiber's own middleware with its Redis storage, set up as
// its documentation shows. It reads the record, takes a lock of this process,
// reads again, and records after the handler. Keys have no scope and requests are
// not compared; two processes do not see each other's locks.
func newFiberIdempotency(ctx context.Context, p *place) (*system, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	app := fiber.New()
	app.Use(idempotency.New(idempotency.Config{
		KeyHeader: keyHeader,
		Lifetime:  24 * time.Hour,
		Storage:   storage.NewFromConnection(p.redis()),
	}))
	app.Post("/transfers", transferInTransaction(pool))
	return &system{
		name: "Fiber idempotency, Redis", role: peer, floor: bareFiber, newClient: fiberClients(app),
	}, nil
}
