package main

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/idempg/idempg/examples/ledger/api"
	"github.com/idempg/idempg/examples/ledger/book"
)

func (c client) statement(id string, query url.Values) book.Statement {
	c.t.Helper()
	return decode[book.Statement](c.t, want(c.t, c.get("/v1/accounts/"+id+"/statement?"+query.Encode()), http.StatusOK))
}

// Goal: a statement reconciles, whatever its period, page by page and while
// transfers go on.
func TestStatementsReconcile(t *testing.T) {
	t.Parallel()
	service, _ := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	var times []time.Time
	for i := range int64(9) {
		a := want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", i+1)), http.StatusCreated)
		times = append(times, decode[book.Transfer](t, a).CreatedAt)
	}
	stamp := func(at time.Time) string { return at.Format(time.RFC3339Nano) }
	for _, test := range []struct {
		from, to         string
		opening, closing int64
		lines            int
	}{
		{"", "", 0, 45, 9},
		{stamp(times[0]), "", 0, 45, 9},
		{stamp(times[3]), "", 6, 45, 6},
		{stamp(times[3]), stamp(times[6]), 6, 21, 3},
		{stamp(times[3]), stamp(times[3]), 6, 6, 0},
		{"", stamp(times[0]), 0, 0, 0},
		{"2001-01-01T00:00:00+02:00", "2001-01-02T00:00:00Z", 0, 0, 0},
		{"2999-01-01T00:00:00Z", "", 45, 45, 0},
	} {
		query := url.Values{"from": {test.from}, "to": {test.to}}
		whole := service.statement("alice", query)
		if whole.Opening != test.opening || whole.Closing != test.closing || len(whole.Lines) != test.lines || whole.NextCursor != nil {
			t.Errorf("%v: got %+v", query, whole)
		}
		balance := whole.Opening
		for _, line := range whole.Lines {
			if balance += line.Amount; balance != line.Balance {
				t.Errorf("%v: balance %d in line %+v", query, balance, line)
			}
		}
		if balance != whole.Closing || whole.To.After(time.Now().Add(time.Minute)) {
			t.Errorf("%v: ends with %d and says %+v", query, balance, whole)
		}

		query.Set("limit", "2")
		var lines []book.Entry
		for page := (book.Statement{NextCursor: new(string)}); page.NextCursor != nil; {
			query.Set("cursor", *page.NextCursor)
			page = service.statement("alice", query)
			if page.Opening != whole.Opening || page.Closing != whole.Closing || !page.From.Equal(whole.From) {
				t.Fatalf("%v: page %+v of %+v", query, page, whole)
			}
			lines = append(lines, page.Lines...)
		}
		if fmt.Sprint(lines) != fmt.Sprint(whole.Lines) {
			t.Errorf("%v: page by page\n%v\nand at once\n%v", query, lines, whole.Lines)
		}
	}

	// What comes later does not change the pages of a statement that was begun.
	first := service.statement("alice", url.Values{"limit": {"5"}})
	want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 100)), http.StatusCreated)
	second := service.statement("alice", url.Values{"limit": {"5"}, "cursor": {*first.NextCursor}})
	if second.Closing != 45 || len(second.Lines) != 4 || !second.To.Equal(first.To) || second.NextCursor != nil {
		t.Errorf("the second page is %+v", second)
	}
	wantProblem(t, service.get("/v1/accounts/carol/statement"), http.StatusNotFound, "account-not-found")
}

func TestAnAccountAsItWas(t *testing.T) {
	t.Parallel()
	service, _ := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	for range 3 {
		want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 10)), http.StatusCreated)
	}
	for version := range int64(4) {
		at := decode[book.AccountAt](t, want(t, service.get(fmt.Sprint("/v1/accounts/alice?at_version=", version)), http.StatusOK))
		if at.Balance != 10*version || at.Version != version || at.ID != "alice" || at.At.IsZero() {
			t.Errorf("version %d: %+v", version, at)
		}
	}
	wantProblem(t, service.get("/v1/accounts/alice?at_version=4"), http.StatusNotFound, "version-not-found")
	wantProblem(t, service.get("/v1/accounts/carol?at_version=0"), http.StatusNotFound, "account-not-found")
}

// Every list is read to its end by the cursors, each item once.
func TestListsArePaged(t *testing.T) {
	t.Parallel()
	service, _ := newService(t)
	service.open("bank", "EUR", "null")
	for i := range 6 {
		service.open(fmt.Sprint("a", i), "EUR", "0")
		want(t, service.post("/v1/transfers", newKey(), transferBody("bank", fmt.Sprint("a", i), 10)), http.StatusCreated)
		service.hold("bank", fmt.Sprint("a", i), 1)
	}
	for name, items := range map[string]int{"accounts": 7, "transfers": 6, "holds": 6} {
		whole := decode[map[string]any](t, service.get("/v1/"+name))
		if list := whole[name].([]any); len(list) != items || whole["next_cursor"] != nil {
			t.Errorf("%s: %d items, next cursor %v", name, len(list), whole["next_cursor"])
		}
		for _, limit := range []int{1, 2, items, items + 1} {
			var ids, want []string
			for _, one := range whole[name].([]any) {
				want = append(want, one.(map[string]any)["id"].(string))
			}
			for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
				page := decode[map[string]any](t, service.get(fmt.Sprintf("/v1/%s?limit=%d&cursor=%s", name, limit, cursor)))
				for _, one := range page[name].([]any) {
					ids = append(ids, one.(map[string]any)["id"].(string))
				}
				cursor, _ = page["next_cursor"].(string)
			}
			if fmt.Sprint(ids) != fmt.Sprint(want) {
				t.Errorf("%s by %d: %v, want %v", name, limit, ids, want)
			}
		}
		if other := decode[map[string]any](t, service.as("globex-demo-key").get("/v1/"+name)); len(other[name].([]any)) != 0 {
			t.Errorf("another tenant sees %s", name)
		}
	}
}

// What a key did is found by the key.
func TestWhatAKeyDid(t *testing.T) {
	t.Parallel()
	service, _ := newHoldService(t)
	type found struct {
		Transfers []book.Transfer
		Record    *api.KeyRecord
	}
	find := func(key string) found {
		return decode[found](t, want(t, service.get("/v1/transfers?idempotency_key="+url.QueryEscape(key)), http.StatusOK))
	}
	hold, _ := service.hold("alice", "shop", 50)
	for _, path := range []string{"/v1/transfers", "bulk", hold + "/capture", "linked"} {
		key := newKey() + "&=+%" // it is one parameter
		var transfer string
		operation := "POST " + path
		switch path {
		case "bulk":
			operation = "POST /v1/transfers/bulk"
			transfer = decode[book.Transfer](t, bulkAnswer(service.bulk(1, bulkBody(bulkTransfer(key, "bank", "alice", 3, "")))[0])).ID.String()
		case "linked":
			operation = "POST /v1/transfers/linked"
			a := service.post("/v1/transfers/linked", key, linkedBody(leg("bank", -1, "EUR"), leg("alice", 1, "EUR")))
			transfer = decode[book.Transfer](t, want(t, a, http.StatusCreated)).ID.String()
		case "/v1/transfers":
			transfer = decode[book.Transfer](t, want(t, service.post(path, key, transferBody("bank", "alice", 3)), http.StatusCreated)).ID.String()
		default:
			transfer = decode[book.Hold](t, want(t, service.post(path, key, ""), http.StatusCreated)).TransferID.String()
		}
		got := find(key)
		if len(got.Transfers) != 1 || got.Transfers[0].ID.String() != transfer || got.Record.State != "completed" || got.Record.Operation != operation || got.Record.Status != http.StatusCreated {
			t.Errorf("%s: found %+v, %+v", path, got, got.Record)
		}
	}
	refused := newKey()
	wantProblem(t, service.post("/v1/transfers", refused, transferBody("shop", "alice", 1000)), http.StatusUnprocessableEntity, "insufficient-funds")
	if got := find(refused); len(got.Transfers) != 0 || got.Record == nil || got.Record.State != "rejected" || got.Record.Status != http.StatusUnprocessableEntity {
		t.Errorf("refused: found %+v", got)
	}
	if got := find(newKey()); len(got.Transfers) != 0 || got.Record != nil {
		t.Errorf("unknown: found %+v", got)
	}
}
