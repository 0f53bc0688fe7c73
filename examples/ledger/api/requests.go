package api

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gofiber/contrib/otelfiber/v2"
	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/idempg/idempg/examples/ledger/telemetry"
	"github.com/idempg/idempg/idem"
)

const noRoute = "-" // of a request that no handler was found for

// requestIDPattern keeps the ids of others from filling the log, or forging it.
var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// traceRequests makes a span of each request, within the caller's trace if it
// names one.
func traceRequests(provider trace.TracerProvider) fiber.Handler {
	return otelfiber.Middleware(
		otelfiber.WithTracerProvider(provider),
		otelfiber.WithPropagators(propagation.TraceContext{}),
		otelfiber.WithSpanNameFormatter(func(c *fiber.Ctx) string { return c.Route().Method + " " + c.Route().Path }),
	)
}

// observeRequests names each request, renders the errors of what follows, counts
// it, and writes a line about it.
func observeRequests(metrics *telemetry.Metrics) fiber.Handler {
	return func(c *fiber.Ctx) error {
		start, own := time.Now(), c.Route()
		ctx, request := telemetry.WithRequest(c.UserContext(), requestID(c))
		c.SetUserContext(ctx)
		if err := c.Next(); err != nil {
			if err := c.App().ErrorHandler(c, err); err != nil {
				return err
			}
		}
		route := noRoute
		if c.Route() != own {
			route = c.Route().Path
		}
		duration, calls := time.Since(start), request.Calls()
		metrics.ObserveRequest(own.Method, route, c.Response().StatusCode(), duration, calls)
		logRequest(ctx, c, route, duration, calls)
		return nil
	}
}

// requestID is the caller's id of the request if it sent a fit one, else a new
// one. It is answered too, and belongs to one attempt: fibermw never records it.
func requestID(c *fiber.Ctx) string {
	id := strings.Clone(c.Get(fiber.HeaderXRequestID)) // Fiber will use its buffer again
	if !requestIDPattern.MatchString(id) {
		id = uuid.NewString()
	}
	c.Set(fiber.HeaderXRequestID, id)
	return id
}

// logRequest writes a line, without keys, bodies or queries; of a list also one
// for each item. A key is named by the id of its record, a digest of tenant and
// key: who has the key can find its lines, and the log gives no key away.
func logRequest(ctx context.Context, c *fiber.Ctx, route string, duration time.Duration, calls []idem.Call) {
	line := []any{
		"method", c.Method(), "route", route, "path", c.Path(), "status", c.Response().StatusCode(),
		"tenant", tenantOf(c), "seconds", duration.Seconds(),
	}
	if len(calls) == 1 {
		line = append(line, "outcome", string(calls[0].Outcome), "key_hash", calls[0].RecordID)
	}
	if len(calls) > 1 {
		for _, call := range calls {
			slog.InfoContext(ctx, "item", "route", route, "tenant", tenantOf(c),
				"outcome", string(call.Outcome), "key_hash", call.RecordID)
		}
		line = append(line, "items", len(calls))
	}
	slog.Log(ctx, levelOf(c), "request", line...)
}

// levelOf keeps probes and scrapes that went well out of the log.
func levelOf(c *fiber.Ctx) slog.Level {
	if c.Response().StatusCode() < fiber.StatusBadRequest && !strings.HasPrefix(c.Path(), "/v1/") {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func logPanic(c *fiber.Ctx, cause any) {
	slog.ErrorContext(c.UserContext(), "panic", "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
}

func limitTime(c *fiber.Ctx) error {
	ctx, cancel := context.WithTimeout(c.UserContext(), RequestTimeout)
	defer cancel()
	c.SetUserContext(ctx)
	return c.Next()
}
