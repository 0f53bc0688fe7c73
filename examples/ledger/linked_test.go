package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/idempg/idempg/examples/ledger/book"
)

func leg(account string, amount int64, currency string) string {
	return fmt.Sprintf(`{"account":%q,"amount":%d,"currency":%q}`, account, amount, currency)
}

func linkedBody(legs ...string) string { return `{"legs":[` + strings.Join(legs, ",") + `]}` }

// newExchange has alice with 100 EUR and an exchange office with both currencies.
func newExchange(t *testing.T) client {
	t.Helper()
	service, _ := newService(t)
	service.open("bank", "EUR", "null")
	service.open("office-eur", "EUR", "null")
	service.open("office-usd", "USD", "null")
	service.open("alice", "EUR", "0")
	service.open("alice-usd", "USD", "0")
	service.open("fees", "EUR", "0")
	want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 100)), http.StatusCreated)
	return service
}

// exchange sells 80 EUR of alice for 88 USD, and takes a fee of 1 EUR.
var exchange = linkedBody(
	leg("alice", -81, "EUR"), leg("office-eur", 80, "EUR"), leg("fees", 1, "EUR"),
	leg("office-usd", -88, "USD"), leg("alice-usd", 88, "USD"))

func TestALinkedTransferIsAllOrNothing(t *testing.T) {
	t.Parallel()
	service := newExchange(t)
	key := newKey()
	created := want(t, service.post("/v1/transfers/linked", key, exchange), http.StatusCreated)
	transfer := decode[book.Transfer](t, created)
	if transfer.Pair != nil || len(transfer.Legs) != 5 || transfer.Legs[0] != (book.Leg{Account: "alice", Amount: -81, Currency: "EUR", Balance: 19}) {
		t.Errorf("created %s", created.body)
	}
	if got := want(t, service.get(created.header.Get("Location")), http.StatusOK); got.body != created.body {
		t.Errorf("read as\n%s\nwas created as\n%s", got.body, created.body)
	}
	wantReplay(t, service.post("/v1/transfers/linked", key, exchange), created)

	// The second time alice has too little, and nobody gets anything.
	wantProblem(t, service.post("/v1/transfers/linked", newKey(), exchange), http.StatusUnprocessableEntity, "insufficient-funds")
	for id, balance := range map[string]int64{"alice": 19, "office-eur": 80, "fees": 1, "office-usd": -88, "alice-usd": 88} {
		if got := service.balance(id); got != balance {
			t.Errorf("balance of %s is %d, want %d", id, got, balance)
		}
	}
	if audit := service.get("/v1/audit").body; !strings.Contains(audit, `"ok":true,"accounts":6,"transfers":2,"sum_by_currency":{"EUR":0,"USD":0}`) {
		t.Errorf("audit %s", audit)
	}
}

func TestInvalidLinkedTransfers(t *testing.T) {
	t.Parallel()
	service := newExchange(t)
	many := make([]string, book.LegsMax+1)
	for i := range many {
		many[i] = leg(fmt.Sprint("a", i), 1, "EUR")
	}
	for _, test := range []struct{ body, field string }{
		{`{}`, "legs"},
		{`{"legs":{}}`, "legs"},
		{linkedBody(), "legs"},
		{linkedBody(leg("alice", 1, "EUR")), "legs"},
		{linkedBody(many...), "legs"},
		{linkedBody(leg("alice", -2, "EUR"), leg("fees", 1, "EUR")), "legs"},
		{linkedBody(leg("alice", -1, "EUR"), leg("alice-usd", 1, "USD")), "legs"},
		{linkedBody(leg("alice", -1, "EUR"), leg("alice", 1, "EUR")), "legs[1].account"},
		{linkedBody(leg("alice", 0, "EUR"), leg("fees", 0, "EUR")), "legs[0].amount"},
		{linkedBody(leg("alice", -1, "EUR"), leg("fees", book.MinorUnitsMax+1, "EUR")), "legs[1].amount"},
		{linkedBody(leg("alice", -1, "eur"), leg("fees", 1, "eur")), "legs[0].currency"},
		{linkedBody(leg("alice", -1, "EUR"), leg("a b", 1, "EUR")), "legs[1].account"},
		{linkedBody(leg("alice", -1, "EUR"), `7`), "legs[1]"},
		{linkedBody(leg("alice", -1, "EUR"), `{"account":"fees","currency":"EUR"}`), "legs[1].amount"},
		{linkedBody(leg("alice", -1, "EUR"), strings.Replace(leg("fees", 1, "EUR"), "}", `,"x":1}`, 1)), "legs[1].x"},
		{strings.Replace(exchange, `{`, `{"reference":1,`, 1), "reference"},
	} {
		if p := wantProblem(t, service.post("/v1/transfers/linked", newKey(), test.body), http.StatusBadRequest, "invalid-request"); p.Field != test.field {
			t.Errorf("%.200s: field %q, want %q", test.body, p.Field, test.field)
		}
	}
	for name, body := range map[string]string{
		"account-not-found": linkedBody(leg("alice", -1, "EUR"), leg("nobody", 1, "EUR")),
		"currency-mismatch": linkedBody(leg("alice", -1, "USD"), leg("alice-usd", 1, "USD")),
	} {
		if a := service.post("/v1/transfers/linked", newKey(), body); !strings.Contains(a.body, name) {
			t.Errorf("got %d %s, want %s", a.status, a.body, name)
		}
	}
}

// A reversal undoes a transfer of either kind, once, and both name each other.
func TestATransferIsReversedOnce(t *testing.T) {
	t.Parallel()
	service := newExchange(t)
	for kind, post := range map[string]func() answer{
		"pair": func() answer {
			return service.post("/v1/transfers", newKey(), `{"from":"alice","to":"fees","amount":5,"currency":"EUR","reference":"order 7"}`)
		},
		"linked": func() answer { return service.post("/v1/transfers/linked", newKey(), exchange) },
	} {
		before := service.get("/v1/accounts?limit=10").body
		original := want(t, post(), http.StatusCreated)
		path := original.header.Get("Location")
		key := newKey()
		reversed := want(t, service.post(path+"/reverse", key, `{"reference":"goods came back"}`), http.StatusCreated)
		reversal, first := decode[book.Transfer](t, reversed), decode[book.Transfer](t, original)
		if *reversal.Reverses != first.ID || *reversal.Reference != "goods came back" || reversal.ReversedBy != nil {
			t.Errorf("%s: reversal %s", kind, reversed.body)
		}
		if found := decode[book.Transfer](t, service.get(path)); found.ReversedBy == nil || *found.ReversedBy != reversal.ID {
			t.Errorf("%s: the original is reversed by %v, want %v", kind, found.ReversedBy, reversal.ID)
		}
		if got := service.get(reversed.header.Get("Location")); got.body != reversed.body {
			t.Errorf("read as\n%s\nwas created as\n%s", got.body, reversed.body)
		}
		wantReplay(t, service.post(path+"/reverse", key, `{"reference":"goods came back"}`), reversed)
		second := newKey()
		refused := service.post(path+"/reverse", second, "")
		wantProblem(t, refused, http.StatusUnprocessableEntity, "already-reversed")
		wantReplay(t, service.post(path+"/reverse", second, ""), refused)
		wantProblem(t, service.post(reversed.header.Get("Location")+"/reverse", newKey(), ""), http.StatusUnprocessableEntity, "not-reversible")
		after := decode[struct{ Accounts []book.Account }](t, service.get("/v1/accounts?limit=10")).Accounts
		for i, account := range decode[struct{ Accounts []book.Account }](t, answer{body: before}).Accounts {
			if after[i].Balance != account.Balance {
				t.Errorf("%s: balance of %s is %d, was %d", kind, account.ID, after[i].Balance, account.Balance)
			}
		}
	}
	const unknown = "/v1/transfers/01a22bdf-7949-765c-9d08-6bd65e034c0d/reverse"
	wantProblem(t, service.post(unknown, newKey(), ""), http.StatusNotFound, "transfer-not-found")
	wantProblem(t, service.post("/v1/transfers/x/reverse", newKey(), ""), http.StatusBadRequest, "invalid-request")
}

// What was spent cannot be taken back.
func TestAReversalNeedsTheMoney(t *testing.T) {
	t.Parallel()
	service := newExchange(t)
	paid := want(t, service.post("/v1/transfers", newKey(), transferBody("alice", "fees", 60)), http.StatusCreated)
	want(t, service.post("/v1/transfers", newKey(), transferBody("fees", "bank", 30)), http.StatusCreated)
	path := paid.header.Get("Location") + "/reverse"
	wantProblem(t, service.post(path, newKey(), ""), http.StatusUnprocessableEntity, "insufficient-funds")
	want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "fees", 30)), http.StatusCreated)
	want(t, service.post(path, newKey(), ""), http.StatusCreated)
}

// Goal: of those who reverse a transfer at once, one does.
func TestWhoReversesAtOnce(t *testing.T) {
	t.Parallel()
	service := newExchange(t)
	path := want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 7)), http.StatusCreated).header.Get("Location")
	answers := make([]answer, 12)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = service.post(path+"/reverse", newKey(), "") })
	}
	wg.Wait()
	reversed := 0
	for _, a := range answers {
		if a.status == http.StatusCreated {
			reversed++
		} else {
			wantProblem(t, a, http.StatusUnprocessableEntity, "already-reversed")
		}
	}
	if balance := service.balance("alice"); reversed != 1 || balance != 100 {
		t.Errorf("%d reversed it, balance %d, want 1 and 100", reversed, balance)
	}
}

// The schema refuses what is no linked transfer, and no reversal.
func TestTheSchemaGuardsLinkedTransfers(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	for id, currency := range map[string]string{"a": "EUR", "b": "EUR", "c": "EUR", "d": "USD"} {
		service.open(id, currency, "null")
	}
	want(t, service.post("/v1/transfers", newKey(), transferBody("a", "b", 7)), http.StatusCreated)
	transfer := func(columns, values string) string {
		return `insert into ledger.transfers (tenant, id, created_at` + columns + `) values ('acme', '00000000-0000-7000-8000-000000000001', now()` + values + `);`
	}
	entry := func(account string, version, amount int) string {
		return fmt.Sprintf(`insert into ledger.entries (tenant, account_id, version, transfer_id, amount, balance)
			values ('acme', '%s', %d, '00000000-0000-7000-8000-000000000001', %d, 0);`, account, version, amount)
	}
	linked := transfer("", "")
	reversal := transfer(", reverses", ", (select id from ledger.transfers where from_account = 'a')")
	for name, test := range map[string]struct{ sql, constraint string }{
		"no leg":                   {linked, "transfers_balanced"},
		"one leg":                  {linked + entry("a", 2, 1), "transfers_balanced"},
		"legs of another sum":      {linked + entry("a", 2, -3) + entry("b", 2, 1) + entry("c", 1, 1), "transfers_balanced"},
		"legs of two currencies":   {linked + entry("a", 2, -1) + entry("d", 1, 1), "transfers_balanced"},
		"half a pair":              {transfer(", amount", ", 1") + entry("a", 2, -1) + entry("b", 2, 1), "transfers_pair_or_linked"},
		"another amount back":      {reversal + entry("a", 2, 6) + entry("b", 2, -6), "transfers_reversal"},
		"a reversal by a stranger": {reversal + entry("a", 2, 7) + entry("c", 1, -7), "transfers_reversal"},
	} {
		if got := refusal(t, pool, test.sql); got != test.constraint {
			t.Errorf("%s: refused by %q, want %q", name, got, test.constraint)
		}
	}
	sound := reversal + entry("a", 2, 7) + entry("b", 2, -7) + `update ledger.accounts set version = 2, balance = 0 where id in ('a', 'b');`
	if got := refusal(t, pool, sound); got != "" {
		t.Errorf("a sound reversal was refused by %q", got)
	}
	second := strings.ReplaceAll(reversal+entry("a", 3, 7)+entry("b", 3, -7), "000000000001", "000000000002")
	if got := refusal(t, pool, second); got != "transfers_reversed_once" {
		t.Errorf("a second reversal was refused by %q", got)
	}
}
