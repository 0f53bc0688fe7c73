package api

import (
	"context"
	"log/slog"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/migrations"
)

const readyTimeout = 2 * time.Second

// draining is not an error of the service, so it is not logged as one.
var draining = Problem{Type: "about:blank", Title: "draining", Status: fiber.StatusServiceUnavailable}

// ready tells whether requests may be sent here: not while the service drains,
// and not unless the database answers and has the tables that idem needs.
func ready(pool *pgxpool.Pool, drains <-chan struct{}) fiber.Handler {
	return func(c *fiber.Ctx) error {
		select {
		case <-drains:
			return c.Status(fiber.StatusServiceUnavailable).JSON(draining, mimeProblem)
		default:
		}
		ctx, cancel := context.WithTimeout(c.UserContext(), readyTimeout)
		defer cancel()
		if err := migrations.Check(ctx, pool); err != nil {
			slog.ErrorContext(ctx, "not ready", "error", err)
			return fiber.ErrServiceUnavailable
		}
		return c.JSON(fiber.Map{"ok": true})
	}
}
