package integration

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/compress"
	"github.com/gofiber/fiber/v2/middleware/cors"
	"github.com/gofiber/fiber/v2/middleware/etag"
	"github.com/gofiber/fiber/v2/middleware/helmet"
	"github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/gofiber/fiber/v2/middleware/logger"
	recovermw "github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/gofiber/fiber/v2/middleware/requestid"
	"github.com/gofiber/fiber/v2/middleware/timeout"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// rateLimit is made before the tests, because its memory has a goroutine that
// never ends.
var rateLimit = limiter.New(limiter.Config{Max: 1 << 20})

// stack is Fiber's own middleware. What it logs goes to log.
func stack(log io.Writer) []any {
	return []any{
		recovermw.New(),
		logger.New(logger.Config{Format: "${status} ${error}\n", Output: log, DisableColors: true}),
		requestid.New(),
		cors.New(cors.Config{AllowOrigins: "https://shop.example", ExposeHeaders: "X-Sale"}),
		helmet.New(),
		rateLimit,
		compress.New(),
		etag.New(),
	}
}

// perAttempt are the headers that stack sets for one attempt or one origin.
var perAttempt = []string{
	"X-Request-Id", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset",
	"Access-Control-Allow-Origin", "Access-Control-Expose-Headers",
}

// Goal: with Fiber's middleware outside or inside, a replay has no header twice,
// lacks nothing but what belongs to one attempt, and is compressed for nobody
// who did not ask. Method: the first client asks for gzip, the second does not,
// and the other way round.
func TestFiberUnderOtherMiddleware(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("a sale ", 1000)
	for _, outside := range []bool{true, false} {
		s := newShop(t, idem.Config{})
		var log bytes.Buffer
		app := quietApp()
		if outside {
			app.Use(stack(&log)...)
		}
		app.Use(fibermw.New(s.config))
		if !outside {
			app.Use(stack(&log)...)
		}
		app.Post("/:item", func(c *fiber.Ctx) error {
			if err := s.sell(c, fibermw.Tx(c), c.Params("item")); err != nil {
				return err
			}
			c.Set("X-Frame-Options", "DENY") // overrides helmet
			c.Vary("Accept")
			c.Set("X-Sale", c.Params("item"))
			return c.SendString(body)
		})
		send := connect(t, app)
		for _, firstGzip := range []bool{true, false} {
			target := fmt.Sprintf("/%v", firstGzip)
			ask := func(gzip bool) answer {
				request := post(target, target, "", "Origin", "https://shop.example")
				if gzip {
					request.Header.Set("Accept-Encoding", "gzip")
				}
				return send(t, request)
			}
			first, second, third := ask(firstGzip), ask(!firstGzip), ask(firstGzip)
			plain := first
			if firstGzip {
				plain = second
			}
			if plain.body != body || plain.header.Get("Content-Encoding") != "" {
				t.Errorf("outside %v: who did not ask for gzip got %v", outside, plain.header)
			}
			if first.replayed() || !second.replayed() || !third.replayed() {
				t.Errorf("outside %v: markers %v %v %v", outside, first.replayed(), second.replayed(), third.replayed())
			}
			expectSameHeaders(t, outside, first, third)
			if outside && (first.header.Get("Content-Encoding") == "gzip") != firstGzip {
				t.Errorf("compress outside: gzip asked: %v, got %v", firstGzip, first.header)
			}
		}
		s.expect(t, 2, 2)
	}
}

func expectSameHeaders(t *testing.T, outside bool, first, replay answer) {
	t.Helper()
	for name, values := range replay.header {
		if len(values) != 1 {
			t.Errorf("outside %v: %s is there %d times: %q", outside, name, len(values), values)
		}
		attempt := slices.Contains(perAttempt, name)
		switch {
		case name == "Idempotency-Replayed", attempt && outside:
		case attempt:
			t.Errorf("inside: the header %s of an earlier attempt is replayed", name)
		case !slices.Equal(values, first.header[name]):
			t.Errorf("outside %v: %s was %q and is %q", outside, name, first.header[name], values)
		}
	}
	for name := range first.header {
		if replay.header[name] == nil && (outside || !slices.Contains(perAttempt, name)) {
			t.Errorf("outside %v: the replay lacks %s", outside, name)
		}
	}
	if outside && first.header.Get("X-Request-Id") == replay.header.Get("X-Request-Id") {
		t.Error("outside: the replay has the request id of the first attempt")
	}
}

// Goal: errors and panics end the same under the stack, and the logger outside
// sees what aborted.
func TestFiberErrorsUnderOtherMiddleware(t *testing.T) {
	t.Parallel()
	for _, outside := range []bool{true, false} {
		s := newShop(t, idem.Config{})
		var log bytes.Buffer
		app := quietApp()
		if outside {
			app.Use(stack(&log)...)
		}
		app.Use(recovermw.New(), fibermw.New(s.config))
		if !outside {
			app.Use(stack(&log)...)
		}
		app.Post("/:how", func(c *fiber.Ctx) error {
			if err := s.sell(c, fibermw.Tx(c), c.Params("how")); err != nil {
				return err
			}
			switch c.Params("how") {
			case "refuse":
				return fiber.NewError(fiber.StatusUnprocessableEntity, "refused")
			case "panic":
				panic("panicked")
			}
			return fiber.NewError(fiber.StatusServiceUnavailable, "busy")
		})
		for how, status := range map[string]int{"refuse": 422, "panic": 500, "busy": 503} {
			first, second := direct(app)(t, post("/"+how, how, "")), direct(app)(t, post("/"+how, how, ""))
			if first.status != status || second.status != status || second.replayed() != (status == 422) || first.body != second.body {
				t.Errorf("outside %v: %s: %v, then %v", outside, how, first, second)
			}
		}
		s.expect(t, 5, 0)
		if outside && (strings.Count(log.String(), "503 busy\n") != 2 || strings.Count(log.String(), "500 panicked\n") != 2) {
			t.Errorf("the logger saw\n%s", &log)
		}
	}
}

// Goal: the timeout middleware answers 408 outside and inside, and the work is
// undone. Method: the handler waits in the database for longer than it may.
func TestFiberUnderTimeout(t *testing.T) {
	t.Parallel()
	for _, outside := range []bool{true, false} {
		s := newShop(t, idem.Config{})
		slow := func(c *fiber.Ctx) error {
			if err := s.sell(c, fibermw.Tx(c), "item"); err != nil {
				return err
			}
			_, err := fibermw.Tx(c).Exec(c.UserContext(), "select pg_sleep(60)")
			return err
		}
		const limit = 300 * time.Millisecond
		handler := fibermw.Handle(s.config, func(c *fiber.Ctx, _ pgx.Tx) error { return timeout.NewWithContext(slow, limit)(c) })
		if outside {
			handler = timeout.NewWithContext(fibermw.Handle(s.config, func(c *fiber.Ctx, _ pgx.Tx) error { return slow(c) }), limit)
		}
		app := quietApp()
		app.Post("/", handler)
		got := direct(app)(t, post("/", "key", ""))
		if got.status != http.StatusRequestTimeout || strings.Contains(got.body, "context") {
			t.Errorf("outside %v: %v", outside, got)
		}
		s.expect(t, 1, 0)
		if state := s.recorded(t, "key"); state != "" {
			t.Errorf("outside %v: a record says %q", outside, state)
		}
	}
}
