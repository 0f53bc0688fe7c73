package integration

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	fiberlog "github.com/gofiber/fiber/v2/log"
	"github.com/gofiber/fiber/v2/middleware/compress"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// fasthttp has goroutines that never end: one keeps the time of the Date header,
// others compress. A response before the tests makes them part of what was
// there before them.
var _ = func() bool {
	fiberlog.SetOutput(io.Discard) // causes of the many 5xx that the tests ask for
	app := quietApp()
	app.Use(compress.New(), func(c *fiber.Ctx) error { return c.SendString(strings.Repeat("long enough ", 100)) })
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.Header.Set("Accept-Encoding", "gzip")
	response, err := app.Test(request)
	return err == nil && response.Body.Close() == nil
}()

// shop is a database with a table that handlers write to, a Store on it, and
// the config that mounts it. The caller named in X-User owns the key.
type shop struct {
	*database
	pool   *pgxpool.Pool
	store  *idem.Store
	config fibermw.Config
	runs   atomic.Int64 // of handlers that call sell
}

func newShop(t *testing.T, config idem.Config) *shop {
	t.Helper()
	s := &shop{database: newDatabase(t)}
	s.pool = s.Pool(t)
	mustExec(t, s.pool, "create table sales (item text not null unique deferrable initially deferred)")
	var err error
	if s.store, err = idem.New(s.pool, config); err != nil {
		t.Fatal(err)
	}
	s.config = fibermw.Config{Store: s.store, Scope: func(c *fiber.Ctx) (string, error) {
		return c.Get("X-User", "alice"), nil
	}}
	return s
}

// sell is the effect of a handler: one row.
func (s *shop) sell(c *fiber.Ctx, tx pgx.Tx, item string) error {
	s.runs.Add(1)
	_, err := tx.Exec(c.UserContext(), "insert into sales (item) values ($1)", item)
	return err
}

func (s *shop) expect(t *testing.T, runs, sales int) {
	t.Helper()
	var rows int
	if err := s.pool.QueryRow(t.Context(), "select count(*) from sales").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if got := int(s.runs.Load()); got != runs || rows != sales {
		t.Errorf("the handler ran %d times and %d sales are there, want %d and %d", got, rows, runs, sales)
	}
}

// recorded reports whether the key has a record, and its state.
func (s *shop) recorded(t *testing.T, key string) idem.State {
	t.Helper()
	record, err := s.store.Lookup(t.Context(), "alice", key)
	if err != nil && !errors.Is(err, idem.ErrNotFound) {
		t.Fatal(err)
	}
	return record.State
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header // without Date
	body   string
}

func (a answer) replayed() bool { return a.header.Get("Idempotency-Replayed") == "true" }

// problem returns the code of the problem that a is, or "".
func (a answer) problem() string {
	if a.header.Get("Content-Type") != "application/problem+json" {
		return ""
	}
	_, rest, _ := strings.Cut(a.body, "problems.md#")
	code, _, _ := strings.Cut(rest, `"`)
	return code
}

// mustProblem checks that a is the expected problem.
func (a answer) mustProblem(t *testing.T, status int, code string) {
	t.Helper()
	if a.status != status || a.problem() != code {
		t.Errorf("answer %d %v %q, want the problem %d %s", a.status, a.header, a.body, status, code)
	}
	if retry := status == http.StatusConflict || status == http.StatusServiceUnavailable; retry != (a.header.Get("Retry-After") != "") {
		t.Errorf("the problem %s has Retry-After %q", code, a.header.Get("Retry-After"))
	}
}

// browser sends requests to an app.
type browser func(t *testing.T, request *http.Request) answer

// direct calls the app without a network.
func direct(app *fiber.App) browser {
	return func(t *testing.T, request *http.Request) answer {
		t.Helper()
		response, err := app.Test(request, -1)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		return read(t, response)
	}
}

// connect serves the app on a loopback port and keeps connections alive, so
// that fasthttp reuses its buffers.
func connect(t *testing.T, app *fiber.App) browser {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	app.Server().MaxIdleWorkerDuration = 10 * time.Millisecond // workers outlive Shutdown by as long
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(listener) }()
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := errors.Join(app.Shutdown(), <-ended); err != nil {
			t.Error(err)
		}
	})
	plain := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return func(t *testing.T, request *http.Request) answer {
		t.Helper()
		request.RequestURI = ""
		request.URL.Scheme, request.URL.Host = "http", listener.Addr().String()
		response, err := plain.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		return read(t, response)
	}
}

func read(t *testing.T, response *http.Response) answer {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	response.Header.Del("Date")
	return answer{status: response.StatusCode, header: response.Header, body: string(body)}
}

// post is a request with a key, or without one when key is empty.
func post(target, key, body string, headers ...string) *http.Request {
	request := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	return request
}

// quietApp is an app whose start-up message does not fill the log.
func quietApp(config ...fiber.Config) *fiber.App {
	c := fiber.Config{}
	if len(config) > 0 {
		c = config[0]
	}
	c.DisableStartupMessage = true
	return fiber.New(c)
}
