package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/rivertype"

	"github.com/idempg/idempg/examples/ledger/jobs"
	"github.com/idempg/idempg/idem"
)

var testSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("s3cret-of-twenty-four-bytes"))

// newJobs returns jobs that nobody works off until the test starts them. Unless
// config says otherwise, events go to an endpoint where nobody listens.
func newJobs(t testing.TB, config jobs.Config) *jobs.Jobs {
	t.Helper()
	if config.Webhook == nil {
		config.Webhook = newTestWebhook(t, "http://127.0.0.1:9")
	}
	work, err := jobs.New(config)
	must(t, err)
	return work
}

func newTestWebhook(t testing.TB, address string) *jobs.Webhook {
	t.Helper()
	endpoint, err := url.Parse(address)
	must(t, err)
	signer, err := jobs.ParseSecret(testSecret)
	must(t, err)
	return jobs.NewWebhook(endpoint, signer)
}

// startJobs works off the jobs of a database, and tries again at once what
// failed.
func startJobs(t *testing.T, pool *pgxpool.Pool, config jobs.Config) *jobs.Jobs {
	t.Helper()
	store, err := idem.New(pool, idem.Config{})
	must(t, err)
	config.Pool, config.Store, config.RetryPolicy = pool, store, atOnce{}
	work := newJobs(t, config)
	must(t, work.Start(t.Context()))
	t.Cleanup(func() { must(t, work.Stop()) })
	return work
}

type atOnce struct{}

func (atOnce) NextRetry(*rivertype.JobRow) time.Time { return time.Now() }

// awaitJobs waits until n jobs of a kind are in a state.
func awaitJobs(t *testing.T, pool *pgxpool.Pool, n int, kind string, state rivertype.JobState) {
	t.Helper()
	await(t, pool, fmt.Sprintf("%d jobs %q are %s", n, kind, state),
		"select count(*) = $1 from river.river_job where kind = $2 and state = $3", n, kind, state)
}

// wantEvents checks that each transfer has one event, and each event a transfer.
func wantEvents(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if n := one[int](t, pool, `
		select count(*) from (
			select t.tenant, t.id, jsonb_build_object('id', t.id, 'reference', t.reference, 'reverses', t.reverses) || case
				when t.from_account is not null then jsonb_build_object('from', t.from_account, 'to', t.to_account, 'amount', t.amount, 'currency', t.currency)
				else jsonb_build_object('legs', (
					select jsonb_agg(jsonb_build_object('account', e.account_id, 'amount', e.amount, 'currency', a.currency) order by e.account_id)
					from ledger.entries e join ledger.accounts a on a.tenant = e.tenant and a.id = e.account_id
					where e.tenant = t.tenant and e.transfer_id = t.id))
				end as data
			from ledger.transfers t
		) t full join (
			select args->'event'->>'tenant' as tenant, (args->'event'->'data'->>'id')::uuid as id, count(*) as jobs, min(args->'event'->>'data')::jsonb as data
			from river.river_job where kind = 'webhook' and args->'event'->>'type' = 'transfer.posted'
			group by 1, 2
		) e on e.tenant = t.tenant and e.id = t.id
		where e.jobs is distinct from 1 or t.id is null or e.data is distinct from t.data`); n != 0 {
		t.Errorf("%d transfers without their event, or events without their transfer", n)
	}
	if n := one[int](t, pool, `select count(*) - count(distinct args->'event'->>'id') from river.river_job where kind = 'webhook'`); n != 0 {
		t.Errorf("%d events share an id", n)
	}
}

// Goal: an event is written with its transfer or not at all. Method: transfers
// that happen, are refused, replayed and raced, singly and in lists.
func TestATransferHasOneEvent(t *testing.T) {
	t.Parallel()
	service, pool := newBulkService(t)
	body := `{"from":"bank","to":"alice","amount":9007199254740992,"currency":"EUR","reference":"Überweisung <&> \u2028"}`
	key, bulkKey := newKey(), newKey()
	for range 2 {
		want(t, service.post("/v1/transfers", key, body), http.StatusCreated)
	}
	want(t, service.post("/v1/transfers", newKey(), transferBody("poor", "alice", 1)), http.StatusUnprocessableEntity)
	want(t, service.as("globex-demo-key").post("/v1/transfers", newKey(), transferBody("bank", "alice", 1)), http.StatusNotFound)
	for range 2 {
		service.bulk(4, bulkBody(
			bulkTransfer(bulkKey, "alice", "bob", 3, ""),
			bulkTransfer("poor", "poor", "bob", 3, ""), // undone, and then the others run again
			bulkTransfer("metadata", "alice", "bob", 3, `"reference":"r","metadata":{"a":1},`),
			bulkTransfer(bulkKey, "alice", "bob", 3, ""),
		))
	}
	answers := make([]<-chan answer, 20)
	key = newKey()
	for i := range answers {
		answers[i] = service.background("/v1/transfers", key, transferBody("alice", "bank", 5))
	}
	for _, a := range answers {
		<-a
	}
	wantEvents(t, pool)
	if n := one[int](t, pool, "select count(*) from river.river_job"); n != 4 {
		t.Errorf("%d jobs, want 4", n)
	}
}

// Goal: the job of a transfer that is SQL alone is the one that River writes, in
// every mode of pgx that the ledger's own SQL can be sent in. Method: compare the rows.
func TestAJobInABatchIsRiversOwn(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			url, pool := newDatabase(t)
			app, _ := newTestApp(t, url+" default_query_exec_mode="+mode)
			service := serveApp(t, app)
			service.open("bank", "EUR", "null")
			service.open("alice", "EUR", "0")
			members := `"reference":"'\\\" ü",`
			listener, err := pool.Acquire(t.Context())
			must(t, err)
			defer listener.Release()
			_, err = listener.Exec(t.Context(), `listen "river.river_insert"`)
			must(t, err)
			service.bulk(2, bulkBody(bulkTransfer(newKey(), "bank", "alice", 7, members), bulkTransfer(newKey(), "bank", "alice", 7, members)))
			ctx, cancel := context.WithTimeout(t.Context(), stateWaitMax)
			defer cancel()
			if told, err := listener.Conn().WaitForNotification(ctx); err != nil || !strings.Contains(told.Payload, "webhooks") {
				t.Errorf("River's workers were told %+v, %v", told, err)
			}
			want(t, service.post("/v1/transfers", newKey(), `{`+members+`"from":"bank","to":"alice","amount":7,"currency":"EUR"}`), http.StatusCreated)
			wantEvents(t, pool)
			const rows = `select distinct to_jsonb(j) - '{id,created_at,scheduled_at,args}'::text[]
				|| jsonb_build_object('args', args #- '{event,id}' #- '{event,timestamp}' #- '{event,data,id}') from river.river_job j`
			if n := one[int](t, pool, "select count(*) from ("+rows+") as distinct_rows"); n != 1 {
				t.Errorf("%d kinds of rows, want 1: %s", n, one[string](t, pool, "select jsonb_pretty(jsonb_agg(r)) from ("+rows+") as d (r)"))
			}
			if n := one[int](t, pool, "select count(*) from river.river_job where scheduled_at between created_at - interval '1 s' and now() and state = 'available' and queue = 'webhooks'"); n != 3 {
				t.Errorf("%d jobs may run, want 3", n)
			}
		})
	}
}

// Goal: each step of a hold has its event, and its expiry has one although it was
// released before, or is looked at by two. Method: holds that end in every way;
// then their time passes, and two instances work.
func TestAHoldHasItsEvents(t *testing.T) {
	t.Parallel()
	service, pool := newHoldService(t)
	captured, _ := service.hold("alice", "shop", 100)
	voided, _ := service.hold("alice", "shop", 100)
	_, released := service.hold("alice", "shop", 100)
	want(t, service.post(captured+"/capture", newKey(), `{"amount":70}`), http.StatusCreated)
	want(t, service.post(voided+"/void", newKey(), ""), http.StatusOK)
	wantProblem(t, service.post(voided+"/capture", newKey(), ""), http.StatusUnprocessableEntity, "hold-not-pending")
	passTime(t, pool)
	want(t, service.post("/v1/transfers", newKey(), transferBody("alice", "bank", 930)), http.StatusCreated) // releases the third
	_, kept := service.hold("bank", "shop", 100)
	if n := one[int](t, pool, "select count(*) from river.river_job where kind = 'expire_hold' and state = 'scheduled' and scheduled_at > now() + interval '59 min'"); n != 4 {
		t.Errorf("%d holds will expire, want 4", n)
	}
	_, err := pool.Exec(t.Context(), "update river.river_job set scheduled_at = now() where kind = 'expire_hold'")
	must(t, err)
	startJobs(t, pool, jobs.Config{})
	startJobs(t, pool, jobs.Config{})
	awaitJobs(t, pool, 3, "expire_hold", rivertype.JobStateCompleted)
	await(t, pool, "the job of a hold that is pending waits", `select scheduled_at > now() + interval '58 min'
		from river.river_job where kind = 'expire_hold' and args->>'hold' = $1`, kept.ID)

	got := one[string](t, pool, `select string_agg(right(args->'event'->>'type', -5) || coalesce(' ' || (args->'event'->'data'->>'captured'), ''), ', ' order by id)
		from river.river_job where args->'event'->>'type' like 'hold.%'`)
	if want := "created, created, created, captured 70, voided, created, expired"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
	if id := one[string](t, pool, "select args->'event'->'data'->>'id' from river.river_job where args->'event'->>'type' = 'hold.expired'"); id != released.ID.String() {
		t.Errorf("hold %s expired, want %s", id, released.ID)
	}
	wantEvents(t, pool)

	passTime(t, pool) // now the job itself releases the last
	_, err = pool.Exec(t.Context(), "update river.river_job set scheduled_at = now() where kind = 'expire_hold' and state = 'scheduled'")
	must(t, err)
	awaitJobs(t, pool, 4, "expire_hold", rivertype.JobStateCompleted)
	if n := one[int](t, pool, "select count(*) from ledger.holds where state = 'expired'"); n != 2 {
		t.Errorf("%d holds are expired, want 2", n)
	}
	if n := one[int](t, pool, "select count(*) from river.river_job where args->'event'->>'type' = 'hold.expired'"); n != 2 {
		t.Errorf("%d events of it, want 2", n)
	}
}

// Goal: two that release a hold tell of it once. Method: River takes the job of
// the first for abandoned while it waits for the account.
func TestAHoldExpiresOnce(t *testing.T) {
	t.Parallel()
	service, pool := newHoldService(t)
	service.hold("alice", "shop", 100)
	passTime(t, pool)
	_, err := pool.Exec(t.Context(), "update river.river_job set scheduled_at = now() where kind = 'expire_hold'")
	must(t, err)
	release := hold(t, pool, "select from ledger.accounts where id = 'alice' for update")
	startJobs(t, pool, jobs.Config{})
	awaitHeldTransfer(t, pool)
	_, err = pool.Exec(t.Context(), "update river.river_job set state = 'available' where kind = 'expire_hold'")
	must(t, err)
	await(t, pool, "another works on it", "select attempt >= 2 from river.river_job where kind = 'expire_hold'")
	release()
	awaitJobs(t, pool, 1, "expire_hold", rivertype.JobStateCompleted)
	if n := one[int](t, pool, "select count(*) from river.river_job where args->'event'->>'type' = 'hold.expired'"); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

// Without an endpoint no event is written.
func TestWithoutAnEndpointThereAreNoEvents(t *testing.T) {
	t.Parallel()
	url, pool := newDatabase(t)
	service := newClient(t, startProcess(t, "DATABASE_URL="+url, "LEDGER_ADDR=127.0.0.1:0").url)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 7)), http.StatusCreated)
	service.bulk(1, bulkBody(bulkTransfer(newKey(), "bank", "alice", 7, "")))
	if n := one[int](t, pool, "select count(*) from river.river_job where kind = 'webhook'"); n != 0 {
		t.Errorf("%d events, want none", n)
	}
}

// makeExpiredRecord leaves one record, for a sweep to forget.
func makeExpiredRecord(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	store, err := idem.New(pool, idem.Config{})
	must(t, err)
	_, err = store.Do(t.Context(), idem.Request{Scope: "acme", Key: "k", Fingerprint: idem.NewFingerprint(nil), TTL: time.Millisecond},
		func(context.Context, pgx.Tx) (idem.Response, error) { return idem.Response{}, nil })
	must(t, err)
	await(t, pool, "the record has expired", "select expires_at < statement_timestamp() from idem.records")
}

// Goal: expired records are forgotten by one sweep, however many instances there
// are. Method: the instance that has swept stops; another becomes the leader, and
// asks for the sweep of the same time again.
func TestTwoInstancesSweepOnce(t *testing.T) {
	t.Parallel()
	_, pool := newDatabase(t)
	makeExpiredRecord(t, pool)
	var sweeps, records atomic.Int64
	config := jobs.Config{SweepInterval: 10_000 * time.Hour, OnSweep: func(result idem.SweepResult, _ time.Duration, err error) {
		if err != nil {
			t.Error(err)
		}
		sweeps.Add(1)
		records.Add(result.Records)
	}}
	first := startJobs(t, pool, config)
	awaitJobs(t, pool, 1, "sweep", rivertype.JobStateCompleted)
	startJobs(t, pool, config)
	const version = "select xmin::text from river.river_job where kind = 'sweep'"
	before := one[string](t, pool, version)
	must(t, first.Stop())
	await(t, pool, "another leader asks for a sweep", "select ("+version+") <> $1", before)
	awaitJobs(t, pool, 1, "sweep", rivertype.JobStateCompleted)
	if n := one[int](t, pool, "select count(*) from river.river_job where kind = 'sweep'"); n != 1 || sweeps.Load() != 1 || records.Load() != 1 {
		t.Errorf("%d jobs, %d sweeps of %d records, want one of each", n, sweeps.Load(), records.Load())
	}
	if n := one[int](t, pool, "select count(*) from idem.records"); n != 0 {
		t.Errorf("%d records are left", n)
	}
}

// A call to Sweep removes 100,000 records at the most; the job calls again.
func TestASweepGoesOnUntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	_, pool := newDatabase(t)
	makeExpiredRecord(t, pool)
	columns := one[string](t, pool, `select string_agg(quote_ident(column_name), ', ') from information_schema.columns
		where table_schema = 'idem' and table_name = 'records' and column_name <> 'id'`)
	_, err := pool.Exec(t.Context(), `insert into idem.records (id, `+columns+`)
		select gen_random_uuid(), `+columns+` from idem.records, generate_series(1, 100000)`)
	must(t, err)
	startJobs(t, pool, jobs.Config{SweepInterval: 10_000 * time.Hour})
	awaitJobs(t, pool, 1, "sweep", rivertype.JobStateCompleted)
	if n := one[int](t, pool, "select count(*) from idem.records"); n != 0 {
		t.Errorf("%d records are left", n)
	}
}
