package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/rivertype"

	"github.com/idempg/idempg/examples/ledger/api"
	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/examples/ledger/jobs"
	"github.com/idempg/idempg/examples/ledger/provider"
	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/idem/idemtest"
)

func payoutBody(from string, amount int64, destination string) string {
	return fmt.Sprintf(`{"from":%q,"amount":%d,"currency":"EUR","destination":%q,"reference":"November"}`, from, amount, destination)
}

// newPayoutService has alice with 1000, and payouts that nobody carries out
// until the test starts jobs on the pool. answers makes of the provider what the
// client of the ledger sees.
func newPayoutService(t *testing.T, answers http.Handler) (client, *pgxpool.Pool, *provider.Client) {
	t.Helper()
	databaseURL, pool := newDatabase(t)
	endpoint := httptest.NewServer(answers)
	t.Cleanup(endpoint.Close)
	caller := newProviderClient(t, endpoint.URL)
	servicePool, err := connect(t.Context(), databaseURL, nil)
	must(t, err)
	t.Cleanup(servicePool.Close)
	store, err := idem.New(servicePool, idem.Config{})
	must(t, err)
	keys, _, err := api.ParseKeys(defaultKeys)
	must(t, err)
	service := serveApp(t, api.New(api.Config{
		Pool: servicePool, Store: store, Keys: keys,
		Outboxes: newJobs(t, jobs.Config{Pool: servicePool, Store: store, Provider: caller}),
	}))
	service.openWithAThousand()
	return service, pool, caller
}

func newProviderClient(t *testing.T, address string) *provider.Client {
	t.Helper()
	parsed, err := url.Parse(address)
	must(t, err)
	return provider.NewClient(parsed, 500*time.Millisecond)
}

func (c client) openWithAThousand() {
	c.t.Helper()
	c.open("bank", "EUR", "null")
	c.open("alice", "EUR", "0")
	want(c.t, c.post("/v1/transfers", newKey(), transferBody("bank", "alice", 1000)), http.StatusCreated)
}

// payoutEvents are the events of payouts, in the order in which they were written.
func payoutEvents(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	return one[string](t, pool, `select coalesce(string_agg(args->'event'->>'type', ', ' order by id), '')
		from river.river_job where args->'event'->>'type' like 'payout.%'`)
}

// Goal: a provider that charges and then does not answer in time charges once.
// Method: a fake that loses the answer to the first attempt, by cutting the
// connection or by being late.
func TestAPayoutIsChargedOnce(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*provider.Fake) http.Handler{
		"the connection is cut": func(fake *provider.Fake) http.Handler { return fake },
		"the answer is late": func(fake *provider.Fake) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if recover() != nil {
						<-r.Context().Done() // the caller has given up
					}
				}()
				fake.ServeHTTP(w, r)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := provider.NewFake(1)
			service, pool, caller := newPayoutService(t, lose(fake))
			key := newKey()
			accepted := want(t, service.post("/v1/payouts", key, payoutBody("alice", 700, "DE89")), http.StatusAccepted)
			wantReplay(t, service.post("/v1/payouts", key, payoutBody("alice", 700, "DE89")), accepted)
			path := accepted.header.Get("Location")
			payout := decode[book.Payout](t, accepted)
			if payout.State != book.PayoutPending || payout.ChargeID != nil || strings.Contains(accepted.body, "key") {
				t.Errorf("accepted %s", accepted.body)
			}
			service.wantAccount("alice", 1000, 700, 300)
			hold := "/v1/holds/" + payout.HoldID.String()
			wantProblem(t, service.post(hold+"/void", newKey(), ""), http.StatusUnprocessableEntity, "hold-of-payout")
			wantProblem(t, service.post(hold+"/capture", newKey(), ""), http.StatusUnprocessableEntity, "hold-of-payout")

			startJobs(t, pool, jobs.Config{Provider: caller})
			awaitJobs(t, pool, 1, "pay", rivertype.JobStateCompleted)
			charges := fake.Charges()
			if len(charges) != 1 || charges[0].Attempts != 2 || charges[0].Amount != 700 || charges[0].Destination != "DE89" || *charges[0].Reference != "November" {
				t.Errorf("charged %+v, want one charge in two attempts", charges)
			}
			paid := decode[book.Payout](t, want(t, service.get(path), http.StatusOK))
			if paid.State != book.PayoutPaid || *paid.ChargeID != charges[0].ID || paid.Reason != nil {
				t.Errorf("paid %+v", paid)
			}
			service.wantAccount("alice", 300, 0, 300)
			service.wantAccount("payouts-EUR", 700, 0, 700)
			if got := payoutEvents(t, pool); got != "payout.paid" {
				t.Errorf("events %q", got)
			}
			wantEvents(t, pool)
			wantProblem(t, service.as("globex-demo-key").get(path), http.StatusNotFound, "payout-not-found")
		})
	}
}

// A refusal of the provider gives the money back, also when it is heard late.
func TestARefusedPayoutGivesTheMoneyBack(t *testing.T) {
	t.Parallel()
	fake := provider.NewFake(1)
	service, pool, caller := newPayoutService(t, fake)
	path := want(t, service.post("/v1/payouts", newKey(), payoutBody("alice", 700, provider.RefusedDestination)), http.StatusAccepted).header.Get("Location")
	startJobs(t, pool, jobs.Config{Provider: caller})
	awaitJobs(t, pool, 1, "pay", rivertype.JobStateCompleted)
	failed := decode[book.Payout](t, want(t, service.get(path), http.StatusOK))
	if failed.State != book.PayoutFailed || failed.ChargeID != nil || failed.Reason == nil || len(fake.Charges()) != 1 {
		t.Errorf("failed %+v, charges %+v", failed, fake.Charges())
	}
	service.wantAccount("alice", 1000, 0, 1000)
	service.wantAccount("payouts-EUR", 0, 0, 0)
	if got := payoutEvents(t, pool); got != "payout.failed" {
		t.Errorf("events %q", got)
	}
}

// Goal: two workers that both heard the provider end the payout once. Method:
// River takes the job of the first for abandoned while it applies the answer.
func TestTwoWorkersEndAPayoutOnce(t *testing.T) {
	t.Parallel()
	fake := provider.NewFake(0)
	service, pool, caller := newPayoutService(t, fake)
	want(t, service.post("/v1/payouts", newKey(), payoutBody("alice", 700, "DE89")), http.StatusAccepted)
	release := hold(t, pool, "select from ledger.accounts where id = 'alice' for update")
	startJobs(t, pool, jobs.Config{Provider: caller})
	awaitHeldTransfer(t, pool)
	_, err := pool.Exec(t.Context(), "update river.river_job set state = 'available' where kind = 'pay'")
	must(t, err)
	await(t, pool, "another works on it", "select attempt >= 2 from river.river_job where kind = 'pay'")
	release()
	awaitJobs(t, pool, 1, "pay", rivertype.JobStateCompleted)
	if charges := fake.Charges(); len(charges) != 1 {
		t.Errorf("charged %+v, want one charge", charges)
	}
	service.wantAccount("payouts-EUR", 700, 0, 700)
	if got := payoutEvents(t, pool); got != "payout.paid" {
		t.Errorf("events %q", got)
	}
}

// Goal: a ledger that dies after the provider has charged charges no second
// time. Method: kill it before it hears the answer, and while it applies it.
func TestAPayoutSurvivesKillOfTheService(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"before it hears of the charge", "while it applies the charge"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			databaseURL, pool := newDatabase(t)
			fake := provider.NewFake(0)
			charged := make(chan struct{})
			first := sync.OnceFunc(func() { close(charged) })
			endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if step == "before it hears of the charge" && len(fake.Charges()) == 0 {
					fake.ServeHTTP(httptest.NewRecorder(), r)
					first()
					<-r.Context().Done()
					return
				}
				fake.ServeHTTP(w, r)
				first()
			}))
			t.Cleanup(endpoint.Close)
			start := func() *process {
				return startProcess(t, "DATABASE_URL="+databaseURL, "LEDGER_ADDR=127.0.0.1:0", "LEDGER_PROVIDER_URL="+endpoint.URL)
			}
			process := start()
			service := newClient(t, process.url)
			service.openWithAThousand()
			_, err := pool.Exec(t.Context(), `
				create function hold() returns trigger language plpgsql as
					'begin perform pg_advisory_xact_lock_shared(1); return new; end';
				create trigger hold before update on ledger.payouts for each row execute function hold()`)
			must(t, err)
			release := hold(t, pool, "select pg_advisory_xact_lock(1)")
			path := want(t, service.post("/v1/payouts", newKey(), payoutBody("alice", 700, "DE89")), http.StatusAccepted).header.Get("Location")
			<-charged
			if step == "while it applies the charge" {
				awaitHeldTransfer(t, pool)
			}
			process.signal(syscall.SIGKILL)
			_ = process.wait() // it was killed
			_ = one[int](t, pool, "select count(pg_terminate_backend(pid)) from ("+heldBackends+") as held")
			await(t, pool, "its backends are gone", "select not exists ("+heldBackends+")")
			release()

			afterAKill(t, pool)
			service.url = start().url
			awaitJobs(t, pool, 1, "pay", rivertype.JobStateCompleted)
			if charges := fake.Charges(); len(charges) != 1 || charges[0].Attempts != 2 {
				t.Errorf("charged %+v, want one charge in two attempts", charges)
			}
			if paid := decode[book.Payout](t, service.get(path)); paid.State != book.PayoutPaid {
				t.Errorf("paid %+v", paid)
			}
			service.wantAccount("payouts-EUR", 700, 0, 700)
		})
	}
}

// Payouts are exactly once: repeated, at once, with an app that dies at any step.
func TestPayoutsAreExactlyOnce(t *testing.T) {
	t.Parallel()
	pool := idemtest.NewDatabase(t, migrate)
	app, store := newAppOn(t, pool, jobs.Config{Provider: newProviderClient(t, "http://127.0.0.1:9")})
	bodies := map[idemtest.Variant]string{
		idemtest.Original: payoutBody("bank", 700, "DE89"),
		idemtest.Other:    payoutBody("bank", 9900, "DE89"),
		idemtest.Refused:  payoutBody("poor", 700, "DE89"),
	}
	runOnce(t, app, store, pool, "/v1/payouts", bodies,
		"select held from ledger.accounts where tenant = 'acme' and id = 'bank'")
	if n := one[int](t, pool, `select count(*) from ledger.payouts p
		full join (select args->>'payout' as payout from river.river_job where kind = 'pay') j on j.payout = p.id::text
		where p.id is null or j.payout is null`); n != 0 {
		t.Errorf("%d payouts without a job, or jobs without a payout", n)
	}
}

// Without a provider a payout is refused, and its key stays free.
func TestWithoutAProviderThereAreNoPayouts(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	service.openWithAThousand()
	wantProblem(t, service.post("/v1/payouts", newKey(), payoutBody("alice", 700, "DE89")), http.StatusNotImplemented, "payouts-unavailable")
	service.wantAccount("alice", 1000, 0, 1000)
	if n := one[int](t, pool, "select count(*) from ledger.accounts where id = 'payouts-EUR'"); n != 0 {
		t.Error("a clearing account is left")
	}
}

// A payout that is refused names the field, or the rule.
func TestInvalidPayouts(t *testing.T) {
	t.Parallel()
	service, pool, _ := newPayoutService(t, provider.NewFake(0))
	service.open("payouts-USD", "EUR", "0")
	for _, test := range []struct{ body, field string }{
		{`{"amount":1,"currency":"EUR","destination":"x"}`, "from"},
		{payoutBody("a b", 1, "x"), "from"},
		{payoutBody("payouts-EUR", 1, "x"), "from"},
		{payoutBody("alice", 0, "x"), "amount"},
		{payoutBody("alice", 1, ""), "destination"},
		{payoutBody("alice", 1, strings.Repeat("ü", 141)), "destination"},
		{strings.ReplaceAll(payoutBody("alice", 1, "x"), "EUR", "eur"), "currency"},
		{strings.ReplaceAll(payoutBody("alice", 1, "x"), "November", strings.Repeat("x", 141)), "reference"},
		{strings.ReplaceAll(payoutBody("alice", 1, "x"), "reference", "charge_key"), "charge_key"},
	} {
		if p := wantProblem(t, service.post("/v1/payouts", newKey(), test.body), http.StatusBadRequest, "invalid-request"); p.Field != test.field {
			t.Errorf("%s: field %q, want %q", test.body, p.Field, test.field)
		}
	}
	wantProblem(t, service.post("/v1/payouts", newKey(), payoutBody("alice", 1001, "x")), http.StatusUnprocessableEntity, "insufficient-funds")
	wantProblem(t, service.post("/v1/payouts", newKey(), payoutBody("nobody", 1, "x")), http.StatusNotFound, "account-not-found")
	wantProblem(t, service.post("/v1/payouts", newKey(), strings.ReplaceAll(payoutBody("alice", 1, "x"), "EUR", "USD")), http.StatusUnprocessableEntity, "currency-mismatch")

	// A record is forgotten, and the key made a charge all the same.
	key := newKey()
	want(t, service.post("/v1/payouts", key, payoutBody("alice", 1, "x")), http.StatusAccepted)
	_, err := pool.Exec(t.Context(), "delete from idem.records where key = $1", key)
	must(t, err)
	wantProblem(t, service.post("/v1/payouts", key, payoutBody("alice", 1, "x")), http.StatusConflict, "payout-exists")
	service.wantAccount("alice", 1000, 1, 999)
}

// Goal: the schema itself keeps a payout and its hold together. Method: write by
// hand, as in TestTheSchemaGuardsTheBook.
func TestTheSchemaGuardsPayouts(t *testing.T) {
	t.Parallel()
	service, pool, caller := newPayoutService(t, provider.NewFake(0))
	want(t, service.post("/v1/payouts", newKey(), payoutBody("alice", 1, "x")), http.StatusAccepted)
	work := startJobs(t, pool, jobs.Config{Provider: caller})
	awaitJobs(t, pool, 1, "pay", rivertype.JobStateCompleted)
	must(t, work.Stop())
	want(t, service.post("/v1/payouts", newKey(), payoutBody("alice", 1, "x")), http.StatusAccepted)
	service.hold("alice", "bank", 1)
	const insert = `insert into ledger.payouts (tenant, id, hold_id, destination, charge_key, created_at)
		select 'acme', gen_random_uuid(), id, 'x', gen_random_uuid(), now() from ledger.holds where to_account = 'bank'`
	for name, test := range map[string]struct{ sql, constraint string }{
		"a payout of no hold":        {strings.Replace(insert, "id, 'x'", "gen_random_uuid(), 'x'", 1), "payouts_tenant_hold_id_fkey"},
		"a second payout of a hold":  {strings.Replace(insert, "to_account = 'bank'", "to_account <> 'bank' and state = 'pending'", 1), "payouts_tenant_hold_id_key"},
		"no destination":             {strings.Replace(insert, "'x'", "''", 1), "payouts_destination"},
		"a key that made a charge":   {strings.Replace(insert, "gen_random_uuid(), now()", "(select min(charge_key::text)::uuid from ledger.payouts), now()", 1), "payouts_charge_key"},
		"an unknown state":           {`update ledger.payouts set state = 'lost', ended_at = now() where state = 'pending'`, "payouts_state"},
		"paid without a charge":      {`update ledger.payouts set state = 'paid', ended_at = now() where state = 'pending'`, "payouts_paid"},
		"failed without a reason":    {`update ledger.payouts set state = 'failed', ended_at = now() where state = 'pending'`, "payouts_failed"},
		"an end without a time":      {`update ledger.payouts set state = 'failed', reason = 'r' where state = 'pending'`, "payouts_ended"},
		"a second end":               {`update ledger.payouts set charge_id = 'c' where state = 'paid'`, "payouts_end_once"},
		"another destination":        {`update ledger.payouts set state = 'failed', reason = 'r', ended_at = now(), destination = 'y' where state = 'pending'`, "payouts_end_once"},
		"a payout that is gone":      {`delete from ledger.payouts`, "append-only"},
		"the end of a payout's hold": {`update ledger.holds set state = 'voided', ended_at = now() where to_account <> 'bank' and state = 'pending'`, "holds_of_payouts"},
		"the expiry of it":           {`update ledger.holds set state = 'expired', ended_at = now() where to_account <> 'bank' and state = 'pending'`, "holds_of_payouts"},
	} {
		if got := refusal(t, pool, test.sql); got != test.constraint {
			t.Errorf("%s: refused by %q, want %q", name, got, test.constraint)
		}
	}
	if got := refusal(t, pool, insert); got != "" {
		t.Errorf("a sound payout was refused by %q", got)
	}
}
