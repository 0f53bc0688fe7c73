package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// What was recorded does not change when another middleware writes to Fiber's
// buffer afterwards.
func TestFiberAResultIsACopy(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	app := quietApp()
	app.Use(func(c *fiber.Ctx) error {
		err := c.Next()
		result, ok := fibermw.Result(c)
		c.Response().SetBodyString(strings.Repeat("x", len("the answer")))
		if !ok || string(result.Body) != "the answer" {
			t.Errorf("the result is %q, %v", result.Body, ok)
		}
		return err
	})
	app.Post("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		if err := s.sell(c, tx, "item"); err != nil {
			return err
		}
		return c.Status(http.StatusCreated).SendString("the answer")
	}))
	for range 2 { // a first answer and a replay
		if got := direct(app)(t, post("/", "key", "")); got.status != http.StatusCreated || got.body != "xxxxxxxxxx" {
			t.Errorf("the client got %d %q", got.status, got.body)
		}
	}
	s.expect(t, 1, 1)
}
