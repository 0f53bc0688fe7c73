package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/migrations"
)

const (
	bodyBytesMax   = 64 << 10
	readBytesMax   = 8 << 20          // above it the connection is cut off, and the answer may be lost
	readTimeout    = 10 * time.Second // of a request's bytes
	idleTimeout    = time.Minute
	requestTimeout = 15 * time.Second // of its work; COMMIT has its own
	readyTimeout   = 2 * time.Second
)

// newApp routes requests. A handler gets the book of the tenant that was
// authenticated: to read, on the pool; to write, on the transaction that holds
// the idempotency key.
func newApp(pool *pgxpool.Pool, store *idem.Store, keys apiKeys) *fiber.App {
	read := func(handler func(*fiber.Ctx, Ledger) error) fiber.Handler {
		return func(c *fiber.Ctx) error { return handler(c, newLedger(tenantOf(c), pool)) }
	}
	once := func(handler func(*fiber.Ctx, Ledger) error) fiber.Handler {
		config := fibermw.Config{Store: store, Scope: tenantScope}
		return fibermw.Handle(config, func(c *fiber.Ctx, tx pgx.Tx) error {
			return handler(c, newLedger(tenantOf(c), tx))
		})
	}

	app := fiber.New(fiber.Config{
		BodyLimit: readBytesMax, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		CaseSensitive: true, StrictRouting: true,
		ErrorHandler: renderError, DisableStartupMessage: true,
	})
	app.Use(logRequests, recover.New(recover.Config{EnableStackTrace: true, StackTraceHandler: logPanic}))
	app.Get("/healthz", func(c *fiber.Ctx) error { return c.JSON(fiber.Map{"ok": true}) })
	app.Get("/readyz", ready(pool))

	v1 := app.Group("/v1", keys.authenticate, limitTime)
	v1.Post("/accounts", once(postAccount))
	v1.Get("/accounts/:id", read(getAccount))
	v1.Get("/accounts/:id/entries", read(getEntries))
	// A transfer is SQL through and through, so fibermw.HandleBatch could run it
	// in one round trip, as the list does. This one keeps the handler in Go: its
	// refusals name accounts and balances, and what else must happen with a
	// transfer, such as a job, is written on the transaction it has.
	v1.Post("/transfers", once(postTransfer))
	v1.Post("/transfers/bulk", newBulk(store).post)
	v1.Get("/transfers/:id", read(getTransfer))
	v1.Get("/audit", read(getAudit))
	return app
}

func postAccount(c *fiber.Ctx, ledger Ledger) error {
	body := readBody(c.Body())
	request := NewAccount{
		ID:         body.optionalText("id"),
		Currency:   body.text("currency"),
		MinBalance: body.integerOrNull("min_balance"),
	}
	if err := body.end(); err != nil {
		return err
	}
	account, err := ledger.OpenAccount(c.UserContext(), request)
	if err != nil {
		return err
	}
	c.Location("/v1/accounts/" + account.ID)
	return c.Status(http.StatusCreated).JSON(account)
}

func postTransfer(c *fiber.Ctx, ledger Ledger) error {
	body := readBody(c.Body())
	request := takeTransfer(body)
	if err := body.end(); err != nil {
		return err
	}
	transfer, err := ledger.Transfer(c.UserContext(), request)
	if err != nil {
		return err
	}
	c.Location("/v1/transfers/" + transfer.ID.String())
	return c.Status(http.StatusCreated).JSON(transfer)
}

func takeTransfer(body *body) NewTransfer {
	return NewTransfer{
		From:      body.text("from"),
		To:        body.text("to"),
		Amount:    body.integer("amount"),
		Currency:  body.text("currency"),
		Reference: body.optionalText("reference"),
		Metadata:  body.object("metadata"),
	}
}

func getAccount(c *fiber.Ctx, ledger Ledger) error {
	id := c.Params("id")
	if err := validateAccountID("id", id); err != nil {
		return err
	}
	account, err := ledger.Account(c.UserContext(), id)
	if err != nil {
		return err
	}
	return c.JSON(account)
}

// getEntries answers a page of a statement, newest first. The next page is
// asked for with the lowest version of this one.
func getEntries(c *fiber.Ctx, ledger Ledger) error {
	id := c.Params("id")
	if err := validateAccountID("id", id); err != nil {
		return err
	}
	limit, err := queryInteger(c, "limit", entriesPageDefault, entriesPageMax)
	if err != nil {
		return err
	}
	beforeVersion, err := queryInteger(c, "before_version", newestVersion, newestVersion)
	if err != nil {
		return err
	}
	entries, err := ledger.Entries(c.UserContext(), id, int32(limit), beforeVersion)
	if err != nil {
		return err
	}
	return c.JSON(fiber.Map{"entries": entries})
}

func getTransfer(c *fiber.Ctx, ledger Ledger) error {
	id, err := uuid.Parse(c.Params("id"))
	if err != nil || len(c.Params("id")) != len(id.String()) {
		return invalid("id", "must be a UUID")
	}
	transfer, err := ledger.FindTransfer(c.UserContext(), id)
	if err != nil {
		return err
	}
	return c.JSON(transfer)
}

func getAudit(c *fiber.Ctx, ledger Ledger) error {
	audit, err := ledger.Audit(c.UserContext())
	if err != nil {
		return err
	}
	return c.JSON(audit)
}

// queryInteger reads a number from 1 to most from the query.
func queryInteger(c *fiber.Ctx, name string, absent, most int64) (int64, error) {
	text := c.Query(name)
	if text == "" {
		return absent, nil
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < 1 || number > most {
		return 0, invalid(name, "must be an integer from 1 to %d", most)
	}
	return number, nil
}

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

func limitTime(c *fiber.Ctx) error {
	ctx, cancel := context.WithTimeout(c.UserContext(), requestTimeout)
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
