package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/idempg/idempg/examples/ledger/receiver"
	"github.com/idempg/idempg/idem"
)

// newReceiver returns an endpoint on a database of the test's own.
func newReceiver(t *testing.T) (http.Handler, *pgxpool.Pool) {
	t.Helper()
	_, pool := newDatabase(t)
	must(t, migrateReceiver(t.Context(), pool))
	store, err := idem.New(pool, idem.Config{})
	must(t, err)
	verifier, err := standardwebhooks.NewWebhook(testSecret)
	must(t, err)
	return receiver.New(store, verifier), pool
}

// deliver sends a signed event and returns the status. change may spoil it.
func deliver(t *testing.T, endpoint http.Handler, id, body string, change func(*http.Request)) int {
	t.Helper()
	signed := signedEvent(t, id, body, time.Now())
	if change != nil {
		change(signed)
	}
	answer := httptest.NewRecorder()
	endpoint.ServeHTTP(answer, signed)
	return answer.Code
}

func signedEvent(t *testing.T, id, body string, at time.Time) *http.Request {
	t.Helper()
	signer, err := standardwebhooks.NewWebhook(testSecret)
	must(t, err)
	signature, err := signer.Sign(id, at, []byte(body))
	must(t, err)
	request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	request.Header.Set("webhook-id", id)
	request.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	request.Header.Set("webhook-signature", signature)
	return request
}

func transferPosted(id, from, to string, amount int64) string {
	return fmt.Sprintf(`{"id":%q,"type":"transfer.posted","tenant":"acme","timestamp":"2030-01-02T03:04:05Z","data":{"id":"x","from":%q,"to":%q,"amount":%d,"currency":"EUR","reference":null}}`,
		id, from, to, amount)
}

// turnover is what the receiver counted, as "account sent received transfers".
func turnover(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	return one[string](t, pool, `select coalesce(string_agg(concat_ws(' ', account, sent, received, transfers), ', ' order by account), '') from receiver.turnover`)
}

// Goal: an event counts once, however often and however concurrently it comes.
// Method: crossed events, each delivered by many at once, and then again.
func TestAnEventCountsOnce(t *testing.T) {
	t.Parallel()
	endpoint, pool := newReceiver(t)
	bodies := map[string]string{}
	for n := range 6 {
		id := uuid.NewString()
		bodies[id] = transferPosted(id, "alice", "bob", 7)
		if n%2 == 1 {
			bodies[id] = transferPosted(id, "bob", "alice", 7)
		}
	}
	var wg sync.WaitGroup
	for id, body := range bodies {
		for range 5 {
			wg.Go(func() {
				if status := deliver(t, endpoint, id, body, nil); status != http.StatusNoContent && status != http.StatusConflict {
					t.Errorf("status %d", status)
				}
			})
		}
	}
	wg.Wait()
	for id, body := range bodies {
		if status := deliver(t, endpoint, id, body, nil); status != http.StatusNoContent {
			t.Errorf("again: status %d", status)
		}
	}
	if got := turnover(t, pool); got != "alice 21 21 6, bob 21 21 6" {
		t.Errorf("counted %q", got)
	}
}

// What is not signed, too old, or altered is neither counted nor remembered.
func TestAForgedEventIsRefused(t *testing.T) {
	t.Parallel()
	endpoint, pool := newReceiver(t)
	id := uuid.NewString()
	body := transferPosted(id, "alice", "bob", 7)
	for name, test := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"no signature":       {func(r *http.Request) { r.Header.Del("webhook-signature") }, http.StatusUnauthorized},
		"no id":              {func(r *http.Request) { r.Header.Del("webhook-id") }, http.StatusUnauthorized},
		"another id":         {func(r *http.Request) { r.Header.Set("webhook-id", uuid.NewString()) }, http.StatusUnauthorized},
		"another signature":  {func(r *http.Request) { r.Header.Set("webhook-signature", "v1,"+strings.Repeat("A", 43)+"=") }, http.StatusUnauthorized},
		"another timestamp":  {func(r *http.Request) { r.Header.Set("webhook-timestamp", strconv.FormatInt(time.Now().Unix()-1, 10)) }, http.StatusUnauthorized},
		"an old timestamp":   {func(r *http.Request) { *r = *signedEvent(t, id, body, time.Now().Add(-6*time.Minute)) }, http.StatusUnauthorized},
		"a future timestamp": {func(r *http.Request) { *r = *signedEvent(t, id, body, time.Now().Add(6*time.Minute)) }, http.StatusUnauthorized},
		"another body":       {func(r *http.Request) { r.Body = http.NoBody }, http.StatusUnauthorized},
		"no JSON":            {func(r *http.Request) { *r = *signedEvent(t, id, "{", time.Now()) }, http.StatusBadRequest},
		"too large a body":   {func(r *http.Request) { *r = *signedEvent(t, id, strings.Repeat(" ", 1<<20)+body, time.Now()) }, http.StatusBadRequest},
	} {
		if status := deliver(t, endpoint, id, body, test.change); status != test.status {
			t.Errorf("%s: status %d, want %d", name, status, test.status)
		}
	}
	if n := one[int](t, pool, "select count(*) from idem.records"); n != 0 || turnover(t, pool) != "" {
		t.Errorf("%d records, turnover %q", n, turnover(t, pool))
	}
	if status := deliver(t, endpoint, id, body, nil); status != http.StatusNoContent || turnover(t, pool) != "alice 7 0 1, bob 0 7 1" {
		t.Errorf("status %d, turnover %q", status, turnover(t, pool))
	}
	if status := deliver(t, endpoint, id, transferPosted(id, "alice", "bob", 8), nil); status != http.StatusUnprocessableEntity {
		t.Errorf("another event with the same id: status %d", status)
	}
	if status := deliver(t, endpoint, uuid.NewString(), `{"type":"account.painted","data":{"from":7}}`, nil); status != http.StatusNoContent {
		t.Errorf("an event of another type: status %d", status)
	}
}
