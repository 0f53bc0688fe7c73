package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river/rivertype"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/examples/ledger/jobs"
)

// endpoint is told of events. answer decides what it says to the nth delivery.
type endpoint struct {
	*httptest.Server
	mu         sync.Mutex
	deliveries []*http.Request // their bodies can be read
}

func newEndpoint(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, n int)) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		kept := r.Clone(t.Context())
		kept.Body = io.NopCloser(bytes.NewReader(body))
		e.mu.Lock()
		e.deliveries = append(e.deliveries, kept)
		n := len(e.deliveries)
		e.mu.Unlock()
		answer(w, r, n)
	}))
	t.Cleanup(e.Close)
	return e
}

// bodies checks the signatures, and that all deliveries are of one event. It
// returns their bodies.
func (e *endpoint) bodies(t *testing.T) (id string, bodies []string) {
	t.Helper()
	verifier, err := standardwebhooks.NewWebhook(testSecret)
	must(t, err)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.deliveries {
		body, err := io.ReadAll(r.Body)
		must(t, err)
		must(t, verifier.Verify(body, r.Header))
		if id != "" && id != r.Header.Get("webhook-id") || r.Header.Get("Content-Type") != "application/json" || r.Method != http.MethodPost {
			t.Errorf("delivered %s with %v, want id %q", r.Method, r.Header, id)
		}
		id = r.Header.Get("webhook-id")
		bodies = append(bodies, string(body))
	}
	return id, bodies
}

// Goal: an event is delivered until it is answered with 2xx, signed as Standard
// Webhooks has it, always the same. Method: an endpoint that fails in every way.
func TestAnEventIsDeliveredUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	service, pool := newBulkService(t)
	elsewhere := newEndpoint(t, func(http.ResponseWriter, *http.Request, int) {})
	failures := []func(http.ResponseWriter){
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) },
		func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, // the connection is cut
		func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
	}
	told := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, n int) {
		if n <= len(failures) {
			failures[n-1](w)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20)) // more than anybody reads
	})
	transfer := decode[book.Transfer](t, service.post("/v1/transfers", newKey(),
		`{"from":"bank","to":"alice","amount":9007199254740992,"currency":"EUR","reference":"<ü>","metadata":{"card":"s3cret"}}`))
	startJobs(t, pool, jobs.Config{Webhook: newTestWebhook(t, told.URL+"/?token=s3cret")})
	awaitJobs(t, pool, 1, "webhook", rivertype.JobStateCompleted)

	id, bodies := told.bodies(t)
	if len(bodies) != len(failures)+1 {
		t.Errorf("%d deliveries, want %d", len(bodies), len(failures)+1)
	}
	var event book.Event
	must(t, json.Unmarshal([]byte(bodies[0]), &event))
	wantData := fmt.Sprintf(`{"id":"%s","to":"alice","from":"bank","amount":9007199254740992,"currency":"EUR","reference":"<ü>","reverses":null}`, transfer.ID)
	if !sameJSON(t, event.Data, []byte(wantData)) || event.Type != "transfer.posted" || event.ID.String() != id || event.ID.Version() != 7 {
		t.Errorf("delivered %s with id %s", bodies[0], id)
	}
	if event.Timestamp.Sub(transfer.CreatedAt).Abs() > time.Minute {
		t.Errorf("timestamp %v of a transfer of %v", event.Timestamp, transfer.CreatedAt)
	}
	for _, body := range bodies {
		if body != bodies[0] {
			t.Errorf("delivered\n%s\nand then\n%s", bodies[0], body)
		}
	}
	if _, redirected := elsewhere.bodies(t); redirected != nil {
		t.Error("a redirect was followed")
	}
	if job := one[string](t, pool, "select to_jsonb(j)::text from river.river_job j where kind = 'webhook'"); strings.Contains(job, "s3cret") || strings.Contains(job, testSecret) {
		t.Errorf("the job holds a secret: %s", job)
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var decoded [2]any
	for i, raw := range [][]byte{a, b} {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		must(t, decoder.Decode(&decoded[i]))
	}
	return fmt.Sprint(decoded[0]) == fmt.Sprint(decoded[1])
}

// 410 Gone asks for no more deliveries.
func TestAnEndpointThatIsGoneIsLeftAlone(t *testing.T) {
	t.Parallel()
	service, pool := newBulkService(t)
	gone := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusGone) })
	want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 7)), http.StatusCreated)
	startJobs(t, pool, jobs.Config{Webhook: newTestWebhook(t, gone.URL)})
	awaitJobs(t, pool, 1, "webhook", rivertype.JobStateCancelled)
	if _, bodies := gone.bodies(t); len(bodies) != 1 {
		t.Errorf("%d deliveries, want 1", len(bodies))
	}
}

// Goal: a stop waits for a delivery that runs. Method: stop while the endpoint
// thinks.
func TestAStopWaitsForADelivery(t *testing.T) {
	t.Parallel()
	service, pool := newBulkService(t)
	arrived, answered := make(chan struct{}), make(chan struct{})
	slow := newEndpoint(t, func(http.ResponseWriter, *http.Request, int) {
		close(arrived)
		<-answered
	})
	want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 7)), http.StatusCreated)
	work := startJobs(t, pool, jobs.Config{Webhook: newTestWebhook(t, slow.URL)})
	<-arrived
	stopped := make(chan error, 1)
	go func() { stopped <- work.Stop() }()
	await(t, pool, "the listener is gone", `select not exists (select from pg_stat_activity where datname = current_database() and query ilike 'listen%')`)
	close(answered)
	must(t, <-stopped)
	awaitJobs(t, pool, 1, "webhook", rivertype.JobStateCompleted)
}
