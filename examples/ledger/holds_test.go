package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/examples/ledger/book"
)

func holdBody(from, to string, amount int64) string {
	return fmt.Sprintf(`{"from":%q,"to":%q,"amount":%d,"currency":"EUR","expires_in":3600}`, from, to, amount)
}

// hold places a hold.
func (c client) hold(from, to string, amount int64) (path string, hold book.Hold) {
	c.t.Helper()
	a := want(c.t, c.post("/v1/holds", newKey(), holdBody(from, to, amount)), http.StatusCreated)
	return a.header.Get("Location"), decode[book.Hold](c.t, a)
}

// wantAccount checks what an account shows. available is -1 for one without end.
func (c client) wantAccount(id string, balance, held, available int64) {
	c.t.Helper()
	account := decode[book.Account](c.t, want(c.t, c.get("/v1/accounts/"+id), http.StatusOK))
	got := int64(-1)
	if account.Available != nil {
		got = *account.Available
	}
	if account.Balance != balance || account.Held != held || got != available {
		c.t.Errorf("%s has balance %d, held %d, available %d, want %d, %d, %d", id, account.Balance, account.Held, got, balance, held, available)
	}
}

// newHoldService has alice with 1000.
func newHoldService(t *testing.T) (client, *pgxpool.Pool) {
	t.Helper()
	service, pool := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	service.open("shop", "EUR", "0")
	service.open("dollars", "USD", "null")
	want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 1000)), http.StatusCreated)
	return service, pool
}

// passTime ends the time of all holds, which nothing but a superuser can.
func passTime(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `begin; set local session_replication_role = replica;
		update ledger.holds set created_at = created_at - interval '1 day', expires_at = expires_at - interval '1 day'; commit`)
	must(t, err)
}

// A hold reserves at once, and its capture transfers a part and releases the rest.
func TestAHoldIsCaptured(t *testing.T) {
	t.Parallel()
	service, _ := newHoldService(t)
	path, placed := service.hold("alice", "shop", 600)
	service.wantAccount("alice", 1000, 600, 400)
	service.wantAccount("shop", 0, 0, 0)
	if placed.State != book.HoldPending || placed.Captured != nil || placed.TransferID != nil || placed.ExpiresAt.Sub(placed.CreatedAt).Seconds() != 3600 {
		t.Errorf("placed %+v", placed)
	}
	wantProblem(t, service.post("/v1/transfers", newKey(), transferBody("alice", "shop", 401)), http.StatusUnprocessableEntity, "insufficient-funds")
	wantProblem(t, service.post("/v1/holds", newKey(), holdBody("alice", "shop", 401)), http.StatusUnprocessableEntity, "insufficient-funds")
	item := bulkTransfer(newKey(), "alice", "shop", 401, "")
	wantProblem(t, bulkAnswer(service.bulk(1, bulkBody(item))[0]), http.StatusUnprocessableEntity, "insufficient-funds")

	key := newKey()
	captured := want(t, service.post(path+"/capture", key, `{"amount":250}`), http.StatusCreated)
	hold := decode[book.Hold](t, captured)
	if hold.State != book.HoldCaptured || *hold.Captured != 250 || captured.header.Get("Location") != "/v1/transfers/"+hold.TransferID.String() {
		t.Errorf("captured %s", captured.body)
	}
	service.wantAccount("alice", 750, 0, 750)
	service.wantAccount("shop", 250, 0, 250)
	transfer := decode[book.Transfer](t, want(t, service.get(captured.header.Get("Location")), http.StatusOK))
	if transfer.Amount != 250 || transfer.From != "alice" || transfer.To != "shop" || *transfer.Reference != "hold "+hold.ID.String() {
		t.Errorf("transfer %+v", transfer)
	}
	if got := want(t, service.get(path), http.StatusOK); got.body != captured.body {
		t.Errorf("read as\n%s\nwas captured as\n%s", got.body, captured.body)
	}
	wantReplay(t, service.post(path+"/capture", key, `{"amount":250}`), captured)
	service.wantAccount("shop", 250, 0, 250)

	path, _ = service.hold("alice", "shop", 750)
	whole := decode[book.Hold](t, want(t, service.post(path+"/capture", newKey(), ""), http.StatusCreated))
	if *whole.Captured != 750 {
		t.Errorf("captured %d, want all of it", *whole.Captured)
	}
	service.wantAccount("alice", 0, 0, 0)
}

func TestAHoldIsVoided(t *testing.T) {
	t.Parallel()
	service, _ := newHoldService(t)
	path, _ := service.hold("alice", "shop", 1000)
	voided := decode[book.Hold](t, want(t, service.post(path+"/void", newKey(), ""), http.StatusOK))
	if voided.State != book.HoldVoided || voided.Captured != nil || voided.TransferID != nil {
		t.Errorf("voided %+v", voided)
	}
	service.wantAccount("alice", 1000, 0, 1000)
}

// What comes second is refused, and stays refused under its key.
func TestAHoldEndsOnce(t *testing.T) {
	t.Parallel()
	service, _ := newHoldService(t)
	for _, first := range []string{"/capture", "/void"} {
		path, _ := service.hold("alice", "shop", 100)
		if a := service.post(path+first, newKey(), ""); a.status >= 300 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		for _, second := range []string{"/capture", "/void"} {
			key := newKey()
			a := service.post(path+second, key, "")
			wantProblem(t, a, http.StatusUnprocessableEntity, "hold-not-pending")
			wantReplay(t, service.post(path+second, key, ""), a)
		}
	}
	service.wantAccount("alice", 900, 0, 900)
	service.wantAccount("shop", 100, 0, 100)

	path, _ := service.hold("alice", "shop", 100)
	key := newKey()
	a := service.post(path+"/capture", key, `{"amount":101}`)
	wantProblem(t, a, http.StatusUnprocessableEntity, "capture-exceeds-hold")
	want(t, service.post(path+"/capture", newKey(), `{"amount":100}`), http.StatusCreated) // it was still pending
	wantReplay(t, service.post(path+"/capture", key, `{"amount":101}`), a)

	const unknown = "/v1/holds/01a22bdf-7949-765c-9d08-6bd65e034c0d"
	wantProblem(t, service.get(unknown), http.StatusNotFound, "hold-not-found")
	wantProblem(t, service.post(unknown+"/void", newKey(), ""), http.StatusNotFound, "hold-not-found")
	wantProblem(t, service.as("globex-demo-key").post(path+"/void", newKey(), ""), http.StatusNotFound, "hold-not-found")
}

// Goal: an amount whose time is over is free at that moment, by the clock of the
// database, whoever asks first.
func TestAHoldExpires(t *testing.T) {
	t.Parallel()
	for name, spend := range map[string]func(client) answer{
		"transfer": func(c client) answer {
			return c.post("/v1/transfers", newKey(), transferBody("alice", "shop", 1000))
		},
		"hold": func(c client) answer { return c.post("/v1/holds", newKey(), holdBody("alice", "shop", 1000)) },
		"bulk": func(c client) answer {
			return bulkAnswer(c.bulk(1, bulkBody(bulkTransfer(newKey(), "alice", "shop", 1000, "")))[0])
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service, pool := newHoldService(t)
			path, _ := service.hold("alice", "shop", 700)
			wantProblem(t, spend(service), http.StatusUnprocessableEntity, "insufficient-funds")
			passTime(t, pool)
			service.wantAccount("alice", 1000, 0, 1000)
			for _, end := range []string{"/capture", "/void"} {
				wantProblem(t, service.post(path+end, newKey(), ""), http.StatusUnprocessableEntity, "hold-not-pending")
			}
			before := service.get(path)
			want(t, spend(service), http.StatusCreated)
			if hold := decode[book.Hold](t, before); hold.State != book.HoldExpired {
				t.Errorf("state %s before its release", hold.State)
			}
			if after := service.get(path); after.body != before.body {
				t.Errorf("shown as\n%s\nbefore its release, and then as\n%s", before.body, after.body)
			}
			if state := one[string](t, pool, "select state from ledger.holds order by id limit 1"); state != book.HoldExpired {
				t.Errorf("state %s in the table, want expired", state)
			}
		})
	}
}

// Goal: of those who end a hold at once, one does. Method: with keys of their
// own they are strangers to each other.
func TestWhoEndsAHoldAtOnce(t *testing.T) {
	t.Parallel()
	service, _ := newHoldService(t)
	path, _ := service.hold("alice", "shop", 1000)
	answers := make([]answer, 16)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = service.post(path+[]string{"/capture", "/void"}[i%2], newKey(), "") })
	}
	wg.Wait()
	ended := 0
	for _, a := range answers {
		if a.status < 300 {
			ended++
		} else {
			wantProblem(t, a, http.StatusUnprocessableEntity, "hold-not-pending")
		}
	}
	if ended != 1 {
		t.Errorf("%d ended it, want 1", ended)
	}
	if hold := decode[book.Hold](t, service.get(path)); hold.State == book.HoldCaptured {
		service.wantAccount("shop", 1000, 0, 1000)
	} else {
		service.wantAccount("alice", 1000, 0, 1000)
	}
}

func TestInvalidHolds(t *testing.T) {
	t.Parallel()
	service, _ := newHoldService(t)
	path, _ := service.hold("alice", "shop", 10)
	hold := func(members string) string {
		return `{"from":"alice","to":"shop","currency":"EUR",` + members + `}`
	}
	for _, test := range []struct{ path, body, field string }{
		{"/v1/holds", hold(`"amount":1`), "expires_in"},
		{"/v1/holds", hold(`"amount":1,"expires_in":0`), "expires_in"},
		{"/v1/holds", hold(`"amount":1,"expires_in":2678401`), "expires_in"},
		{"/v1/holds", hold(`"amount":0,"expires_in":1`), "amount"},
		{"/v1/holds", hold(`"expires_in":1`), "amount"},
		{"/v1/holds", hold(`"amount":1,"expires_in":1,"reference":"x"`), "reference"},
		{"/v1/holds", strings.Replace(hold(`"amount":1,"expires_in":1`), "shop", "alice", 1), "to"},
		{"/v1/holds/x/capture", ``, "id"},
		{path + "/capture", `{"amount":0}`, "amount"},
		{path + "/capture", `{"amount":"1"}`, "amount"},
		{path + "/capture", `[]`, "body"},
		{path + "/capture", `{"to":"bank"}`, "to"},
		{path + "/void", `{"amount":1}`, "amount"},
	} {
		if p := wantProblem(t, service.post(test.path, newKey(), test.body), http.StatusBadRequest, "invalid-request"); p.Field != test.field {
			t.Errorf("%s %s: field %q, want %q", test.path, test.body, p.Field, test.field)
		}
	}
	for body, name := range map[string]string{
		holdBody("alice", "nobody", 1):               "account-not-found",
		holdBody("alice", "dollars", 1):              "currency-mismatch",
		holdBody("alice", "shop", 991):               "insufficient-funds",
		holdBody("bank", "shop", book.MinorUnitsMax): "balance-limit",
	} {
		if a := service.post("/v1/holds", newKey(), body); a.status < 400 || !strings.Contains(a.body, name) {
			t.Errorf("%s: %d %s, want %s", body, a.status, a.body, name)
		}
	}
}

// The schema refuses what would break a hold, whoever writes.
func TestTheSchemaGuardsHolds(t *testing.T) {
	t.Parallel()
	service, pool := newHoldService(t)
	ended, _ := service.hold("alice", "shop", 10)
	want(t, service.post(ended+"/void", newKey(), ""), http.StatusOK)
	service.hold("alice", "shop", 100)
	const insert = `insert into ledger.holds (tenant, id, from_account, to_account, amount, currency, state, ended_at, created_at, expires_at)
		values ('acme', gen_random_uuid(), 'alice', 'shop', 900, 'EUR', 'pending', null, now(), now() + interval '1 hour')`
	for name, test := range map[string]struct{ sql, constraint string }{
		"more than there is":       {strings.Replace(insert, "900", "901", 1), "accounts_funds"},
		"spending what is held":    {`update ledger.accounts set balance = balance - 901 where id = 'alice'`, "accounts_funds"},
		"an amount of zero":        {strings.Replace(insert, "900", "0", 1), "holds_amount"},
		"another currency":         {strings.Replace(insert, "'EUR'", "'USD'", 1), "holds_tenant_from_account_currency_fkey"},
		"a hold for itself":        {strings.Replace(insert, "'shop'", "'alice'", 1), "holds_accounts"},
		"a hold that ends first":   {strings.Replace(insert, "now() + interval '1 hour'", "now()", 1), "holds_expiry"},
		"a hold that begins ended": {strings.Replace(insert, "'pending', null", "'voided', now()", 1), "holds_pending_first"},
		"an unknown state":         {`update ledger.holds set state = 'lost', ended_at = now() where state = 'pending'`, "holds_state"},
		"an end without a time":    {`update ledger.holds set state = 'voided' where state = 'pending'`, "holds_ended"},
		"a capture of nothing":     {`update ledger.holds set state = 'captured', ended_at = now() where state = 'pending'`, "holds_captured"},
		"a capture of too much": {`update ledger.holds set state = 'captured', captured = 101, ended_at = now(),
			transfer_id = (select id from ledger.transfers) where state = 'pending'`, "holds_captured"},
		"a capture by no transfer": {`update ledger.holds set state = 'captured', captured = 100, ended_at = now(),
			transfer_id = gen_random_uuid() where state = 'pending'`, "holds_tenant_transfer_id_fkey"},
		"a second end":        {`update ledger.holds set ended_at = now() where state = 'voided'`, "holds_end_once"},
		"a return to pending": {`update ledger.holds set state = 'pending', ended_at = null where state = 'voided'`, "holds_end_once"},
		"another amount":      {`update ledger.holds set amount = 1 where state = 'pending'`, "holds_end_once"},
		"more time":           {`update ledger.holds set expires_at = expires_at + interval '1 day' where state = 'pending'`, "holds_end_once"},
		"a hold that is gone": {`delete from ledger.holds`, "append-only"},
	} {
		if got := refusal(t, pool, test.sql); got != test.constraint {
			t.Errorf("%s: refused by %q, want %q", name, got, test.constraint)
		}
	}
	if got := refusal(t, pool, insert); got != "" {
		t.Errorf("a sound hold was refused by %q", got)
	}
}
