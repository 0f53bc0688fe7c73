package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"github.com/idempg/idempg/examples/ledger/api"
	"github.com/idempg/idempg/examples/ledger/book"
)

func TestAccounts(t *testing.T) {
	t.Parallel()
	service, _ := newService(t)
	created := want(t, service.post("/v1/accounts", newKey(), `{"currency":"EUR"}`), http.StatusCreated)
	account := decode[book.Account](t, created)
	if id, err := uuid.Parse(account.ID); err != nil || id.Version() != 7 {
		t.Errorf("id %q, want a UUID of version 7", account.ID)
	}
	if created.header.Get("Location") != "/v1/accounts/"+account.ID {
		t.Errorf("Location %q", created.header.Get("Location"))
	}
	if got := want(t, service.get(created.header.Get("Location")), http.StatusOK); got.body != created.body {
		t.Errorf("read as\n%s\nwas created as\n%s", got.body, created.body)
	}
	shape := regexp.MustCompile(`^\{"id":"bank","currency":"USD","balance":0,"held":0,"available":null,"min_balance":null,"version":0,"created_at":"[-0-9T:.]+Z"\}$`)
	if a := service.post("/v1/accounts", newKey(), `{"id":"bank","currency":"USD","min_balance":null}`); !shape.MatchString(a.body) {
		t.Errorf("got %s", a.body)
	}
	if a := decode[book.Account](t, service.get("/v1/accounts/bank")); a.MinBalance != nil {
		t.Errorf("min_balance %d, want null", *a.MinBalance)
	}
	service.open("a.B-c_9", "EUR", "-500")
	if a := decode[book.Account](t, service.get("/v1/accounts/a.B-c_9")); *a.MinBalance != -500 {
		t.Errorf("min_balance %d, want -500", *a.MinBalance)
	}
}

func TestTransfers(t *testing.T) {
	t.Parallel()
	service, _ := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	service.open("bob", "EUR", "-100")
	want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 500)), http.StatusCreated)
	created := want(t, service.post("/v1/transfers", newKey(),
		`{"from":"alice","to":"bob","amount":500,"currency":"EUR","reference":"Überweisung","metadata":{"b":1.50,"a":[null,1e400,"\u0000\ud800"]}}`), http.StatusCreated)
	if got := want(t, service.get(created.header.Get("Location")), http.StatusOK); got.body != created.body {
		t.Errorf("read as\n%s\nwas created as\n%s", got.body, created.body)
	}
	shape := regexp.MustCompile(`^\{"id":"[-0-9a-f]{36}","from":"alice","to":"bob","amount":500,"currency":"EUR",` +
		`"from_balance":0,"to_balance":500,"reference":"Überweisung","metadata":\{"b":1.50,"a":\[null,1e400,"\\u0000\\ud800"\]\},"reverses":null,"reversed_by":null,"created_at":"[-0-9T:.]+Z"\}$`)
	if !shape.MatchString(created.body) {
		t.Errorf("got %s", created.body)
	}
	if transfer := decode[book.Transfer](t, created); transfer.ID.Version() != 7 || time.Since(transfer.CreatedAt) > time.Hour {
		t.Errorf("id %v, created at %v", transfer.ID, transfer.CreatedAt)
	}
	plain := want(t, service.post("/v1/transfers", newKey(), transferBody("bob", "alice", 600)), http.StatusCreated)
	if !strings.Contains(plain.body, `"from_balance":-100,"to_balance":600,"reference":null,"metadata":null`) {
		t.Errorf("got %s", plain.body)
	}
	if got := service.get(plain.header.Get("Location")); got.body != plain.body {
		t.Errorf("read as\n%s\nwas created as\n%s", got.body, plain.body)
	}
	if audit := service.get("/v1/audit").body; audit != `{"ok":true,"accounts":3,"transfers":3,"sum_by_currency":{"EUR":0},"balance_mismatches":0,"held_mismatches":0,"unbalanced_transfers":0}` {
		t.Errorf("got %s", audit)
	}
}

func TestEntriesArePagedFromTheNewest(t *testing.T) {
	t.Parallel()
	service, _ := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	if a := service.get("/v1/accounts/alice/entries"); a.body != `{"entries":[],"next_cursor":null}` {
		t.Errorf("got %s", a.body)
	}
	for amount := range int64(5) {
		want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", amount+1)), http.StatusCreated)
	}
	page := func(path string) (versions []int64) {
		for _, entry := range decode[struct{ Entries []book.Entry }](t, want(t, service.get(path), http.StatusOK)).Entries {
			if entry.Amount != entry.Version || entry.Balance != entry.Version*(entry.Version+1)/2 {
				t.Errorf("got entry %+v", entry)
			}
			want(t, service.get("/v1/transfers/"+entry.TransferID.String()), http.StatusOK)
			versions = append(versions, entry.Version)
		}
		return versions
	}
	for path, want := range map[string]string{
		"/v1/accounts/alice/entries":                  "[5 4 3 2 1]",
		"/v1/accounts/alice/entries?limit=2":          "[5 4]",
		"/v1/accounts/alice/entries?limit=2&cursor=4": "[3 2]",
		"/v1/accounts/alice/entries?cursor=2":         "[1]",
		"/v1/accounts/alice/entries?cursor=1":         "[]",
	} {
		if got := fmt.Sprint(page(path)); got != want {
			t.Errorf("%s: versions %s, want %s", path, got, want)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	anyone := service.as("")
	want(t, anyone.get("/healthz"), http.StatusOK)
	want(t, anyone.get("/readyz"), http.StatusOK)
	_, err := pool.Exec(t.Context(), "insert into idem.goose_db_version (version_id, is_applied) values (99, true)")
	must(t, err)
	want(t, anyone.get("/readyz"), http.StatusServiceUnavailable)
	want(t, anyone.get("/healthz"), http.StatusOK)
}

func TestInvalidRequestsNameTheField(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	account := func(members string) string { return `{"currency":"EUR",` + members + `}` }
	transfer := func(members string) string { return `{"from":"bank","to":"alice","currency":"EUR",` + members + `}` }
	amount := func(amount string) string { return transfer(`"amount":` + amount) }
	for _, test := range []struct{ path, body, field string }{
		{"accounts", ``, "body"},
		{"accounts", `null`, "body"},
		{"accounts", `[]`, "body"},
		{"accounts", `"EUR"`, "body"},
		{"accounts", `{"currency":"EUR"`, "body"},
		{"accounts", `{"currency":"EUR"}{}`, "body"},
		{"accounts", `{"currency":"EUR"} x`, "body"},
		{"accounts", "{\"currency\":\"EUR\",\"id\":\"\xff\"}", "body"},
		{"accounts", `{}`, "currency"},
		{"accounts", `{"currency":null}`, "currency"},
		{"accounts", `{"currency":"eur"}`, "currency"},
		{"accounts", `{"currency":"EURO"}`, "currency"},
		{"accounts", `{"currency":"EUR\n"}`, "currency"},
		{"accounts", `{"currency":978}`, "currency"},
		{"accounts", `{"Currency":"EUR"}`, "currency"},
		{"accounts", `{"currency":"EUR","currency":"EUR"}`, "currency"},
		{"accounts", account(`"ID":"x"`), "ID"},
		{"accounts", account(`"colour":"red"`), "colour"},
		{"accounts", account(`"id":""`), "id"},
		{"accounts", account(`"id":"a b"`), "id"},
		{"accounts", account(`"id":"a\u0000"`), "id"},
		{"accounts", account(`"id":".."`), "id"},
		{"accounts", account(`"id":"ä"`), "id"},
		{"accounts", account(`"id":7`), "id"},
		{"accounts", account(`"id":"` + strings.Repeat("x", 65) + `"`), "id"},
		{"accounts", account(`"min_balance":1`), "min_balance"},
		{"accounts", account(`"min_balance":-0.5`), "min_balance"},
		{"accounts", account(`"min_balance":"0"`), "min_balance"},
		{"accounts", account(`"min_balance":-9007199254740993`), "min_balance"},
		{"accounts", account(`"min_balance":-9223372036854775809`), "min_balance"},
		{"transfers", amount(`0`), "amount"},
		{"transfers", amount(`-0`), "amount"},
		{"transfers", amount(`-1`), "amount"},
		{"transfers", amount(`9007199254740993`), "amount"},
		{"transfers", amount(`9223372036854775808`), "amount"},
		{"transfers", amount(`1.5`), "amount"},
		{"transfers", amount(`1.0`), "amount"},
		{"transfers", amount(`1e2`), "amount"},
		{"transfers", amount(`"1"`), "amount"},
		{"transfers", amount(`true`), "amount"},
		{"transfers", amount(`null`), "amount"},
		{"transfers", amount(`1,"amount":1`), "amount"},
		{"transfers", amount(`1,"Amount":1`), "Amount"},
		{"transfers", amount(`1,"id":"x"`), "id"},
		{"transfers", transfer(`"reference":"x"`), "amount"},
		{"transfers", amount(`1,"reference":5`), "reference"},
		{"transfers", amount(`1,"reference":"\u0000"`), "reference"},
		{"transfers", amount(`1,"reference":"` + strings.Repeat("ü", 141) + `"`), "reference"},
		{"transfers", amount(`1,"metadata":[]`), "metadata"},
		{"transfers", amount(`1,"metadata":"x"`), "metadata"},
		{"transfers", amount(`1,"metadata":{"a":{"b":1,"b":2}}`), "b"},
		{"transfers", amount(`1,"metadata":{"a":"` + strings.Repeat("x", 4096) + `"}`), "metadata"},
		{"transfers", `{"from":"bank","to":"bank","amount":1,"currency":"EUR"}`, "to"},
		{"transfers", `{"from":"","to":"bank","amount":1,"currency":"EUR"}`, "from"},
		{"transfers", `{"from":"bank","to":"a/b","amount":1,"currency":"EUR"}`, "to"},
		{"transfers", `{"to":"bank","amount":1,"currency":"EUR"}`, "from"},
		{"transfers", `{"from":"bank","amount":1,"currency":"EUR"}`, "to"},
		{"transfers", `{"from":"bank","to":"alice","amount":1}`, "currency"},
		{"transfers", `{"from":"bank","to":"alice","amount":1,"currency":"eur"}`, "currency"},
		{"transfers", strings.Repeat("[", 60_000), "body"},
	} {
		key := newKey()
		first := service.post("/v1/"+test.path, key, test.body)
		p := wantProblem(t, first, http.StatusBadRequest, "invalid-request")
		if p.Field != test.field || !strings.HasPrefix(p.Detail, p.Field+" ") {
			t.Errorf("%.100s: field %q, want %q: %s", test.body, p.Field, test.field, p.Detail)
		}
		wantReplay(t, service.post("/v1/"+test.path, key, test.body), first)
	}
	for path, field := range map[string]string{
		"/v1/accounts/a%20b":                         "id",
		"/v1/accounts/a%20b/entries":                 "id",
		"/v1/accounts/alice/entries?limit=0":         "limit",
		"/v1/accounts/alice/entries?limit=1001":      "limit",
		"/v1/accounts/alice/entries?limit=x":         "limit",
		"/v1/accounts/alice/entries?cursor=x":        "cursor",
		"/v1/transfers?cursor=x":                     "cursor",
		"/v1/holds?cursor=1":                         "cursor",
		"/v1/transfers?limit=0":                      "limit",
		"/v1/transfers?idempotency_key=%20":          "idempotency_key",
		"/v1/accounts/alice?at_version=-1":           "at_version",
		"/v1/accounts/alice/statement?from=today":    "from",
		"/v1/accounts/alice/statement?to=2026-01-31": "to",
		"/v1/accounts/alice/statement?cursor=1.2":    "cursor",
		"/v1/accounts/alice/statement?from=2026-02-01T00:00:00Z&to=2026-01-31T00:00:00Z": "to",
		"/v1/transfers/x": "id",
		"/v1/transfers/01a22bdf7949765c9d086bd65e034c0d":        "id",
		"/v1/transfers/%7B01a22bdf-7949-765c-9d08-6bd65e034c0d": "id",
	} {
		if p := wantProblem(t, service.get(path), http.StatusBadRequest, "invalid-request"); p.Field != field {
			t.Errorf("%s: field %q, want %q", path, p.Field, field)
		}
	}
	if n := one[int](t, pool, "select (select count(*) from ledger.accounts) + (select count(*) from ledger.transfers)"); n != 2 {
		t.Errorf("%d rows, want the two accounts", n)
	}
}

func TestTheLimitsThemselvesAreValid(t *testing.T) {
	t.Parallel()
	service, _ := newService(t)
	service.open("bank", "EUR", "-9007199254740992")
	service.open(strings.Repeat("x", 64), "EUR", "0")
	nested := strings.Repeat("[", 2044) + strings.Repeat("]", 2044)
	body := fmt.Sprintf(`{"from":"bank","to":%q,"amount":9007199254740992,"currency":"EUR","reference":%q,"metadata":{"a":%s}}`,
		strings.Repeat("x", 64), strings.Repeat("ü", 140), nested)
	a := want(t, service.post("/v1/transfers", newKey(), body), http.StatusCreated)
	if got := service.get(a.header.Get("Location")); got.body != a.body {
		t.Errorf("read as\n%s\nwas created as\n%s", got.body, a.body)
	}
}

func TestALargeBodyIsRefused(t *testing.T) {
	t.Parallel()
	service, _ := newService(t)
	body := `{"currency":"EUR"` + strings.Repeat(" ", api.BodyBytesMax) + `}`
	p := wantProblem(t, service.post("/v1/accounts", newKey(), body), http.StatusBadRequest, "invalid-request")
	if p.Field != "body" {
		t.Errorf("field %q, want body", p.Field)
	}

	// What is larger still is refused before it is read.
	conn, err := net.Dial("tcp", strings.TrimPrefix(service.url, "http://"))
	must(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /v1/accounts HTTP/1.1\r\nHost: ledger\r\nContent-Length: %d\r\n\r\n", api.ReadBytesMax+1)
	must(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	must(t, err)
	p = wantProblem(t, answer{response.StatusCode, response.Header, string(content)}, http.StatusRequestEntityTooLarge, "invalid-request")
	if p.Field != "body" {
		t.Errorf("field %q, want body", p.Field)
	}
}

// Goal: what was refused stays refused under its key, although by now it would
// succeed; a new key gets the new answer.
func TestRefusalsAreFinal(t *testing.T) {
	t.Parallel()
	service, _ := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	service.open("bob", "EUR", "0")
	service.open("dollars", "USD", "0")
	for _, test := range []struct {
		name, path, body string
		status           int
		remedy           func()
		afterwards       int // under a new key
	}{
		{
			"insufficient-funds", "/v1/transfers", transferBody("alice", "bob", 10), http.StatusUnprocessableEntity,
			func() {
				want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 10)), http.StatusCreated)
			}, http.StatusCreated,
		},
		{
			"account-not-found", "/v1/transfers", transferBody("bank", "carol", 10), http.StatusNotFound,
			func() { service.open("carol", "EUR", "0") }, http.StatusCreated,
		},
		{
			"account-exists", "/v1/accounts", `{"id":"bob","currency":"EUR"}`, http.StatusConflict,
			func() {}, http.StatusConflict,
		},
		{
			"currency-mismatch", "/v1/transfers", transferBody("bank", "dollars", 10), http.StatusUnprocessableEntity,
			func() {}, http.StatusUnprocessableEntity,
		},
		{
			"currency-mismatch", "/v1/transfers", `{"from":"bank","to":"bob","amount":1,"currency":"USD"}`, http.StatusUnprocessableEntity,
			func() {}, http.StatusUnprocessableEntity,
		},
	} {
		key := newKey()
		first := service.post(test.path, key, test.body)
		wantProblem(t, first, test.status, test.name)
		test.remedy()
		wantReplay(t, service.post(test.path, key, test.body), first)
		want(t, service.post(test.path, newKey(), test.body), test.afterwards)
	}
}

// No balance leaves ±2^53, so none overflows.
func TestBalancesHaveALimit(t *testing.T) {
	t.Parallel()
	service, _ := newService(t)
	for _, id := range []string{"bank", "rich", "mint"} {
		service.open(id, "EUR", "null")
	}
	want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "rich", book.MinorUnitsMax)), http.StatusCreated)
	wantProblem(t, service.post("/v1/transfers", newKey(), transferBody("bank", "mint", 1)), http.StatusUnprocessableEntity, "balance-limit")
	wantProblem(t, service.post("/v1/transfers", newKey(), transferBody("mint", "rich", 1)), http.StatusUnprocessableEntity, "balance-limit")
	if bank, rich := service.balance("bank"), service.balance("rich"); bank != -book.MinorUnitsMax || rich != book.MinorUnitsMax {
		t.Errorf("balances %d and %d", bank, rich)
	}
}

func TestTenantsAreIsolated(t *testing.T) {
	t.Parallel()
	acme, _ := newService(t)
	globex := acme.as("globex-demo-key")
	acme.open("bank", "EUR", "null")
	acme.open("alice", "EUR", "0")
	key := newKey()
	transfer := want(t, acme.post("/v1/transfers", key, transferBody("bank", "alice", 5)), http.StatusCreated)

	wantProblem(t, globex.get("/v1/accounts/alice"), http.StatusNotFound, "account-not-found")
	wantProblem(t, globex.get("/v1/accounts/alice/entries"), http.StatusNotFound, "account-not-found")
	wantProblem(t, globex.get(transfer.header.Get("Location")), http.StatusNotFound, "transfer-not-found")
	a := globex.post("/v1/transfers", key, transferBody("bank", "alice", 5)) // another tenant's key is another key
	wantProblem(t, a, http.StatusNotFound, "account-not-found")
	if a.replayed() {
		t.Error("one tenant got the other's answer")
	}
	globex.open("alice", "USD", "0")
	globex.open("bank", "EUR", "null")
	wantProblem(t, globex.post("/v1/transfers", newKey(), transferBody("bank", "alice", 5)), http.StatusUnprocessableEntity, "currency-mismatch")
	if audit := decode[book.Audit](t, globex.get("/v1/audit")); !audit.OK || audit.Accounts != 2 || audit.Transfers != 0 {
		t.Errorf("audit %+v", audit)
	}
	if balance := acme.balance("alice"); balance != 5 {
		t.Errorf("balance %d, want 5", balance)
	}
}

func TestWithoutAnAPIKeyNothingHappens(t *testing.T) {
	t.Parallel()
	service, _ := newService(t)
	key := newKey()
	for _, apiKey := range []string{"", "guess", "acme-demo", "ACME-DEMO-KEY"} {
		stranger := service.as(apiKey)
		stranger.hasty = true // the document does not know /v1/unknown
		a := stranger.post("/v1/accounts", key, `{"id":"x","currency":"EUR"}`)
		wantProblem(t, a, http.StatusUnauthorized, "unauthorized")
		if a.header.Get("WWW-Authenticate") == "" {
			t.Error("401 without WWW-Authenticate")
		}
		for _, path := range []string{"/v1/accounts/x", "/v1/audit", "/v1/transfers/x", "/v1/unknown"} {
			wantProblem(t, stranger.get(path), http.StatusUnauthorized, "unauthorized")
		}
	}
	// It was not recorded: the key is as good as new.
	if a := want(t, service.post("/v1/accounts", key, `{"id":"x","currency":"EUR"}`), http.StatusCreated); a.replayed() {
		t.Error("replayed what never happened")
	}
}

func TestTheKeyIsRequired(t *testing.T) {
	t.Parallel()
	service, _ := newService(t)
	for _, path := range []string{"/v1/accounts", "/v1/transfers"} {
		wantProblem(t, service.post(path, "", `{}`), http.StatusBadRequest, "idempotency-key-missing")
		wantProblem(t, service.post(path, strings.Repeat("k", 256), `{}`), http.StatusBadRequest, "idempotency-key-invalid")
	}
}

func TestOtherRoutes(t *testing.T) {
	t.Parallel()
	service, _ := newService(t)
	for path, status := range map[string]int{"/page/": 404, "/v1/": 404, "/v1/transfers/x/reverse": 405, "/v1/accounts/": 404, "/V1/audit": 404} {
		wantProblem(t, service.get(path), status, "about:blank")
	}
}

// An unexpected error and a panic tell the client nothing.
func TestWhatIsUnexpectedStaysInside(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	app, _ := newTestApp(t, url)
	app.Get("/error", func(*fiber.Ctx) error { return errors.New("s3cret") })
	app.Get("/panic", func(*fiber.Ctx) error { panic("s3cret") })
	app.Get("/slow", func(*fiber.Ctx) error { return context.DeadlineExceeded })
	service := serveApp(t, app)
	slow := service.get("/slow")
	wantProblem(t, slow, http.StatusServiceUnavailable, "about:blank")
	if slow.header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	for _, path := range []string{"/error", "/panic"} {
		a := service.get(path)
		wantProblem(t, a, http.StatusInternalServerError, "about:blank")
		if strings.Contains(a.body, "s3cret") {
			t.Errorf("the answer tells a secret: %s", a.body)
		}
	}
}
