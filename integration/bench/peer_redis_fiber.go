package main

import (
	"context"
	"errors"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
)

// newRedisFiber is redisStore as a middleware before a handler with a
// transaction.
func newRedisFiber(ctx context.Context, p *place) (*system, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	app := fiber.New()
	app.Post("/transfers", redisStore{p.redis()}.middleware, transferInTransaction(pool))
	return &system{name: redisOnFiber, role: peer, floor: bareFiber, newClient: fiberClients(app)}, nil
}

// errServerError keeps an answer from being recorded: the client may try again.
var errServerError = errors.New("the handler answered 5xx")

func (s redisStore) middleware(c *fiber.Ctx) error {
	key := utils.CopyString(c.Get(keyHeader))
	if key == "" {
		return fiber.NewError(fiber.StatusBadRequest, "send the header "+keyHeader)
	}
	ran := false
	a, err := s.do(c.UserContext(), utils.CopyString(c.Get(userHeader)), key, c.Body(), func() (answer, error) {
		ran = true
		if err := c.Next(); err != nil {
			return answer{}, err
		}
		response := c.Response()
		if response.StatusCode() >= fiber.StatusInternalServerError {
			return answer{}, errServerError
		}
		return answer{status: response.StatusCode(), body: response.Body()}, nil
	})
	switch {
	case errors.Is(err, errKeyReused):
		return fiber.NewError(fiber.StatusUnprocessableEntity, err.Error())
	case errors.Is(err, errServerError):
		return nil
	case err != nil || ran:
		return err
	case a.status == statusInFlight:
		return c.SendStatus(fiber.StatusConflict)
	}
	c.Set(fiber.HeaderContentType, contentType)
	return c.Status(a.status).Send(a.body)
}
