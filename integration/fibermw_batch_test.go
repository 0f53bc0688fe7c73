package integration

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// sellBatch is a handler that makes the batch of one sale.
func sellBatch(c *fiber.Ctx) (*idem.Batch, error) {
	item := string(c.Body())
	switch item {
	case "":
		return nil, fiber.NewError(fiber.StatusBadRequest, "name an item")
	case "cake":
		c.Set("X-By", "hand")
		return nil, c.Status(fiber.StatusTeapot).SendString("no cake")
	}
	b := &idem.Batch{}
	b.Queue("insert into sales (item) values ($1)", item)
	if item == "broken" {
		b.Queue("select 1 / 0")
	}
	b.Respond(http.Header{"Content-Type": {"application/json"}, "Location": {"/sales/" + item}},
		"select 201, jsonb_build_object('item', $1::text)", item)
	b.RejectOn("sales_item_key", idem.Response{Status: fiber.StatusConflict, Body: []byte("sold")})
	return b, nil
}

// What HandleBatch answers, and answers again.
func TestFiberHandleBatch(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	app := quietApp()
	app.Use(func(c *fiber.Ctx) error {
		c.Set("X-Outer", "kept")
		return c.Next()
	})
	app.All("/", fibermw.HandleBatch(s.config, sellBatch))
	send := connect(t, app)
	for _, c := range []struct {
		key, body string
		status    int
		answer    string
		state     idem.State
		sales     int
	}{
		{"first", "tea", 201, `{"item": "tea"}`, idem.StateCompleted, 1},
		{"second", "tea", 409, "sold", idem.StateRejected, 1},
		{"third", "", 400, "name an item", idem.StateRejected, 1},
		{"fourth", "cake", 418, "no cake", idem.StateRejected, 1},
		{"fifth", "coffee", 201, `{"item": "coffee"}`, idem.StateCompleted, 2},
	} {
		first, again := send(t, post("/", c.key, c.body)), send(t, post("/", c.key, c.body))
		if first.status != c.status || first.body != c.answer || first.replayed() || first.header.Get("X-Outer") != "kept" {
			t.Errorf("%s: got %+v", c.key, first)
		}
		if !again.replayed() || again.status != first.status || again.body != first.body ||
			again.header.Get("Location") != first.header.Get("Location") || again.header.Get("X-By") != first.header.Get("X-By") ||
			again.header.Get("Content-Type") != first.header.Get("Content-Type") {
			t.Errorf("%s: %+v was replayed as %+v", c.key, first, again)
		}
		if state := s.recorded(t, c.key); state != c.state {
			t.Errorf("%s: the record is %q, want %q", c.key, state, c.state)
		}
		s.expect(t, 0, c.sales)
	}
	send(t, post("/", "first", "milk")).mustProblem(t, 422, "idempotency-key-reused")
	send(t, post("/", "", "milk")).mustProblem(t, 400, "idempotency-key-missing")
	broken := send(t, post("/", "sixth", "broken"))
	if broken.status != 500 || strings.Contains(broken.body, "zero") || s.recorded(t, "sixth") != "" {
		t.Errorf("a failing statement was answered with %+v", broken)
	}
	if got := send(t, httptest.NewRequest(http.MethodGet, "/", http.NoBody)); got.status != http.StatusMethodNotAllowed {
		t.Errorf("GET was answered with %d", got.status)
	}
	s.expect(t, 0, 2)
}
