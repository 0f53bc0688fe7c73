package fibermw

import (
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

// Handle makes a handler that runs h as one unit, with the transaction as an
// argument:
//
//	app.Post("/transfers", fibermw.Handle(config, transfer))
//
// h may run again after a serialization failure, a deadlock, or a COMMIT that
// turned out not to have happened, at most as often as the Store's AttemptsMax
// says. Each run starts with the response, its headers and the locals as they
// were before the first.
//
// Handle panics when config cannot work, and says which field is wrong.
func Handle(config Config, h func(c *fiber.Ctx, tx pgx.Tx) error) fiber.Handler {
	if h == nil {
		panic("fibermw: Handle needs a handler, got nil")
	}
	m := newMiddleware(config)
	handler := func(c *fiber.Ctx) error { return h(c, Tx(c)) }
	return func(c *fiber.Ctx) error {
		switch {
		case m.skips(c):
			return c.Next()
		case running(c) != nil:
			return handler(c)
		case !slices.Contains(m.Methods, c.Method()):
			return m.run(c, idem.Request{Operation: strings.Clone(m.Operation(c))}, handler)
		}
		request, err := m.request(c)
		if err != nil {
			return m.refuse(c, err)
		}
		return m.run(c, request, handler)
	}
}
