package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/compress"
	"github.com/gofiber/fiber/v2/middleware/cors"
	"github.com/gofiber/fiber/v2/middleware/csrf"
	"github.com/gofiber/fiber/v2/middleware/encryptcookie"
	"github.com/gofiber/fiber/v2/middleware/etag"
	"github.com/gofiber/fiber/v2/middleware/helmet"
	"github.com/gofiber/fiber/v2/middleware/logger"
	recovermw "github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/gofiber/fiber/v2/middleware/requestid"
	"github.com/gofiber/fiber/v2/middleware/timeout"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// csrfGuard is made before the tests, because its memory has a goroutine that
// never ends.
var csrfGuard = csrf.New(csrf.Config{Expiration: 24 * time.Hour})

// layers are the middlewares that are tried one by one, and the headers whose
// values belong to one attempt when they are outside.
var layers = map[string]struct {
	handler fiber.Handler
	varies  []string
}{
	"nothing":       {handler: (*fiber.Ctx).Next},
	"requestid":     {requestid.New(), []string{"X-Request-Id"}},
	"cors":          {handler: cors.New(cors.Config{AllowOrigins: "https://shop.example", ExposeHeaders: "X-Twice"})},
	"helmet":        {handler: helmet.New()},
	"etag":          {handler: etag.New()},
	"compress":      {handler: compress.New()},
	"limiter":       {rateLimit, []string{"X-Ratelimit-Remaining", "X-Ratelimit-Reset"}},
	"recover":       {handler: recovermw.New()},
	"logger":        {handler: logger.New(logger.Config{Output: io.Discard})},
	"timeout":       {handler: timeout.NewWithContext((*fiber.Ctx).Next, time.Hour)},
	"encryptcookie": {encryptcookie.New(encryptcookie.Config{Key: encryptcookie.GenerateKey()}), []string{"Set-Cookie"}},
	"csrf":          {csrfGuard, []string{"Set-Cookie"}},
}

// Goal: under each middleware of Fiber, outside and inside, a replay has the
// status, the body and the multiset of header lines of the first answer. Only
// two things may differ: outside, the values that belong to one attempt; inside,
// the headers that are published as never stored, which are gone. Method: one
// middleware at a time, a success and a refusal, by clients that take gzip and
// clients that do not.
func TestFiberMiddlewareMatrix(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	s.config.StoreSetCookie = true
	gone := fibermw.RulesOf(s.config).Replay.HeadersNeverStored
	for name, layer := range layers {
		for _, outside := range []bool{true, false} {
			stack := []any{fibermw.New(s.config), layer.handler}
			if outside {
				slices.Reverse(stack)
			}
			app := quietApp()
			app.Use(stack...)
			app.All("/:layer/:position/:gzip/:how", s.manyHeaders)
			send := direct(app)
			token := strings.TrimPrefix(strings.Split(send(t, httptest.NewRequest(http.MethodGet, "/-/-/-/-", nil)).header.Get("Set-Cookie"), ";")[0], "csrf_=")
			for _, how := range []string{"sell", "refuse", "sell with gzip", "refuse with gzip"} {
				how, _, gzip := strings.Cut(how, " ")
				target := fmt.Sprintf("/%s/%v/%v/%s", name, outside, gzip, how)
				ask := func(gzip bool) answer {
					request := post(target, target, "", "Origin", "https://shop.example", "X-Csrf-Token", token, "Cookie", "csrf_="+token)
					if gzip {
						request.Header.Set("Accept-Encoding", "gzip")
					}
					return send(t, request)
				}
				first, replay, other := ask(gzip), ask(gzip), ask(!gzip)
				if !replay.replayed() || !other.replayed() || first.status != replay.status || first.status != other.status || first.body != replay.body {
					t.Errorf("%s: %v, then %v, then %v", target, first, replay, other)
				}
				want := lines(first.header, func(line string) bool { return !outside && neverStored(gone, line) && line != "Content-Length" })
				got := lines(replay.header, func(line string) bool { return line == "Idempotency-Replayed" })
				if outside {
					hideValues(want, layer.varies)
					hideValues(got, layer.varies)
				}
				if !slices.Equal(want, got) {
					t.Errorf("%s: the first answer has\n\t%s\nthe replay\n\t%s", target, strings.Join(want, "\n\t"), strings.Join(got, "\n\t"))
				}
				for header, values := range replay.header {
					if len(values) > 1 && header != "X-Twice" && header != "Set-Cookie" {
						t.Errorf("%s: %s is doubled: %q", target, header, values)
					}
				}
				plain := other
				if !gzip {
					plain = first
				}
				if plain.header.Get("Content-Encoding") != "" || strings.HasPrefix(plain.body, "\x1f\x8b") {
					t.Errorf("%s: a client that did not ask for gzip got it", target)
				}
				if compressed := first.header.Get("Content-Encoding") == "gzip"; how == "sell" && compressed != (name == "compress" && outside && gzip) {
					t.Errorf("%s: compressed: %v", target, compressed)
				}
			}
		}
	}
	s.expect(t, len(layers)*2*4, len(layers)*2*2)
}

// manyHeaders sells or refuses, with headers of all kinds.
func (s *shop) manyHeaders(c *fiber.Ctx) error {
	if c.Method() != http.MethodPost {
		return nil
	}
	if err := s.sell(c, fibermw.Tx(c), c.Path()); err != nil {
		return err
	}
	c.Response().Header.Add("X-Twice", "a, b")
	c.Response().Header.Add("X-Twice", "c")
	c.Vary("Accept")
	c.Set("X-Frame-Options", "DENY")
	c.Cookie(&fiber.Cookie{Name: "basket", Value: "1"})
	c.Cookie(&fiber.Cookie{Name: "seen", Value: "2"})
	if c.Params("how") == "refuse" {
		return fiber.NewError(fiber.StatusUnprocessableEntity, "refused")
	}
	return c.SendString(strings.Repeat("a sale ", 1000))
}

// lines lists the lines of a header in order, without those whose name is left out.
func lines(header http.Header, leaveOut func(name string) bool) (all []string) {
	for name, values := range header {
		for _, value := range values {
			if !leaveOut(name) {
				all = append(all, name+": "+value)
			}
		}
	}
	slices.Sort(all)
	return all
}

// hideValues leaves only the names of some lines, so that they are counted.
func hideValues(lines, names []string) {
	for i, line := range lines {
		if name, _, _ := strings.Cut(line, ": "); slices.Contains(names, name) {
			lines[i] = name
		}
	}
}
