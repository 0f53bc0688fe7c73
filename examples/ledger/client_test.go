package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/examples/ledger/api"
	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/examples/ledger/jobs"
	"github.com/idempg/idempg/examples/ledger/page"
	"github.com/idempg/idempg/examples/ledger/telemetry"
	"github.com/idempg/idempg/idem"
)

// client calls a service as one tenant.
type client struct {
	t      *testing.T
	url    string
	apiKey string
	http   *http.Client
	header http.Header   // of every request, beside what its arguments say
	reruns *atomic.Int64 // mutations that ran more than once
	hasty  bool          // answers are not checked with the OpenAPI document
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func newClient(t *testing.T, url string) client {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return client{t: t, url: url, apiKey: "acme-demo-key", http: &http.Client{Transport: transport, Timeout: time.Minute}}
}

// as calls the same service with another API key.
func (c client) as(apiKey string) client {
	c.apiKey = apiKey
	return c
}

// newService serves a database of the test's own over real HTTP.
func newService(t *testing.T) (client, *pgxpool.Pool) {
	t.Helper()
	url, pool := newDatabase(t)
	app, reruns := newTestApp(t, url)
	c := serveApp(t, app)
	c.reruns = reruns
	return c, pool
}

func newTestApp(t *testing.T, databaseURL string) (*fiber.App, *atomic.Int64) {
	t.Helper()
	pool, err := connect(t.Context(), databaseURL, nil)
	must(t, err)
	t.Cleanup(pool.Close)
	metrics := telemetry.NewMetrics(pool)
	reruns := &rerunCounter{Metrics: metrics}
	store, err := idem.New(pool, idem.Config{Observer: reruns})
	must(t, err)
	keys, _, err := api.ParseKeys(defaultKeys)
	must(t, err)
	return api.New(api.Config{
		Pool: pool, Store: store, Keys: keys, Page: page.Config{APIKey: demoKey},
		Outboxes: newJobs(t, jobs.Config{Pool: pool, Store: store}),
		Metrics:  metrics, ServeMetrics: true,
	}), &reruns.Int64
}

func serveApp(t *testing.T, app *fiber.App) client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- app.Listener(listener) }()
	t.Cleanup(func() {
		must(t, app.ShutdownWithTimeout(stateWaitMax))
		must(t, <-served)
	})
	return newClient(t, "http://"+listener.Addr().String())
}

// rerunCounter counts mutations that a conflict made run again.
type rerunCounter struct {
	*telemetry.Metrics
	atomic.Int64
}

func (r *rerunCounter) ObserveCall(ctx context.Context, call idem.Call) {
	r.Metrics.ObserveCall(ctx, call)
	r.Add(int64(max(0, call.Attempts-1)))
}

func (c client) do(method, path, idempotencyKey, body string) (answer, error) {
	request, err := http.NewRequestWithContext(context.WithoutCancel(c.t.Context()), method, c.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	maps.Copy(request.Header, c.header)
	if c.apiKey != "" {
		request.Header.Set("Authorization", "Bearer "+c.apiKey)
	}
	if idempotencyKey != "" {
		request.Header.Set("Idempotency-Key", idempotencyKey)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{response.StatusCode, response.Header, string(content)}
	if !c.hasty {
		wantContract(c.t, request, body, a)
	}
	return a, nil
}

func (c client) get(path string) answer {
	c.t.Helper()
	a, err := c.do("GET", path, "", "")
	if err != nil {
		c.t.Error(err)
	}
	return a
}

func (c client) post(path, idempotencyKey, body string) answer {
	c.t.Helper()
	a, err := c.do("POST", path, idempotencyKey, body)
	if err != nil {
		c.t.Error(err)
	}
	return a
}

// background posts while the test goes on.
func (c client) background(path, idempotencyKey, body string) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		a, _ := c.do("POST", path, idempotencyKey, body) // a lost connection is status 0
		answers <- a
	}()
	return answers
}

// open opens an account. A minBalance of "null" lets it pay without end.
func (c client) open(id, currency, minBalance string) {
	c.t.Helper()
	body := fmt.Sprintf(`{"id":%q,"currency":%q,"min_balance":%s}`, id, currency, minBalance)
	want(c.t, c.post("/v1/accounts", newKey(), body), http.StatusCreated)
}

func (c client) balance(id string) int64 {
	c.t.Helper()
	return decode[book.Account](c.t, c.get("/v1/accounts/"+id)).Balance
}

func transferBody(from, to string, amount int64) string {
	return fmt.Sprintf(`{"from":%q,"to":%q,"amount":%d,"currency":"EUR"}`, from, to, amount)
}

func newKey() string { return rand.Text() }

func (a answer) replayed() bool { return a.header.Get("Idempotency-Replayed") == "true" }

func decode[T any](t *testing.T, a answer) T {
	t.Helper()
	var value T
	if err := json.Unmarshal([]byte(a.body), &value); err != nil {
		t.Fatalf("%v in %q", err, a.body)
	}
	return value
}

func want(t *testing.T, a answer, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// wantProblem checks an RFC 9457 answer.
func wantProblem(t *testing.T, a answer, status int, name string) api.Problem {
	t.Helper()
	p := decode[api.Problem](t, a)
	if a.status != status || p.Status != status || !strings.HasSuffix(p.Type, name) || p.Title == "" {
		t.Errorf("got %d %s, want %d %s", a.status, a.body, status, name)
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q, want application/problem+json", got)
	}
	return p
}

// wantReplay checks that a is the same answer again.
func wantReplay(t *testing.T, a, first answer) {
	t.Helper()
	if !a.replayed() || first.replayed() {
		t.Errorf("Idempotency-Replayed: first %v, now %v", first.replayed(), a.replayed())
	}
	if a.status != first.status || a.body != first.body ||
		a.header.Get("Location") != first.header.Get("Location") ||
		a.header.Get("Content-Type") != first.header.Get("Content-Type") {
		t.Errorf("the replay differs:\nfirst %d %v %s\nnow   %d %v %s",
			first.status, first.header, first.body, a.status, a.header, a.body)
	}
}
