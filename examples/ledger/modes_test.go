package main

import (
	"net/http"
	"testing"

	"github.com/idempg/idempg/examples/ledger/book"
)

// The service works in every mode of pgx, of which poolers permit only some.
func TestEveryQueryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			url, _ := newDatabase(t)
			app, _ := newTestApp(t, url+" default_query_exec_mode="+mode)
			service := serveApp(t, app)
			service.open("bank", "EUR", "null")
			service.open("mint", "USD", "null")
			service.open("alice", "EUR", "0")
			service.open("dollars", "USD", "0")
			paid := want(t, service.post("/v1/transfers", newKey(),
				`{"from":"bank","to":"alice","amount":100,"currency":"EUR","reference":"it's","metadata":{"a":"\\"}}`), http.StatusCreated)
			want(t, service.post("/v1/transfers/linked", newKey(), linkedBody(
				leg("alice", -10, "EUR"), leg("bank", 10, "EUR"), leg("mint", -11, "USD"), leg("dollars", 11, "USD"))), http.StatusCreated)
			hold, _ := service.hold("alice", "bank", 30)
			want(t, service.post(hold+"/capture", newKey(), `{"amount":20}`), http.StatusCreated)
			hold, _ = service.hold("alice", "bank", 30)
			want(t, service.post(hold+"/void", newKey(), ""), http.StatusOK)
			want(t, bulkAnswer(service.bulk(1, bulkBody(bulkTransfer(newKey(), "bank", "alice", 50, `"metadata":{"b":1},`)))[0]), http.StatusCreated)
			if found := service.get(paid.header.Get("Location")); found.body != paid.body {
				t.Errorf("read as\n%s\nwas created as\n%s", found.body, paid.body)
			}
			want(t, service.post(paid.header.Get("Location")+"/reverse", newKey(), ""), http.StatusCreated)
			for _, path := range []string{"/v1/accounts", "/v1/transfers", "/v1/holds", "/v1/accounts/alice/entries", "/v1/accounts/alice?at_version=1"} {
				want(t, service.get(path), http.StatusOK)
			}
			if s := service.statement("alice", nil); s.Closing != 20 || len(s.Lines) != 5 {
				t.Errorf("statement %+v", s)
			}
			if audit := decode[book.Audit](t, service.get("/v1/audit")); !audit.OK {
				t.Errorf("audit %+v", audit)
			}
		})
	}
}
