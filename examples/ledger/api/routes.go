// Package api is the ledger over HTTP. Its POST handlers run in the transaction
// that also holds the idempotency key.
package api

import (
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/examples/ledger/page"
	"github.com/idempg/idempg/examples/ledger/telemetry"
	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// The limits of a request.
const (
	BodyBytesMax   = 64 << 10         // that a handler reads
	ReadBytesMax   = 8 << 20          // above it the connection is cut off, and the answer may be lost
	RequestTimeout = 15 * time.Second // of its work; COMMIT has its own
	readTimeout    = 10 * time.Second // of a request's bytes
	idleTimeout    = time.Minute
)

// Config is what the service stands on. Pool, Store, Keys and Outboxes are
// required.
type Config struct {
	Pool     *pgxpool.Pool
	Store    *idem.Store
	Keys     Keys
	Outboxes Outboxes
	Page     page.Config // its Crash makes the API honour the header Ledger-Demo-Crash

	// Metrics count requests. Defaults to some that nobody reads.
	Metrics *telemetry.Metrics
	// ServeMetrics answers /metrics, to whoever can reach the service.
	ServeMetrics bool
	// Tracing makes a span of each request. nil makes none.
	Tracing *telemetry.Tracing
	// Draining is closed when no more requests shall come: /readyz then says so.
	// nil never is.
	Draining <-chan struct{}
}

// Outboxes make outboxes that commit with what a request writes.
type Outboxes interface {
	On(tx pgx.Tx) book.Outbox         // by a handler
	In(batch *idem.Batch) book.Outbox // as SQL alone
}

// New routes requests. A handler gets the book of the tenant that was
// authenticated: to read, on the pool; to write, on the transaction that holds
// the idempotency key.
func New(config Config) *fiber.App {
	pool, store, crash := config.Pool, config.Store, crashes(config.Page.Crash)
	if config.Metrics == nil {
		config.Metrics = telemetry.NewMetrics(pool)
	}
	read := func(handler func(*fiber.Ctx, book.Book) error) fiber.Handler {
		return func(c *fiber.Ctx) error { return handler(c, book.New(tenantOf(c), pool)) }
	}
	once := func(handler func(*fiber.Ctx, book.Book) error) fiber.Handler {
		rules := fibermw.Config{Store: store, Scope: tenantScope, ErrorHandler: passProblem}
		return fibermw.Handle(rules, func(c *fiber.Ctx, tx pgx.Tx) error {
			err := handler(c, book.New(tenantOf(c), tx).With(config.Outboxes.On(tx)))
			crash.at(c, crashBefore)
			return err
		})
	}

	app := fiber.New(fiber.Config{
		BodyLimit: ReadBytesMax, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		CaseSensitive: true, StrictRouting: true,
		// A browser by itself sends again what fails on a connection that it had
		// used before, and would hide the crash.
		DisableKeepalive: config.Page.Crash,
		ErrorHandler:     renderError, DisableStartupMessage: true,
	})
	recovery := recover.New(recover.Config{EnableStackTrace: true, StackTraceHandler: logPanic})
	// The page asks every two seconds what is new, so it stays out of the log.
	page.Register(app, config.Page)
	app.Get("/page/live", recovery, config.Keys.authenticate, limitTime, read(page.Live(store, tenantScope)))
	if config.Tracing != nil {
		app.Use(traceRequests(config.Tracing.Provider))
	}
	app.Use(observeRequests(config.Metrics), recovery)
	app.Get("/healthz", func(c *fiber.Ctx) error { return c.JSON(fiber.Map{"ok": true}) })
	app.Get("/readyz", ready(pool, config.Draining))
	app.Get("/openapi.yaml", getOpenAPI)
	if config.ServeMetrics {
		app.Get("/metrics", adaptor.HTTPHandler(config.Metrics.Handler()))
	}

	v1 := app.Group("/v1", config.Keys.authenticate, limitTime, crash.afterCommit)
	v1.Post("/accounts", once(postAccount))
	v1.Get("/accounts", read(getAccounts))
	v1.Get("/accounts/:id", read(getAccount))
	v1.Get("/accounts/:id/entries", read(getEntries))
	v1.Get("/accounts/:id/statement", read(getStatement))
	// A transfer is SQL through and through, so fibermw.HandleBatch could run it
	// in one round trip, as the list does. This one keeps the handler in Go: its
	// refusals name accounts and balances.
	v1.Post("/transfers", once(postTransfer))
	v1.Post("/transfers/bulk", newBulk(store, config.Outboxes).post)
	v1.Post("/transfers/linked", once(postLinkedTransfer))
	v1.Get("/transfers", read(getTransfers(store)))
	v1.Get("/transfers/:id", read(getTransfer))
	v1.Post("/transfers/:id/reverse", once(postReversal))
	v1.Post("/holds", once(postHold))
	v1.Get("/holds", read(getHolds))
	v1.Get("/holds/:id", read(getHold))
	v1.Post("/holds/:id/capture", once(postCapture))
	v1.Post("/holds/:id/void", once(postVoid))
	v1.Post("/payouts", once(postPayout))
	v1.Get("/payouts/:id", read(getPayout))
	v1.Get("/audit", read(getAudit))
	return app
}
