package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// startReceiver runs the receiver on the database of the test.
func startReceiver(t *testing.T, url string) *process {
	t.Helper()
	return startCommand(t, "receiver", "DATABASE_URL="+url, "LEDGER_RECEIVER_ADDR=127.0.0.1:0", "LEDGER_WEBHOOK_SECRET="+testSecret)
}

func startService(t *testing.T, url, webhookURL string, environment ...string) *process {
	t.Helper()
	return startProcess(t, append(environment, "DATABASE_URL="+url, "LEDGER_ADDR=127.0.0.1:0",
		"LEDGER_WEBHOOK_URL="+webhookURL, "LEDGER_WEBHOOK_SECRET="+testSecret)...)
}

// afterAKill makes the time pass that River waits before it takes the jobs of a
// process for abandoned, and its leadership for vacant.
func afterAKill(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `begin; delete from river.river_leader;
		update river.river_job set attempted_at = attempted_at - interval '1 hour' where state = 'running'; commit`)
	must(t, err)
}

// forward passes a delivery on to the receiver and returns its status.
func forward(t *testing.T, receiver string, r *http.Request) int {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, receiver, bytes.NewReader(body))
	if err != nil {
		t.Error(err)
	}
	request.Header = r.Header.Clone()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return http.StatusBadGateway
	}
	defer response.Body.Close()
	return response.StatusCode
}

// wantOneDelivery waits until every event is delivered, and checks that the
// receiver counted the one transfer of 700 once.
func wantOneDelivery(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	await(t, pool, "all events are delivered", "select count(*) = 1 and every(state = 'completed') from river.river_job where kind = 'webhook'")
	wantEvents(t, pool)
	if got := turnover(t, pool); got != "alice 0 700 1, bank 700 0 1" {
		t.Errorf("the receiver counted %q", got)
	}
}

// gate stands between the ledger and the receiver. It stops the first delivery
// and passes the others on.
type gate struct {
	*endpoint
	receiver string
	arrived  chan *http.Request
	answer   chan int // to the first delivery
}

func newGate(t *testing.T, receiver string) *gate {
	t.Helper()
	g := &gate{receiver: receiver, arrived: make(chan *http.Request, 1), answer: make(chan int, 1)}
	g.endpoint = newEndpoint(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			w.WriteHeader(forward(t, receiver, r))
			return
		}
		g.arrived <- r
		select {
		case status := <-g.answer:
			w.WriteHeader(status)
		case <-r.Context().Done(): // the ledger is dead
		}
	})
	return g
}

// Goal: an event is counted once although the ledger dies at any step of its
// delivery. Method: stop at the step, kill the ledger, start another.
func TestAnEventSurvivesKillOfTheService(t *testing.T) {
	t.Parallel()
	for name, reach := range map[string]func(t *testing.T, pool *pgxpool.Pool, g *gate, first *http.Request) (release func()){
		"before the receiver has it": func(*testing.T, *pgxpool.Pool, *gate, *http.Request) func() {
			return func() {}
		},
		"before it hears of the answer": func(t *testing.T, _ *pgxpool.Pool, g *gate, first *http.Request) func() {
			if status := forward(t, g.receiver, first); status != http.StatusNoContent {
				t.Errorf("the receiver answered %d", status)
			}
			return func() {}
		},
		"before the job is completed": func(t *testing.T, pool *pgxpool.Pool, g *gate, first *http.Request) func() {
			release := hold(t, pool, "select from river.river_job where kind = 'webhook' for update")
			g.answer <- forward(t, g.receiver, first)
			await(t, pool, "the job is about to be completed", "select count(*) = 1 from ("+heldBackends+") as held")
			return release
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, pool := newDatabase(t)
			gate := newGate(t, startReceiver(t, url).url)
			process := startService(t, url, gate.URL)
			service := newClient(t, process.url)
			service.open("bank", "EUR", "null")
			service.open("alice", "EUR", "0")
			want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 700)), http.StatusCreated)
			release := reach(t, pool, gate, <-gate.arrived)
			process.signal(syscall.SIGKILL)
			if err := process.wait(); err == nil {
				t.Error("the process ended by itself")
			}
			// What it has asked of the database must not happen any more.
			_ = one[int](t, pool, "select count(pg_terminate_backend(pid)) from ("+heldBackends+") as held")
			await(t, pool, "its backends are gone", "select not exists ("+heldBackends+")")
			release()

			afterAKill(t, pool)
			startService(t, url, gate.URL)
			wantOneDelivery(t, pool)
			if _, bodies := gate.bodies(t); len(bodies) != 2 || bodies[0] != bodies[1] {
				t.Errorf("%d deliveries, want the same one twice: %q", len(bodies), bodies)
			}
		})
	}
}

// Goal: the same when the ledger dies while the transfer commits: the event is
// delivered by the next one. And when it dies before, there is none, until the
// client has sent the transfer again.
func TestAnEventSurvivesKillBeforeItsDelivery(t *testing.T) {
	t.Parallel()
	for name, hold := range holdTransfers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, pool := newDatabase(t)
			receiver := startReceiver(t, url)
			process := startService(t, url, receiver.url)
			service := newClient(t, process.url)
			service.open("bank", "EUR", "null")
			service.open("alice", "EUR", "0")
			key, release := newKey(), hold(t, pool)
			running := service.background("/v1/transfers", key, transferBody("bank", "alice", 700))
			awaitHeldTransfer(t, pool)
			process.signal(syscall.SIGKILL)
			<-running
			release()
			await(t, pool, "the old backend goes on", "select not exists ("+heldBackends+")")

			afterAKill(t, pool)
			service.url = startService(t, url, receiver.url).url
			wantOneEffect(t, service, key)
			wantOneDelivery(t, pool)
		})
	}
}

// Goal: an event is counted once although the receiver dies, before it has
// counted or while that commits, which then goes on without it. The ledger tries
// again until another receiver is there. Method: hold it at the step, and kill it.
func TestAnEventSurvivesKillOfTheReceiver(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*testing.T, *pgxpool.Pool) (release func()){
		"before it counts": func(t *testing.T, pool *pgxpool.Pool) func() {
			_, err := pool.Exec(t.Context(), "insert into receiver.turnover (tenant, account, currency) values ('acme', 'alice', 'EUR')")
			must(t, err)
			return hold(t, pool, "select from receiver.turnover for update")
		},
		"in COMMIT": func(t *testing.T, pool *pgxpool.Pool) func() {
			_, err := pool.Exec(t.Context(), `
				create function hold() returns trigger language plpgsql as
					'begin perform pg_advisory_xact_lock_shared(1); return null; end';
				create constraint trigger hold after insert or update on receiver.turnover
					deferrable initially deferred for each row execute function hold()`)
			must(t, err)
			return hold(t, pool, "select pg_advisory_xact_lock(1)")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, pool := newDatabase(t)
			receiver := startReceiver(t, url)
			addr := strings.TrimPrefix(receiver.url, "http://")
			release := stop(t, pool)
			service := newClient(t, startService(t, url, receiver.url).url)
			service.open("bank", "EUR", "null")
			service.open("alice", "EUR", "0")
			want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 700)), http.StatusCreated)
			awaitHeldTransfer(t, pool)
			receiver.signal(syscall.SIGKILL)
			_ = receiver.wait() // it was killed
			await(t, pool, "the delivery failed", "select errors is not null from river.river_job where kind = 'webhook'")
			release()
			await(t, pool, "the old backend goes on", "select not exists ("+heldBackends+")")

			startCommand(t, "receiver", "DATABASE_URL="+url, "LEDGER_RECEIVER_ADDR="+addr, "LEDGER_WEBHOOK_SECRET="+testSecret)
			wantOneDelivery(t, pool)
		})
	}
}
