package main

import (
	"bytes"
	"context"
	"net/http"
	"testing"

	"github.com/idempg/idempg/examples/ledger/supervisor"
)

// Goal: a service that crashes comes back by itself, and what it was asked
// meanwhile waits. Method: kill it with a transfer in flight, and send the
// transfer again at once.
func TestASupervisedServiceComesBack(t *testing.T) {
	t.Parallel()
	url, pool := newDatabase(t)
	var log bytes.Buffer
	s, err := supervisor.Start(supervisor.Config{
		Addr: "127.0.0.1:0", Program: program, Env: []string{"DATABASE_URL=" + url}, Stderr: &log,
	})
	must(t, err)
	t.Cleanup(func() {
		must(t, s.Stop())
		if t.Failed() {
			t.Log(log.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), stateWaitMax)
	defer cancel()
	must(t, s.Ready(ctx))
	service := newClient(t, "http://"+s.Addr().String())
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")

	key := newKey()
	release := holdTransfers["between claim and writes"](t, pool)
	running := service.background("/v1/transfers", key, transferBody("bank", "alice", 700))
	awaitHeldTransfer(t, pool)
	s.Kill()
	// net/http sends a request that has an Idempotency-Key again by itself.
	if a := <-running; a.status != 0 && a.status != http.StatusConflict {
		t.Fatalf("a killed service answered %d: %s", a.status, a.body)
	}
	wantProblem(t, service.post("/v1/transfers", key, transferBody("bank", "alice", 700)), http.StatusConflict, "request-in-flight")
	release()
	await(t, pool, "the old backend goes on", "select not exists ("+heldBackends+")")
	wantOneEffect(t, service, key)
	if s.Restarts() != 1 {
		t.Errorf("%d restarts, want 1", s.Restarts())
	}
}
