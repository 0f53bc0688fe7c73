package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/examples/ledger/api"
	"github.com/idempg/idempg/examples/ledger/book"
)

// bulkTransfer is an item of the list. members come first and may be "".
func bulkTransfer(key, from, to string, amount int64, members string) string {
	return fmt.Sprintf(`{%s"key":%q,"from":%q,"to":%q,"amount":%d,"currency":"EUR"}`, members, key, from, to, amount)
}

func bulkBody(items ...string) string { return `{"transfers":[` + strings.Join(items, ",") + `]}` }

// bulk posts a list and returns a result for each of its n items.
func (c client) bulk(n int, body string) []api.BulkResult {
	c.t.Helper()
	a := want(c.t, c.post("/v1/transfers/bulk", "", body), http.StatusOK)
	results := decode[struct{ Results []api.BulkResult }](c.t, a).Results
	if len(results) != n {
		c.t.Fatalf("%d results to %d items: %s", len(results), n, a.body)
	}
	return results
}

// bulkAnswer is the result as if it had been the whole answer, for the helpers.
func bulkAnswer(r api.BulkResult) answer {
	header := http.Header{}
	if r.Status >= http.StatusBadRequest {
		header.Set("Content-Type", "application/problem+json")
	}
	if r.Replayed {
		header.Set("Idempotency-Replayed", "true")
	}
	return answer{r.Status, header, string(r.Body)}
}

func newBulkService(t *testing.T) (client, *pgxpool.Pool) {
	t.Helper()
	service, pool := newService(t)
	service.open("bank", "EUR", "null")
	for _, id := range []string{"alice", "bob", "poor"} {
		service.open(id, "EUR", "0")
	}
	return service, pool
}

// Goal: the answer to a transfer of a list cannot be told from that of a single
// one. Method: the same transfers both ways, then each is read again.
func TestABulkTransferIsAnsweredLikeASingleOne(t *testing.T) {
	t.Parallel()
	service, pool := newBulkService(t)
	id := regexp.MustCompile(`"id":"[-0-9a-f]{36}"|"(from_|to_)balance":-?\d+|"created_at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d*[1-9])?Z"`)
	for _, members := range []string{
		``,
		`"reference":"Überweisung <&> \u2028 \u0001\b\f\"","metadata":null,`,
		`"reference":"","metadata":{ "b": 1.50, "a" : [null,1e400,"\u0000\ud800 <b>"] },`,
	} {
		single := want(t, service.post("/v1/transfers", newKey(),
			fmt.Sprintf(`{%s"from":"bank","to":"alice","amount":7,"currency":"EUR"}`, members)), http.StatusCreated)
		result := service.bulk(1, bulkBody(bulkTransfer(newKey(), "bank", "alice", 7, members)))[0]
		want(t, bulkAnswer(result), http.StatusCreated)
		if got, want := id.ReplaceAllString(string(result.Body), ""), id.ReplaceAllString(single.body, ""); got != want {
			t.Errorf("%s\nanswered\n%s\nsingly\n%s", members, result.Body, single.body)
		}
		transfer := decode[book.Transfer](t, bulkAnswer(result))
		if transfer.ID.Version() != 7 {
			t.Errorf("id %v, want version 7", transfer.ID)
		}
		if got := service.get("/v1/transfers/" + transfer.ID.String()); got.body != string(result.Body) {
			t.Errorf("read as\n%s\nwas created as\n%s", got.body, result.Body)
		}
	}
	if n := one[int](t, pool, `select count(*) from idem.records where operation = $1 and scope = 'acme' and headers->>'Location' is not null
		and headers->'Content-Type'->>0 = 'application/json'`, "POST /v1/transfers/bulk"); n != 3 {
		t.Errorf("%d records with Location and Content-Type, want 3", n)
	}
}

// Goal: each item is refused by itself, in the words and with the finality of
// the single endpoint. Method: refused ones between transfers that happen, then
// the list again when the refused could be carried out.
func TestABulkIsRefusedItemByItem(t *testing.T) {
	t.Parallel()
	service, _ := newBulkService(t)
	service.open("dollars", "USD", "null")
	service.open("mint", "EUR", "null")
	service.open("rich", "EUR", "null")
	want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "rich", book.MinorUnitsMax-100)), http.StatusCreated)
	cases := []struct {
		from, to string
		amount   int64
		status   int
		problem  string
	}{
		{"bank", "alice", 10, 201, ""},
		{"poor", "alice", 10, 422, "insufficient-funds"},
		{"alice", "bob", 10, 201, ""}, // what the first one brought
		{"alice", "bob", 10, 422, "insufficient-funds"},
		{"carol", "bob", 10, 404, "account-not-found"},
		{"bank", "carol", 10, 404, "account-not-found"},
		{"bank", "dollars", 10, 422, "currency-mismatch"},
		{"dollars", "bank", 10, 422, "currency-mismatch"},
		{"dollars", "carol", 10, 404, "account-not-found"},
		{"mint", "rich", 101, 422, "balance-limit"},
		{"bank", "mint", 90, 201, ""},
		{"bank", "mint", 10, 422, "balance-limit"},
		{"poor", "rich", book.MinorUnitsMax, 422, "insufficient-funds"}, // and the balance limit
		{"bob", "alice", 3, 201, ""},
	}
	items := make([]string, len(cases))
	for i, c := range cases {
		items[i] = bulkTransfer(newKey(), c.from, c.to, c.amount, "")
	}
	first := service.bulk(len(items), bulkBody(items...))
	for i, c := range cases {
		a := bulkAnswer(first[i])
		if c.problem == "" {
			want(t, a, c.status)
			continue
		}
		inBulk := wantProblem(t, a, c.status, c.problem)
		single := wantProblem(t, service.post("/v1/transfers", newKey(), transferBody(c.from, c.to, c.amount)), c.status, c.problem)
		if single.Type != inBulk.Type || single.Title != inBulk.Title || inBulk.Detail == "" {
			t.Errorf("in a list %+v, singly %+v", inBulk, single)
		}
	}
	service.open("carol", "EUR", "0")
	want(t, service.post("/v1/transfers", newKey(), transferBody("alice", "poor", 2)), http.StatusCreated)
	for i, again := range service.bulk(len(items), bulkBody(items...)) {
		wantReplay(t, bulkAnswer(again), bulkAnswer(first[i]))
	}
	if alice, bob := service.balance("alice"), service.balance("bob"); alice != 1 || bob != 7 {
		t.Errorf("balances %d and %d, want 1 and 7", alice, bob)
	}
}

// Goal: a key is used once within a list as it is between requests, and its
// fingerprint is the content, not its spelling.
func TestKeysOfABulk(t *testing.T) {
	t.Parallel()
	service, _ := newBulkService(t)
	single := newKey()
	want(t, service.post("/v1/transfers", single, transferBody("bank", "alice", 10)), http.StatusCreated)
	key := newKey()
	const metadata = `"metadata":{"a":1,"b":{"c":"é","d":[1.0]}},"reference":null,`
	results := service.bulk(7, bulkBody(
		bulkTransfer(key, "bank", "alice", 10, metadata),
		bulkTransfer(key, "bank", "alice", 10, metadata),
		` { "currency":"EUR", "metadata" : {"b":{"d":[ 1.0 ],"c":"\u00e9"}, "a":1}, "amount":10, "to":"alice", "from":"b\u0061nk", "key":"`+key+`" } `,
		bulkTransfer(key, "bank", "alice", 11, metadata),
		bulkTransfer(key, "bank", "alice", 10, strings.Replace(metadata, "1.0", "1.00", 1)),
		bulkTransfer(key, "bank", "alice", 10, ""),
		bulkTransfer(single, "bank", "alice", 10, ""),
	))
	first := want(t, bulkAnswer(results[0]), http.StatusCreated)
	for i, r := range results {
		switch {
		case i == 1 || i == 2:
			wantReplay(t, bulkAnswer(r), first)
		case i > 2:
			wantProblem(t, bulkAnswer(r), http.StatusUnprocessableEntity, "docs/problems.md#idempotency-key-reused")
		}
	}
	wantProblem(t, service.post("/v1/transfers", key, transferBody("bank", "alice", 10)), http.StatusUnprocessableEntity, "idempotency-key-reused")

	globex := service.as("globex-demo-key") // whose keys are others, and whose accounts are none
	wantProblem(t, bulkAnswer(globex.bulk(1, bulkBody(bulkTransfer(key, "bank", "alice", 10, metadata)))[0]), http.StatusNotFound, "account-not-found")
	if balance := service.balance("alice"); balance != 20 {
		t.Errorf("balance %d, want 20", balance)
	}
}

// Goal: an invalid item says where it is wrong, stops no other, and leaves its
// key free.
func TestInvalidItemsOfABulk(t *testing.T) {
	t.Parallel()
	service, pool := newBulkService(t)
	item := func(key, members string) string {
		return fmt.Sprintf(`{"key":%s,"from":"bank","to":"alice","currency":"EUR",%s}`, key, members)
	}
	keyed := newKey()
	cases := []struct{ item, field, key string }{
		{`7`, "", ""},
		{`null`, "", ""},
		{`["a"]`, "", ""},
		{`{}`, ".key", ""},
		{item(`null`, `"amount":1`), ".key", ""},
		{item(`7`, `"amount":1`), ".key", ""},
		{item(`""`, `"amount":1`), ".key", ""},
		{item(`"a b"`, `"amount":1`), ".key", ""},
		{item(`"ä"`, `"amount":1`), ".key", ""},
		{item(`"a\u0000"`, `"amount":1`), ".key", ""},
		{item(`"`+strings.Repeat("k", 256)+`"`, `"amount":1`), ".key", ""},
		{item(`"k"`, `"amount":"1"`), ".amount", "k"},
		{item(`"k"`, `"amount":0`), ".amount", "k"},
		{item(`"k"`, `"amount":1,"body":1`), ".body", "k"},
		{item(`"k"`, `"amount":1,"amount":2`), ".amount", ""},
		{item(`"k"`, `"amount":1,"metadata":{"a":{"b":1,"b":2}}`), ".b", ""},
		{item(`"k"`, `"amount":1,"metadata":{"a":"`+strings.Repeat("x", book.MetadataBytesMax)+`"}`), ".metadata", "k"},
		{item(`"`+keyed+`"`, `"reference":"x"`), ".amount", keyed},
	}
	items := []string{}
	for _, c := range cases {
		items = append(items, c.item, bulkTransfer(newKey(), "bank", "alice", 1, ""))
	}
	for i, r := range service.bulk(len(items), bulkBody(items...)) {
		if i%2 == 1 {
			want(t, bulkAnswer(r), http.StatusCreated)
			continue
		}
		c := cases[i/2]
		p := wantProblem(t, bulkAnswer(r), http.StatusBadRequest, "invalid-request")
		if field := fmt.Sprintf("transfers[%d]%s", i, c.field); p.Field != field || !strings.HasPrefix(p.Detail, field+" ") {
			t.Errorf("%.100s: field %q, want %q: %s", c.item, p.Field, field, p.Detail)
		}
		if (r.Key == nil) != (c.key == "") || r.Key != nil && *r.Key != c.key {
			t.Errorf("%.100s: the result has another key", c.item)
		}
	}
	if n := one[int](t, pool, "select count(*) from idem.records where operation = $1", "POST /v1/transfers/bulk"); n != len(cases) {
		t.Errorf("%d records, want those of the %d valid items", n, len(cases))
	}
	for _, key := range []string{keyed, strings.Repeat("~", 255)} {
		if a := want(t, bulkAnswer(service.bulk(1, bulkBody(bulkTransfer(key, "bank", "alice", 1, "")))[0]), http.StatusCreated); a.replayed() {
			t.Error("replayed what was invalid")
		}
	}
}

func TestARequestThatIsNoBulk(t *testing.T) {
	t.Parallel()
	service, _ := newBulkService(t)
	valid := bulkTransfer(newKey(), "bank", "alice", 1, "")
	for body, field := range map[string]string{
		``:                                  "body",
		`[` + valid + `]`:                   "body",
		`{"transfers":[` + valid + `]`:      "body",
		`{"transfers":[` + valid + "]}\xff": "body",
		`{}`:                                "transfers",
		`{"transfers":null}`:                "transfers",
		`{"transfers":{}}`:                  "transfers",
		`{"transfers":[]}`:                  "transfers",
		bulkBody(strings.Repeat("7,", 1000) + valid):                "transfers",
		`{"transfers":[],"transfers":[` + valid + `]}`:              "transfers",
		`{"transfers":[` + valid + `],"key":"k"}`:                   "key",
		bulkBody(valid + strings.Repeat(" ", api.BulkBodyBytesMax)): "body",
	} {
		p := wantProblem(t, service.post("/v1/transfers/bulk", "", body), http.StatusBadRequest, "invalid-request")
		if p.Field != field {
			t.Errorf("%.100s: field %q, want %q: %s", body, p.Field, field, p.Detail)
		}
	}
	wantProblem(t, service.as("").post("/v1/transfers/bulk", "", bulkBody(valid)), http.StatusUnauthorized, "unauthorized")
	if balance := service.balance("alice"); balance != 0 {
		t.Errorf("balance %d, want 0", balance)
	}
}

func TestALongBulk(t *testing.T) {
	t.Parallel()
	service, _ := newBulkService(t)
	items := make([]string, api.BulkItemsMax)
	for i := range items {
		items[i] = bulkTransfer(fmt.Sprint(i), "bank", "alice", 1, "")
	}
	first := service.bulk(api.BulkItemsMax, bulkBody(items...))
	for i, r := range first {
		if transfer := decode[book.Transfer](t, want(t, bulkAnswer(r), http.StatusCreated)); transfer.ToBalance != int64(i+1) || *r.Key != fmt.Sprint(i) {
			t.Fatalf("transfer %d: key %s, balance %d", i, *r.Key, transfer.ToBalance)
		}
	}
	for i, again := range service.bulk(api.BulkItemsMax, bulkBody(items...)) {
		wantReplay(t, bulkAnswer(again), bulkAnswer(first[i]))
	}
	if balance := service.balance("alice"); balance != api.BulkItemsMax {
		t.Errorf("balance %d, want %d", balance, api.BulkItemsMax)
	}
}

// Goal: lists that meet move money once and do not fail on each other. Method:
// two clients at a time send the same list at once, others its transfers the
// other way round in another order; whoever is told "in flight" asks again.
func TestABurstOfBulksMovesMoneyOnce(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	const accounts, lists, size = 10, 6, 120
	for i := range accounts {
		service.open(fmt.Sprint("a", i), "EUR", "null")
	}
	var wg sync.WaitGroup
	answers := make([][][]api.BulkResult, lists)
	barrier := make(chan struct{})
	for list := range answers {
		answers[list] = make([][]api.BulkResult, 2)
		items := make([]string, size)
		for i := range items {
			n := i
			if list%2 == 1 {
				n = size - 1 - i
			}
			from, to := n%accounts, (n*7+1+n/accounts)%accounts
			if from == to {
				to = (to + 1) % accounts
			}
			items[i] = bulkTransfer(fmt.Sprintf("%d-%d", list, i), fmt.Sprint("a", from), fmt.Sprint("a", to), int64(1+list), "")
		}
		for twin := range answers[list] {
			wg.Go(func() {
				<-barrier
				answers[list][twin] = service.untilDone(items)
			})
		}
	}
	close(barrier)
	wg.Wait()
	for list := range answers {
		for i, a := range answers[list][0] {
			b := answers[list][1][i]
			if a.Status != http.StatusCreated || b.Status != http.StatusCreated || string(a.Body) != string(b.Body) || a.Replayed == b.Replayed {
				t.Fatalf("two answers to one key: %d %v %s, %d %v %s", a.Status, a.Replayed, a.Body, b.Status, b.Replayed, b.Body)
			}
		}
	}
	if n := one[int](t, pool, "select count(*) from ledger.transfers"); n != lists*size {
		t.Errorf("%d transfers, want %d", n, lists*size)
	}
	if n := one[int64](t, pool, "select deadlocks from pg_stat_database where datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// Goal: connections that are lost at any moment, and so answers that are
// unknown, lose no transfer and repeat none. Method: terminate a backend that has
// written something, again and again, while clients send their lists until each item
// has its answer.
func TestBulksOnLostConnections(t *testing.T) {
	t.Parallel()
	service, pool := newBulkService(t)
	const lists, size, kills = 4, 60, 25
	var wg sync.WaitGroup
	answers := make([][]api.BulkResult, lists)
	for list := range answers {
		items := make([]string, size)
		for i := range items {
			items[i] = bulkTransfer(fmt.Sprintf("%d-%d", list, i), "bank", []string{"alice", "bob"}[i%2], 1, "")
		}
		wg.Go(func() {
			for range 3 { // also to its own replays
				answers[list] = service.untilDone(items)
			}
		})
	}
	var done atomic.Bool
	go func() { wg.Wait(); done.Store(true) }()
	killed := 0
	for killed < kills && !done.Load() {
		killed += one[int](t, pool, `select count(pg_terminate_backend(pid)) from (
			select pid from pg_stat_activity where datname = current_database() and backend_xid is not null
			order by random() limit 1) as backend`)
	}
	wg.Wait()
	if killed == 0 {
		t.Error("no connection was lost")
	}
	for _, results := range answers {
		for _, r := range results {
			want(t, bulkAnswer(r), http.StatusCreated)
		}
	}
	if alice, bob := service.balance("alice"), service.balance("bob"); alice != lists*size/2 || bob != lists*size/2 {
		t.Errorf("balances %d and %d, want %d", alice, bob, lists*size/2)
	}
}

// untilDone sends a list, and again while anything of it may be answered
// otherwise. Each result is the first that was final.
func (c client) untilDone(items []string) []api.BulkResult {
	results := make([]api.BulkResult, len(items))
	for open := true; open; {
		open = false
		for i, r := range c.bulk(len(items), bulkBody(items...)) {
			again := r.Status == http.StatusConflict || r.Status == http.StatusServiceUnavailable
			if results[i].Status == 0 && !again {
				results[i] = r
			}
			open = open || again
		}
	}
	return results
}

// What is unexpected about one item stays inside, and stops no other.
func TestAnItemThatFailsStaysInside(t *testing.T) {
	t.Parallel()
	service, pool := newBulkService(t)
	_, err := pool.Exec(t.Context(), `
		create function fail() returns trigger language plpgsql as $$ begin raise exception 's3cret'; end $$;
		create trigger fail before insert on ledger.transfers for each row when (new.amount = 13) execute function fail()`)
	must(t, err)
	keys := []string{newKey(), newKey(), newKey()}
	list := bulkBody(bulkTransfer(keys[0], "bank", "alice", 1, ""), bulkTransfer(keys[1], "bank", "alice", 13, ""), bulkTransfer(keys[2], "bank", "alice", 2, ""))
	results := service.bulk(3, list)
	want(t, bulkAnswer(results[0]), http.StatusCreated)
	want(t, bulkAnswer(results[2]), http.StatusCreated)
	wantProblem(t, bulkAnswer(results[1]), http.StatusInternalServerError, "internal-error")
	if strings.Contains(string(results[1].Body), "s3cret") || !json.Valid(results[1].Body) {
		t.Errorf("the answer tells a secret: %s", results[1].Body)
	}
	_, err = pool.Exec(t.Context(), `drop trigger fail on ledger.transfers`)
	must(t, err)
	results = service.bulk(3, list)
	want(t, bulkAnswer(results[1]), http.StatusCreated)
	if results[1].Replayed || !results[0].Replayed || !results[2].Replayed {
		t.Errorf("replayed: %v %v %v", results[0].Replayed, results[1].Replayed, results[2].Replayed)
	}
}

// Goal: while one list carries out a transfer, another with the same key is told
// so, and with another payload refused. Method: hold the first at its account.
func TestAKeyOfABulkInUse(t *testing.T) {
	t.Parallel()
	service, pool := newBulkService(t)
	key := newKey()
	release := holdTransfers["between claim and writes"](t, pool)
	list := bulkBody(bulkTransfer(key, "bank", "alice", 5, ""), bulkTransfer(newKey(), "bank", "alice", 6, ""))
	running := service.background("/v1/transfers/bulk", "", list)
	awaitHeldTransfer(t, pool)
	results := service.bulk(3, bulkBody(bulkTransfer(key, "bank", "alice", 5, ""), bulkTransfer(key, "bank", "bob", 5, ""), bulkTransfer(newKey(), "bank", "bob", 0, "")))
	wantProblem(t, bulkAnswer(results[0]), http.StatusConflict, "request-in-flight")
	wantProblem(t, bulkAnswer(results[1]), http.StatusUnprocessableEntity, "idempotency-key-reused")
	release()
	want(t, <-running, http.StatusOK)
	if balance := service.balance("alice"); balance != 11 {
		t.Errorf("balance %d, want 11", balance)
	}
}
