package fibermw

import (
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// newCtx returns a context outside a server.
func newCtx(t *testing.T) *fiber.Ctx {
	t.Helper()
	app := fiber.New()
	c := app.AcquireCtx(&fasthttp.RequestCtx{})
	t.Cleanup(func() { app.ReleaseCtx(c) })
	return c
}

func TestJudgeByStatus(t *testing.T) {
	t.Parallel()
	aborts := map[int]bool{401: true, 403: true, 408: true, 425: true, 429: true}
	for status := 100; status < 700; status++ {
		want := Abort
		switch {
		case aborts[status]:
		case status >= 200 && status <= 399:
			want = Commit
		case status >= 400 && status <= 499:
			want = Reject
		}
		c := newCtx(t)
		c.Status(status)
		if got := JudgeByStatus(c); got != want {
			t.Errorf("JudgeByStatus of %d = %d, want %d", status, got, want)
		}
	}
}

func TestOutsideAUnitTxAndEndPanicAndResultSaysSo(t *testing.T) {
	t.Parallel()
	c := newCtx(t)
	for name, call := range map[string]func(){"Tx": func() { Tx(c) }, "End": func() { End(c, Commit) }} {
		if text := panicOf(call); text == "" {
			t.Errorf("%s did not panic", name)
		}
	}
	if _, ok := Result(c); ok {
		t.Error("Result found one")
	}
}
