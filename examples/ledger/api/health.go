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

// ready tells whether the database answers and has the tables that idem needs.
func ready(pool *pgxpool.Pool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		ctx, cancel := context.WithTimeout(c.UserContext(), readyTimeout)
		defer cancel()
		if err := migrations.Check(ctx, pool); err != nil {
			slog.ErrorContext(ctx, "not ready", "error", err)
			return fiber.ErrServiceUnavailable
		}
		return c.JSON(fiber.Map{"ok": true})
	}
}
