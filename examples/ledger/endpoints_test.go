package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/examples/ledger/jobs"
	"github.com/idempg/idempg/examples/ledger/provider"
)

// Goal: the programs work together as the README starts them. Method: a payout
// by way of a provider whose first answer is lost, told to the receiver.
func TestTheCommandsWorkTogether(t *testing.T) {
	t.Parallel()
	url, pool := newDatabase(t)
	receiver := startReceiver(t, url)
	fake := startCommand(t, "provider", "LEDGER_PROVIDER_ADDR=127.0.0.1:0", "LEDGER_PROVIDER_LOST=1")
	ledger := startService(t, url, receiver.url+"/?token=t0ken", "LEDGER_PROVIDER_URL="+fake.url)
	service := newClient(t, ledger.url)
	service.openWithAThousand()
	path := want(t, service.post("/v1/payouts", newKey(), payoutBody("alice", 700, "DE89")), http.StatusAccepted).header.Get("Location")
	await(t, pool, "everything is done", "select count(*) = 6 and every(state = 'completed') from river.river_job where kind <> 'sweep'")

	response, err := http.Get(fake.url + "/charges")
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	var charges []provider.FakeCharge
	must(t, json.Unmarshal(body, &charges))
	payout := decode[book.Payout](t, service.get(path))
	if len(charges) != 1 || charges[0].Attempts != 2 || payout.State != book.PayoutPaid || *payout.ChargeID != charges[0].ID {
		t.Errorf("payout %+v, charges %s", payout, body)
	}
	if got := turnover(t, pool); got != "alice 700 1000 2, bank 1000 0 1, payouts-EUR 0 700 1" {
		t.Errorf("the receiver counted %q", got)
	}
	for _, p := range []*process{ledger, receiver, fake} {
		p.signal(syscall.SIGTERM)
		if err := p.wait(); err != nil {
			t.Errorf("a process ended with %v\n%s", err, p.stderr.String())
		}
		if log := p.stderr.String(); strings.Contains(log, testSecret) || strings.Contains(log, "t0ken") || strings.Contains(log, "DE89") {
			t.Errorf("the log holds a secret:\n%s", log)
		}
	}
}

// Without a database the receiver has one of its own.
func TestTheReceiverNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	p := startCommand(t, "receiver", "LEDGER_RECEIVER_ADDR=127.0.0.1:0", "LEDGER_WEBHOOK_SECRET="+testSecret)
	id := uuid.NewString()
	event := signedEvent(t, id, transferPosted(id, "alice", "bob", 7), time.Now())
	if status := forward(t, p.url, event); status != http.StatusNoContent {
		t.Errorf("status %d", status)
	}
	p.signal(syscall.SIGTERM)
	if err := p.wait(); err != nil {
		t.Errorf("the process ended with %v\n%s", err, p.stderr.String())
	}
}

// The configuration of the other commands is checked like that of the service.
func TestBadConfigurationOfTheOtherCommands(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		serve                   func(context.Context, func(string) (string, bool), io.Writer) error
		variable, value, reason string
	}{
		{serveReceiver, "LEDGER_WEBHOOK_SECRET", "", "whsec_"},
		{serveReceiver, "LEDGER_RECEIVER_ADDR", "8081", "missing port"},
		{serveProvider, "LEDGER_PROVIDER_ADDR", "8082", "missing port"},
		{serveProvider, "LEDGER_PROVIDER_LOST", "1.5", "0 to 1"},
		{serveProvider, "LEDGER_PROVIDER_LOST", "NaN", "0 to 1"},
	} {
		url, _ := newDatabase(t)
		environment := map[string]string{"DATABASE_URL": url, "LEDGER_WEBHOOK_SECRET": testSecret, test.variable: test.value}
		ctx, cancel := context.WithTimeout(t.Context(), stateWaitMax)
		defer cancel()
		err := test.serve(ctx, func(name string) (string, bool) {
			value, set := environment[name]
			return value, set
		}, io.Discard)
		if err == nil || !strings.HasPrefix(err.Error(), test.variable+": ") || !strings.Contains(err.Error(), test.reason) {
			t.Errorf("got %v, want one that begins with %s and says %q", err, test.variable, test.reason)
		}
	}
}

// Goal: instances may start at the same time on an empty database. Method: all
// migrate at once.
func TestInstancesMigrateAtOnce(t *testing.T) {
	t.Parallel()
	name := fmt.Sprintf("ledger_%s_%d", testRun, databases.Add(1))
	must(t, onServer(t.Context(), "create database "+name))
	t.Cleanup(func() { must(t, onServer(context.WithoutCancel(t.Context()), "drop database "+name+" with (force)")) })
	for _, migrate := range []migration{jobs.Migrate, migrate, migrateReceiver} {
		barrier := make(chan struct{})
		var wg sync.WaitGroup
		for range 3 {
			pool, err := connect(t.Context(), databaseURL(name), nil)
			must(t, err)
			t.Cleanup(pool.Close)
			wg.Go(func() {
				<-barrier
				if err := migrate(t.Context(), pool); err != nil {
					t.Error(err)
				}
			})
		}
		close(barrier)
		wg.Wait()
	}
}
