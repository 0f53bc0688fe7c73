package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/examples/ledger/api"
	"github.com/idempg/idempg/examples/ledger/jobs"
	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/idem/idemtest"
)

// Transfers are exactly once: repeated, at once, with a client that hangs up,
// with an app that dies at any step, refused or not. What is measured is the
// balance of who is paid.
func TestTransfersAreExactlyOnce(t *testing.T) {
	t.Parallel()
	pool := idemtest.NewDatabase(t, migrate)
	app, store := newAppOn(t, pool, jobs.Config{})
	bodies := map[idemtest.Variant]string{
		idemtest.Original: transferBody("bank", "alice", 700),
		idemtest.Other:    transferBody("bank", "alice", 9900),
		idemtest.Refused:  transferBody("poor", "alice", 700),
	}
	runOnce(t, app, store, pool, "/v1/transfers", bodies,
		"select balance from ledger.accounts where tenant = 'acme' and id = 'alice'")
	wantEvents(t, pool)
}

// Accounts are exactly once, too. Each has an id of its own, made from the key.
func TestAccountsAreExactlyOnce(t *testing.T) {
	t.Parallel()
	pool := idemtest.NewDatabase(t, migrate)
	app, store := newAppOn(t, pool, jobs.Config{})
	currencies := map[idemtest.Variant]string{idemtest.Original: "EUR", idemtest.Other: "JPY", idemtest.Refused: "euro"}
	idemtest.Run(t, idemtest.App{
		Store: store,
		Send: idemtest.HTTP(testFiber(app), func(r idemtest.Request) *http.Request { //nolint:bodyclose // HTTP closes the body
			id := strings.ToLower(r.Key)
			return newTestRequest("/v1/accounts", `{"id":"`+id+`","currency":"`+currencies[r.Variant]+`"}`)
		}),
		Effect:   idemtest.Query(pool, "select count(*) from ledger.accounts"),
		Refusals: true,
	})
}

// runOnce proves that a POST of one of bodies to path, which moves money between
// the test accounts, is exactly once. effect is a query for what it does.
func runOnce(t *testing.T, app *fiber.App, store *idem.Store, pool *pgxpool.Pool, path string, bodies map[idemtest.Variant]string, effect string) {
	t.Helper()
	openTestAccounts(t, app)
	idemtest.Run(t, idemtest.App{
		Store: store,
		Send: idemtest.HTTP(testFiber(app), func(r idemtest.Request) *http.Request { //nolint:bodyclose // HTTP closes the body
			return newTestRequest(path, bodies[r.Variant])
		}),
		Effect:   idemtest.Query(pool, effect),
		Refusals: true,
	})
	wantBalancedBooks(t, pool)
}

// newAppOn returns an app whose jobs have what config says beside pool and store.
func newAppOn(t *testing.T, pool *pgxpool.Pool, config jobs.Config) (*fiber.App, *idem.Store) {
	t.Helper()
	store, err := idem.New(pool, idem.Config{})
	must(t, err)
	keys, _, err := api.ParseKeys(defaultKeys)
	must(t, err)
	config.Pool, config.Store = pool, store
	return api.New(api.Config{Pool: pool, Store: store, Keys: keys, Outboxes: newJobs(t, config)}), store
}

func testFiber(app *fiber.App) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) { return app.Test(r, -1) }
}

func newTestRequest(path, body string) *http.Request {
	request := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer acme-demo-key")
	return request
}

func openTestAccounts(t *testing.T, app *fiber.App) {
	t.Helper()
	for _, body := range []string{
		`{"id":"bank","currency":"EUR","min_balance":null}`,
		`{"id":"alice","currency":"EUR","min_balance":0}`,
		`{"id":"poor","currency":"EUR","min_balance":0}`,
	} {
		request := newTestRequest("/v1/accounts", body)
		request.Header.Set("Idempotency-Key", newKey())
		response, err := app.Test(request, -1)
		must(t, err)
		if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusCreated {
			t.Fatalf("open an account: %d, %v", response.StatusCode, err)
		}
	}
}

// Holds are exactly once, and so is what ends them: the first of two captures.
func TestHoldsAreExactlyOnce(t *testing.T) {
	t.Parallel()
	pool := idemtest.NewDatabase(t, migrate)
	app, store := newAppOn(t, pool, jobs.Config{})
	bodies := map[idemtest.Variant]string{
		idemtest.Original: holdBody("bank", "alice", 700),
		idemtest.Other:    holdBody("bank", "alice", 9900),
		idemtest.Refused:  holdBody("poor", "alice", 700),
	}
	runOnce(t, app, store, pool, "/v1/holds", bodies,
		"select held from ledger.accounts where tenant = 'acme' and id = 'bank'")
}
