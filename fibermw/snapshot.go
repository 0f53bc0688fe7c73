package fibermw

import (
	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// snapshot is the response and the locals of a request at one moment. A body
// stream is not in it.
type snapshot struct {
	response *fasthttp.Response
	locals   map[any]any
}

func takeSnapshot(c *fiber.Ctx) *snapshot {
	s := &snapshot{response: fasthttp.AcquireResponse(), locals: make(map[any]any)}
	c.Response().CopyTo(s.response)
	c.Context().VisitUserValuesAll(func(key, value any) { s.locals[key] = value })
	return s
}

// restore makes the response and the locals what they were. Locals are
// removed one by one, because fasthttp closes what it resets as a whole.
func (s *snapshot) restore(c *fiber.Ctx) {
	s.response.CopyTo(c.Response())
	var added []any
	c.Context().VisitUserValuesAll(func(key, _ any) {
		if _, there := s.locals[key]; !there {
			added = append(added, key)
		}
	})
	for _, key := range added {
		c.Context().RemoveUserValue(key)
	}
	for key, value := range s.locals {
		c.Context().SetUserValue(key, value)
	}
}

func (s *snapshot) release() { fasthttp.ReleaseResponse(s.response) }
