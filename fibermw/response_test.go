package fibermw

import (
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/idem"
)

func testMiddleware(mutate func(*Config)) *middleware {
	config := Config{Store: new(idem.Store), Scope: GlobalScope}
	if mutate != nil {
		mutate(&config)
	}
	return newMiddleware(config)
}

func TestOnlyWhatTheHandlerChangedIsStored(t *testing.T) {
	t.Parallel()
	c := newCtx(t)
	c.Set("X-Outer", "kept")
	c.Set("X-Overridden", "outer")
	c.Set("X-Removed", "outer")
	c.Vary("Origin")
	c.Cookie(&fiber.Cookie{Name: "session", Value: "outer"})
	before := headersOf(&c.Response().Header)

	c.Set("X-Overridden", "handler")
	c.Response().Header.Del("X-Removed")
	c.Vary("Accept")
	c.Response().Header.Add("Link", "</a, b>; rel=x")
	c.Response().Header.Add("Link", "</c>; rel=y")
	c.Type("json")
	c.Cookie(&fiber.Cookie{Name: "mine", Value: "handler"})
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Trailer", "Upgrade", "Date", "Content-Length",
		"Access-Control-Allow-Origin", "X-Request-Id", "Traceparent", "Server-Timing",
		"RateLimit", "RateLimit-Policy", "X-RateLimit-Remaining", "X-Rate-Limit-Reset",
		"Idempotency-Replayed", "X-Cache-Lookup", "X-Mine-Too", "X-Family-A",
	} {
		c.Set(name, "7")
	}
	after := headersOf(&c.Response().Header)

	want := http.Header{
		"X-Overridden": {"handler"},
		"X-Removed":    {},
		"Vary":         {"Origin, Accept"},
		"Link":         {"</a, b>; rel=x", "</c>; rel=y"},
		"Content-Type": {"application/json"},
	}
	m := testMiddleware(func(cfg *Config) { cfg.HeadersNeverStored = []string{"X-Mine-Too", "x-family-*"} })
	if got := m.changes(before, after); !reflect.DeepEqual(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}
	m = testMiddleware(func(cfg *Config) { cfg.StoreSetCookie = true })
	if got := m.changes(before, after)["Set-Cookie"]; len(got) != 1 || !strings.HasPrefix(got[0], "mine=handler") {
		t.Errorf("stored the cookies %q, want only that of the handler", got)
	}
}

func TestAContentTypeThatNobodySetIsNotStored(t *testing.T) {
	t.Parallel()
	c := newCtx(t)
	if got := headersOf(&c.Response().Header); len(got) != 0 {
		t.Errorf("an untouched response has the headers %v", got)
	}
	c.Type("txt", "utf-8")
	if got := headersOf(&c.Response().Header); len(got) != 1 {
		t.Errorf("a Content-Type that equals the default one is lost: %v", got)
	}
}

func TestAReplayReplacesHeadersAndIsMarked(t *testing.T) {
	t.Parallel()
	c := newCtx(t)
	c.Set("X-Frame-Options", "DENY")
	c.Set("X-Removed", "outer")
	result := idem.Result{Replayed: true}
	result.Status = http.StatusCreated
	result.Header = http.Header{"X-Frame-Options": {"SAMEORIGIN"}, "X-Removed": {}, "Link": {"<a>", "<b>"}, "Location": {"/1"}}
	result.Body = []byte("made")
	testMiddleware(func(cfg *Config) { cfg.CacheLookupHeader = true }).answer(c, result)

	want := http.Header{
		"X-Frame-Options": {"SAMEORIGIN"}, "Link": {"<a>", "<b>"}, "Location": {"/1"},
		"Idempotency-Replayed": {"true"}, "X-Cache-Lookup": {"HIT"},
	}
	if got := headersOf(&c.Response().Header); !reflect.DeepEqual(got, want) {
		t.Errorf("headers %v, want %v", got, want)
	}
	if c.Response().StatusCode() != http.StatusCreated || string(c.Response().Body()) != "made" {
		t.Errorf("status %d, body %q", c.Response().StatusCode(), c.Response().Body())
	}
}

func TestReadStream(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var tooLarge *idem.ResponseTooLargeError
	for _, tc := range []struct {
		name   string
		stream io.Reader
		size   int
		want   string
		fails  func(error) bool
	}{
		{"chunked", strings.NewReader("1234567890"), -1, "1234567890", nil},
		{"sized", strings.NewReader("12345"), 5, "12345", nil},
		{"longer than its size", strings.NewReader("1234567890123"), 3, "123", nil},
		{"empty", strings.NewReader(""), -1, "", nil},
		{"above the limit", strings.NewReader("12345678901"), -1, "", func(err error) bool { return errors.As(err, &tooLarge) }},
		{"shorter than its size", strings.NewReader("123"), 5, "", func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"broken", io.MultiReader(strings.NewReader("123"), iotest.ErrReader(broken)), -1, "", func(err error) bool { return errors.Is(err, broken) }},
	} {
		c := newCtx(t)
		if err := c.SendStream(tc.stream, tc.size); err != nil {
			t.Fatal(err)
		}
		err := readStream(c.Response(), 10)
		switch {
		case tc.fails == nil && (err != nil || string(c.Response().Body()) != tc.want):
			t.Errorf("%s: body %q, %v, want %q", tc.name, c.Response().Body(), err, tc.want)
		case tc.fails != nil && (err == nil || !tc.fails(err)):
			t.Errorf("%s: error %v", tc.name, err)
		}
	}
}

type closer struct{ closed bool }

func (c *closer) Close() error { c.closed = true; return nil }

func TestASnapshotRestoresTheResponseAndTheLocals(t *testing.T) {
	t.Parallel()
	c := newCtx(t)
	kept := &closer{}
	c.Locals("kept", kept)
	c.Locals("changed", 1)
	c.Set("X-Outer", "outer")
	c.Status(http.StatusAccepted)
	before := takeSnapshot(c)
	defer before.release()

	c.Locals("changed", 2)
	c.Locals("added", 3)
	c.Locals("added too", 4)
	c.Set("X-Outer", "handler")
	c.Set("X-Added", "handler")
	c.Cookie(&fiber.Cookie{Name: "a", Value: "b"})
	_ = c.Status(http.StatusCreated).JSON(fiber.Map{"a": 1}) // cannot fail
	before.restore(c)

	if got := headersOf(&c.Response().Header); !reflect.DeepEqual(got, http.Header{"X-Outer": {"outer"}}) {
		t.Errorf("headers %v", got)
	}
	if c.Response().StatusCode() != http.StatusAccepted || len(c.Response().Body()) != 0 {
		t.Errorf("status %d, body %q", c.Response().StatusCode(), c.Response().Body())
	}
	if c.Locals("kept") != kept || kept.closed || c.Locals("changed") != 1 || c.Locals("added") != nil || c.Locals("added too") != nil {
		t.Errorf("locals: %v (closed: %v), %v, %v", c.Locals("kept"), kept.closed, c.Locals("changed"), c.Locals("added"))
	}
}
