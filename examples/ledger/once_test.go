package main

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/idempg/idempg/examples/ledger/book"
)

// Goal: a burst of one request moves money once. Method: 100 clients wait at a
// barrier and send the same transfer; whoever is told "in flight" asks again.
func TestABurstOfOneTransferMovesMoneyOnce(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	key := newKey()

	answers := make([]answer, 100)
	barrier := make(chan struct{})
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			<-barrier
			answers[i] = service.post("/v1/transfers", key, transferBody("bank", "alice", 700))
		})
	}
	close(barrier)
	wg.Wait()

	final := service.post("/v1/transfers", key, transferBody("bank", "alice", 700))
	executed := 0
	for _, a := range answers {
		switch {
		case a.status == http.StatusConflict:
			wantProblem(t, a, http.StatusConflict, "request-in-flight")
			if a.header.Get("Retry-After") == "" {
				t.Error("409 without Retry-After")
			}
		case a.replayed():
			want(t, a, http.StatusCreated)
		default:
			executed++
			wantReplay(t, final, want(t, a, http.StatusCreated))
		}
		if a.status == http.StatusCreated && a.body != final.body {
			t.Errorf("two answers to one key:\n%s\n%s", a.body, final.body)
		}
	}
	if executed != 1 {
		t.Errorf("%d first answers, want 1", executed)
	}
	if balance := service.balance("alice"); balance != 700 {
		t.Errorf("balance %d, want 700", balance)
	}
	if n := one[int](t, pool, "select count(*) from ledger.transfers"); n != 1 {
		t.Errorf("%d transfers, want 1", n)
	}
}

// Goal: a key stands for one request, also while that runs. Method: hold the
// transfer at the lock of its account and ask again, the same and otherwise.
func TestAKeyInUseIsNotUsedForAnything(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	service.open("bob", "EUR", "0")
	key := newKey()

	release := holdTransfers["between claim and writes"](t, pool)
	running := service.background("/v1/transfers", key, transferBody("bank", "alice", 700))
	awaitHeldTransfer(t, pool)
	start := time.Now()
	same := service.post("/v1/transfers", key, transferBody("bank", "alice", 700))
	other := service.post("/v1/transfers", key, transferBody("bank", "bob", 9900))
	elsewhere := service.post("/v1/accounts", key, `{"currency":"EUR"}`)
	t.Logf("three refusals beside a transfer in flight: %v", time.Since(start))
	wantProblem(t, same, http.StatusConflict, "request-in-flight")
	if same.header.Get("Retry-After") == "" {
		t.Error("409 without Retry-After")
	}
	wantProblem(t, other, http.StatusUnprocessableEntity, "idempotency-key-reused")
	wantProblem(t, elsewhere, http.StatusUnprocessableEntity, "idempotency-key-reused")

	release()
	first := want(t, <-running, http.StatusCreated)
	start = time.Now()
	other = service.post("/v1/transfers", key, transferBody("bank", "bob", 9900))
	t.Logf("a refusal afterwards: %v", time.Since(start))
	wantProblem(t, other, http.StatusUnprocessableEntity, "idempotency-key-reused")
	wantReplay(t, service.post("/v1/transfers", key, transferBody("bank", "alice", 700)), first)
	if alice, bob := service.balance("alice"), service.balance("bob"); alice != 700 || bob != 0 {
		t.Errorf("balances %d and %d, want 700 and 0", alice, bob)
	}
}

// Goal: one account that everybody pays into and one that everybody pays from
// lose nothing, and crossed transfers never fail on each other. Method: clients
// send in both directions between two accounts, each transfer twice at once.
func TestCrossedTransfersNeitherDeadlockNorLoseCount(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	service.open("alice", "EUR", "null")
	service.open("bob", "EUR", "null")
	const clients, rounds = 8, 10

	var wg sync.WaitGroup
	for i := range clients {
		from, to := "alice", "bob"
		if i%2 == 1 {
			from, to = to, from
		}
		wg.Go(func() {
			for range rounds {
				key := newKey()
				twin := service.background("/v1/transfers", key, transferBody(from, to, int64(1+i)))
				a := service.post("/v1/transfers", key, transferBody(from, to, int64(1+i)))
				if b := <-twin; a.status != http.StatusCreated && b.status != http.StatusCreated {
					t.Errorf("status %d and %d, want one 201: %s %s", a.status, b.status, a.body, b.body)
				}
			}
		})
	}
	wg.Wait()

	const total = clients * rounds
	for _, id := range []string{"alice", "bob"} {
		account := decode[book.Account](t, service.get("/v1/accounts/"+id))
		if account.Version != total {
			t.Errorf("version of %s is %d, want %d", id, account.Version, total)
		}
	}
	if gaps := one[int](t, pool, `
		select count(*) from (
			select version - lag(version, 1, 0) over w as step, balance - lag(balance, 1, 0) over w - amount as lost
			from ledger.entries window w as (partition by account_id order by version)
		) as steps where step <> 1 or lost <> 0`); gaps != 0 {
		t.Errorf("%d gaps in the statements", gaps)
	}
	if balance := service.balance("bob"); balance != -rounds*clients/2 {
		t.Errorf("balance %d, want %d", balance, -rounds*clients/2)
	}
	if n := service.reruns.Load(); n != 0 {
		t.Errorf("%d transfers had to run again", n)
	}
}

// Goal: a client that is told that its key is another request's learns no more
// than that this is so now, while that request runs. Method: end it, which frees
// the key, and ask again.
func TestAKeyComesFreeWhenItsRequestFails(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	service.open("bob", "EUR", "0")
	key := newKey()

	release := holdTransfers["between claim and writes"](t, pool)
	running := service.background("/v1/transfers", key, transferBody("bank", "alice", 700))
	awaitHeldTransfer(t, pool)
	wantProblem(t, service.post("/v1/transfers", key, transferBody("bank", "bob", 9900)),
		http.StatusUnprocessableEntity, "idempotency-key-reused")
	if !one[bool](t, pool, "select pg_terminate_backend(pid) from ("+heldBackends+") as held") {
		t.Fatal("the backend was not terminated")
	}
	wantProblem(t, <-running, http.StatusServiceUnavailable, "database-unavailable")
	release()

	want(t, service.post("/v1/transfers", key, transferBody("bank", "bob", 9900)), http.StatusCreated)
	wantProblem(t, service.post("/v1/transfers", key, transferBody("bank", "alice", 700)),
		http.StatusUnprocessableEntity, "idempotency-key-reused")
	if alice, bob := service.balance("alice"), service.balance("bob"); alice != 0 || bob != 9900 {
		t.Errorf("balances %d and %d, want 0 and 9900", alice, bob)
	}
}
