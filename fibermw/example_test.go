package fibermw_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/migrations"
)

func Example() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if err := migrations.Up(context.Background(), pool); err != nil {
		log.Fatal(err)
	}
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		log.Fatal(err)
	}
	config := fibermw.Config{Store: store, Scope: tenant}

	app := fiber.New()
	app.Post("/orders", fibermw.Handle(config, func(c *fiber.Ctx, tx pgx.Tx) error {
		var id int64
		err := tx.QueryRow(c.UserContext(), "insert into orders (item) values ($1) returning id", c.Query("item")).Scan(&id)
		if err != nil {
			return err // undoes everything; the client gets a problem without the text
		}
		return c.Status(fiber.StatusCreated).JSON(fiber.Map{"id": id})
	}))
	log.Fatal(app.Listen(":3000"))
}

// tenant is what an authenticating middleware has found out.
func tenant(c *fiber.Ctx) (string, error) {
	id, ok := c.Locals("tenant").(string)
	if !ok {
		return "", fiber.ErrUnauthorized
	}
	return id, nil
}

// As a middleware for a group of routes; the handlers take the transaction
// from Tx.
func ExampleNew() {
	store := openStore()
	app := fiber.New()
	api := app.Group("/v1", fibermw.New(fibermw.Config{Store: store, Scope: tenant}))
	api.Post("/payments", func(c *fiber.Ctx) error {
		_, err := fibermw.Tx(c).Exec(c.UserContext(), "insert into payments (cents) values ($1)", c.QueryInt("cents"))
		if err != nil {
			return err
		}
		return c.SendStatus(fiber.StatusAccepted)
	})
}

// A decline is answered with 402, and the row that says so is kept.
func ExampleEnd() {
	store := openStore()
	app := fiber.New()
	config := fibermw.Config{Store: store, Scope: tenant}
	app.Post("/charges", fibermw.Handle(config, func(c *fiber.Ctx, tx pgx.Tx) error {
		if _, err := tx.Exec(c.UserContext(), "insert into charges (state) values ('declined')"); err != nil {
			return err
		}
		fibermw.End(c, fibermw.Commit)
		return c.Status(fiber.StatusPaymentRequired).JSON(fiber.Map{"state": "declined"})
	}))
}

// The rules that clients have to know, as JSON, Markdown or OpenAPI.
func ExampleRulesOf() {
	config := fibermw.Config{Store: openStore(), Scope: tenant, AllowMissingKey: true}
	rules := fibermw.RulesOf(config)
	rules.Scope = "Each tenant has keys of its own, shared by all its users."

	app := fiber.New()
	app.Get("/idempotency", rules.Send)
}

// What the rules are made of is what clients can rely on.
func ExampleRules() {
	rules := fibermw.RulesOf(fibermw.Config{Store: new(idem.Store), Scope: fibermw.GlobalScope})
	fmt.Println("key:", rules.Key.Header)
	fmt.Println("scope:", rules.Scope)
	fmt.Println("completed:", rules.Statuses.Completed)
	fmt.Println("refused:", rules.Statuses.Refused)
	fmt.Println("runs again:", rules.Statuses.NotFinal)
	// Output:
	// key: Idempotency-Key
	// scope: All callers share one set of keys.
	// completed: [200-399]
	// refused: [400 402 404-407 409-424 426-428 430-499]
	// runs again: [401 403 408 425 429 500-599]
}

func openStore() *idem.Store {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return store
}
