package fibermw

import (
	"slices"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/idem"
)

// HandleBatch makes a handler that runs the batch that h makes of the request as
// one unit, in one round trip: see [idem.Store.DoBatch]. The answer is what the
// batch responds with or rejects with; Config.Judge is not asked.
//
//	app.Post("/transfers", fibermw.HandleBatch(config, func(c *fiber.Ctx) (*idem.Batch, error) {
//		...
//	}))
//
// h runs before the key is claimed, so also for a retry, and must change
// nothing. When it returns an error, or no batch because it rendered the answer
// itself, that is judged and recorded as the answer of [Handle]'s handler would
// be. Nothing in the batch may refer to Fiber's buffers after h has returned, but
// what c.Body, c.Params and the like return is good until the request ends.
//
// HandleBatch panics when config cannot work, and says which field is wrong.
// AllowMissingKey does not work: a batch without a key has no record to make.
func HandleBatch(config Config, h func(c *fiber.Ctx) (*idem.Batch, error)) fiber.Handler {
	if h == nil {
		panic("fibermw: HandleBatch needs a handler, got nil")
	}
	m := newMiddleware(config)
	if m.AllowMissingKey {
		panic("fibermw: HandleBatch does not take Config.AllowMissingKey: a batch is recorded under its key")
	}
	return func(c *fiber.Ctx) error {
		switch {
		case m.skips(c):
			return c.Next()
		case running(c) != nil:
			panic("fibermw: HandleBatch was called inside a unit, whose transaction it cannot use: mount it without New or Handle around it")
		case !slices.Contains(m.Methods, c.Method()):
			return fiber.ErrMethodNotAllowed
		}
		request, err := m.request(c)
		if err != nil {
			return m.refuse(c, err)
		}
		return m.runBatch(c, request, h)
	}
}

// runBatch makes the batch, runs it and answers.
func (m *middleware) runBatch(c *fiber.Ctx, request idem.Request, h func(*fiber.Ctx) (*idem.Batch, error)) error {
	u := m.newUnit(c, nil, false)
	defer u.release()
	batch, err := h(c)
	if batch == nil || err != nil {
		answer := takeSnapshot(c)
		defer answer.release()
		u.before.restore(c)
		return m.run(c, request, func(c *fiber.Ctx) error {
			answer.restore(c)
			return err
		})
	}
	u.before.restore(c)
	result, err := m.Store.DoBatch(u.caller, request, batch)
	if err != nil {
		return u.fail(err)
	}
	u.result = &result
	m.answer(c, result)
	return nil
}
