package api

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/fibermw"
)

func limitTime(c *fiber.Ctx) error {
	ctx, cancel := context.WithTimeout(c.UserContext(), RequestTimeout)
	defer cancel()
	c.SetUserContext(ctx)
	return c.Next()
}

// logRequests writes a line per request, without keys, bodies or queries.
func logRequests(c *fiber.Ctx) error {
	start := time.Now()
	if err := c.Next(); err != nil {
		if err := c.App().ErrorHandler(c, err); err != nil {
			return err
		}
	}
	result, _ := fibermw.Result(c)
	slog.InfoContext(c.UserContext(), "request",
		"method", c.Method(), "path", c.Path(), "status", c.Response().StatusCode(),
		"tenant", tenantOf(c), "replayed", result.Replayed, "duration", time.Since(start))
	return nil
}

func logPanic(c *fiber.Ctx, cause any) {
	slog.ErrorContext(c.UserContext(), "panic", "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
}
