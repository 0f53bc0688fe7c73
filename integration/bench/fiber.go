package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
	"github.com/valyala/fasthttp"
)

const (
	keyHeader  = "Idempotency-Key"
	userHeader = "X-User" // set by who authenticates in a real service
)

// fiberClients makes clients of an app. They call the app's handler in memory, as
// fasthttp's server does for each request it has read: there is no socket and no
// HTTP to parse, so what is measured is the app.
func fiberClients(app *fiber.App) func() client {
	handler := app.Handler()
	return func() client {
		c := new(fasthttp.RequestCtx)
		c.Init(new(fasthttp.Request), nil, nil)
		return func(_ context.Context, r request) (answer, error) {
			c.Request.Reset()
			c.Response.Reset()
			c.ResetUserValues()
			c.Request.Header.SetMethod(fiber.MethodPost)
			c.Request.SetRequestURI(r.route())
			c.Request.Header.SetContentType(contentType)
			c.Request.Header.Set(userHeader, r.user)
			c.Request.Header.Set(keyHeader, r.key)
			c.Request.SetBodyRaw(r.payload)
			handler(c)
			a := answer{status: c.Response.StatusCode(), body: c.Response.Body()}
			if a.status != statusCreated && a.status != statusInFlight {
				return a, fmt.Errorf("the app answered %d: %s", a.status, a.body)
			}
			return a, nil
		}
	}
}

func (r request) route() string {
	if r.noop {
		return "/noop"
	}
	return "/transfers"
}

// fiberRequest is the request as a handler sees it.
func fiberRequest(c *fiber.Ctx) (request, error) {
	r := request{key: utils.CopyString(c.Get(keyHeader)), noop: c.Path() == "/noop"}
	if r.noop {
		return r, nil
	}
	if err := json.Unmarshal(c.Body(), &r.transfer); err != nil {
		return r, fiber.NewError(fiber.StatusBadRequest, "the body is not a transfer")
	}
	return r, nil
}

func sendCreated(c *fiber.Ctx, body []byte) error {
	c.Set(fiber.HeaderContentType, contentType)
	return c.Status(fiber.StatusCreated).Send(body)
}

func fiberUser(c *fiber.Ctx) (string, error) { return c.Get(userHeader), nil }
