package integration

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// seller is an app with two routes that sell what the query names.
func (s *shop) seller() *fiber.App {
	app := quietApp()
	sell := fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		c.Status(fiber.StatusCreated)
		return s.sell(c, tx, c.Query("item"))
	})
	app.Post("/sales", sell)
	app.Put("/sales", sell)
	app.Post("/refunds", sell)
	return app
}

func TestFiberKeySpellings(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	send := connect(t, s.seller())
	first := send(t, post("/sales?item=a", `"my\"key"`, ""))
	for _, spelling := range []string{`my"key`, `"my\"key";v=1`, `"my\"key" `} {
		expectReplay(t, first, send(t, post("/sales?item=a", spelling, "")))
	}
	if got := send(t, post("/sales?item=b", `MY"key`, "")); got.status != http.StatusCreated || got.replayed() {
		t.Errorf("another case is the same key: %v", got)
	}
	for _, invalid := range []string{`"my`, `"a" b`, "a b", "\xe4", " ", strings.Repeat("k", 256)} {
		send(t, post("/sales?item=c", invalid, "")).mustProblem(t, 400, fibermw.CodeKeyInvalid)
	}
	twice := post("/sales?item=c", "one", "")
	twice.Header.Add("Idempotency-Key", "one")
	send(t, twice).mustProblem(t, 400, fibermw.CodeKeyInvalid)
	s.expect(t, 2, 2)
}

// A proxy may write header names in lower case, and Fiber can be told to leave
// them so. The key must not get lost.
func TestFiberKeyHeaderNameInAnyCase(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	s.config.AllowMissingKey = true
	app := quietApp(fiber.Config{DisableHeaderNormalizing: true})
	app.Post("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error { return s.sell(c, tx, "item") }))
	send := connect(t, app)
	for range 2 {
		request := post("/", "", "")
		request.Header["idempotency-key"] = []string{"key"}
		if got := send(t, request); got.status != http.StatusOK {
			t.Error(got)
		}
	}
	s.expect(t, 1, 1)
}

func TestFiberMissingKey(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	s.config.AllowMissingKey = true
	lax := s.seller()
	s.config.AllowMissingKey = false
	strict := s.seller()
	direct(strict)(t, post("/sales?item=a", "", "")).mustProblem(t, 400, fibermw.CodeKeyMissing)
	empty := post("/sales?item=a", "", "")
	empty.Header["Idempotency-Key"] = []string{""}
	direct(lax)(t, empty).mustProblem(t, 400, fibermw.CodeKeyInvalid)
	s.expect(t, 0, 0)
	for _, item := range []string{"a", "b"} {
		if got := direct(lax)(t, post("/sales?item="+item, "", "")); got.status != http.StatusCreated || got.replayed() {
			t.Errorf("without a key: %v", got)
		}
	}
	s.expect(t, 2, 2)
}

// Without a key the endings are the same, and nothing is recorded.
func TestFiberEndingsWithoutAKey(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	s.config.AllowMissingKey = true
	app := quietApp()
	app.Use(fibermw.New(s.config))
	app.Post("/:status", func(c *fiber.Ctx) error {
		status, _ := c.ParamsInt("status")
		if err := s.sell(c, fibermw.Tx(c), c.Path()); err != nil {
			return err
		}
		if _, err := fibermw.Tx(c).Exec(c.UserContext(), c.Query("sql", "select 1")); err != nil {
			return err
		}
		return c.SendStatus(status)
	})
	send := direct(app)
	for status, target := range map[int]string{201: "/201", 422: "/422", 503: "/503"} {
		if got := send(t, post(target, "", "")); got.status != status {
			t.Errorf("%s: %v", target, got)
		}
	}
	s.expect(t, 3, 1)
	// A conflict: New cannot run the rest of the route again, with or without a key.
	conflict := "/200?sql=do+$$+begin+raise+sqlstate+'40001';+end+$$"
	send(t, post(conflict, "", "")).mustProblem(t, 503, fibermw.CodeDatabaseUnavailable)
	send(t, post(conflict, "key", "")).mustProblem(t, 503, fibermw.CodeDatabaseUnavailable)
	s.expect(t, 5, 1)
}

func TestFiberAKeyBelongsToItsScopeAndRequest(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	send := direct(s.seller())
	first := send(t, post("/sales?item=a", "key", "{}"))
	for name, other := range map[string]*http.Request{
		"route": post("/refunds?item=a", "key", "{}"),
		"query": post("/sales?item=b", "key", "{}"),
		"body":  post("/sales?item=a", "key", "{ }"),
		"type":  post("/sales?item=a", "key", "{}", "Content-Type", "text/plain"),
	} {
		t.Log(name)
		send(t, other).mustProblem(t, 422, fibermw.CodeKeyReused)
	}
	put := post("/sales?item=a", "key", "{}")
	put.Method = http.MethodPut
	send(t, put).mustProblem(t, 422, fibermw.CodeKeyReused)
	expectReplay(t, first, send(t, post("/sales?item=a", "key", "{}")))
	if got := send(t, post("/sales?item=bob", "key", "{}", "X-User", "bob")); got.status != http.StatusCreated || got.replayed() {
		t.Errorf("bob got %v", got)
	}
	s.expect(t, 2, 2)
}

func TestFiberScopeErrors(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	s.config.Scope = func(c *fiber.Ctx) (string, error) {
		switch c.Get("X-User") {
		case "":
			return "", nil
		case "stranger":
			return "", fiber.NewError(fiber.StatusUnauthorized, "who are you?")
		}
		return "", errors.New("secret: the directory is away")
	}
	send := direct(s.seller())
	send(t, post("/sales?item=a", "key", "")).mustProblem(t, 500, fibermw.CodeInternal)
	broken := send(t, post("/sales?item=a", "key", "", "X-User", "x"))
	broken.mustProblem(t, 500, fibermw.CodeInternal)
	if strings.Contains(broken.body, "secret") {
		t.Errorf("the cause reaches the client: %s", broken.body)
	}
	if got := send(t, post("/sales?item=a", "key", "", "X-User", "stranger")); got.status != 401 || got.body != "who are you?" {
		t.Errorf("a stranger got %v", got)
	}
	s.expect(t, 0, 0)
}

// Goal: a duplicate in flight is told so, and one with another payload is
// refused for good. Method: the first handler waits for the test.
func TestFiberInFlight(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	entered, leave := make(chan struct{}), make(chan struct{})
	app := quietApp()
	app.Post("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		close(entered)
		<-leave
		return s.sell(c, tx, "item")
	}))
	send := connect(t, app)
	first := make(chan answer, 1)
	go func() { first <- send(t, post("/", "key", "{}")) }()
	<-entered
	send(t, post("/", "key", "{}")).mustProblem(t, 409, fibermw.CodeInFlight)
	send(t, post("/", "key", "{ }")).mustProblem(t, 422, fibermw.CodeKeyReused)
	close(leave)
	expectReplay(t, <-first, send(t, post("/", "key", "{}")))
	s.expect(t, 1, 1)
}

// A path that cannot be an operation must not fail: what the client sends is
// never a 500.
func TestFiberPathsOfAnyKind(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	app := quietApp(fiber.Config{UnescapePath: true})
	app.Post("/*", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		c.Set("X-Length", strconv.Itoa(len(c.Path())))
		return s.sell(c, tx, c.Get("Idempotency-Key"))
	}))
	paths := map[string]int{"/" + strings.Repeat("a", 2500): 2501, "/%00": 2, "/%ff": 2, "/\xe4": 2, "/a": 2}
	for path, length := range paths {
		request := post("/", fmt.Sprintf("key-%x", path[max(0, len(path)-3):]), "")
		request.RequestURI = path
		first, second := direct(app)(t, request), direct(app)(t, request)
		if first.status != http.StatusOK || first.header.Get("X-Length") != strconv.Itoa(length) {
			t.Errorf("%.20q: %v", path, first)
		}
		expectReplay(t, first, second)
	}
	s.expect(t, len(paths), len(paths))
}
