package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/examples/ledger/api"
	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/examples/ledger/jobs"
	"github.com/idempg/idempg/examples/ledger/postgres"
	"github.com/idempg/idempg/idem"
)

// BenchmarkTransfer compares the two ways in which POST /v1/transfers could
// make a new transfer, without HTTP: with the handler in Go on a lent
// transaction, as fibermw.Handle runs it, and as a batch in one round trip, as
// fibermw.HandleBatch would. The ways take turns, so that whatever else the
// machine does slows both. "batch/handler" below 1 means that the batch is
// faster. The database does not wait for a disk unless IDEM_TEST_DATABASE_URL
// names one that does.
func BenchmarkTransfer(b *testing.B) {
	for _, shape := range []struct {
		name    string
		clients int
		shared  bool // all clients move money from and to the same accounts
	}{
		{"1 client", 1, false},
		{"8 clients", 8, false},
		{"8 clients, the same accounts", 8, true},
	} {
		b.Run(shape.name, func(b *testing.B) {
			_, pool := newDatabase(b)
			store, err := idem.New(pool, idem.Config{})
			must(b, err)
			requests := make([]book.NewTransfer, shape.clients)
			for i := range requests {
				requests[i] = book.NewTransfer{From: "payer", To: "payee", Amount: 1, Currency: "EUR"}
				if !shape.shared {
					requests[i].From, requests[i].To = fmt.Sprint("payer", i), fmt.Sprint("payee", i)
				}
				openForBenchmark(b, pool, requests[i].From, requests[i].To)
			}
			work := newJobs(b, jobs.Config{Pool: pool, Store: store})
			compare(b, requests, named{"handler", transferByHandler(store, work)}, named{"batch", transferByBatch(store, work)})
		})
	}
}

// BenchmarkEvent compares transfers that write no event with those that do. Nobody
// delivers it meanwhile.
func BenchmarkEvent(b *testing.B) {
	_, pool := newDatabase(b)
	store, err := idem.New(pool, idem.Config{})
	must(b, err)
	openForBenchmark(b, pool, "payer", "payee")
	silent, err := jobs.New(jobs.Config{Pool: pool, Store: store})
	must(b, err)
	telling := newJobs(b, jobs.Config{Pool: pool, Store: store})
	for name, way := range map[string]func(*idem.Store, api.Outboxes) transferWay{"handler": transferByHandler, "batch": transferByBatch} {
		b.Run(name, func(b *testing.B) {
			requests := []book.NewTransfer{{From: "payer", To: "payee", Amount: 1, Currency: "EUR"}}
			compare(b, requests, named{"without", way(store, silent)}, named{"with", way(store, telling)})
		})
	}
}

const roundTransfers = 50 // of each client, before it is the other way's turn

// transferWay makes a transfer under a new key.
type transferWay func(ctx context.Context, key string, t book.NewTransfer) (idem.Result, error)

// named is a way to be compared with another.
type named struct {
	name string
	way  transferWay
}

// compare runs b.N transfers of each client in each way.
func compare(b *testing.B, requests []book.NewTransfer, first, second named) {
	run := func(way transferWay, n int) time.Duration {
		start := time.Now()
		var wg sync.WaitGroup
		for _, request := range requests {
			wg.Go(func() {
				for range n {
					if result, err := way(b.Context(), newKey(), request); err != nil || result.Status != http.StatusCreated {
						b.Errorf("%d %s: %v", result.Status, result.Body, err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	run(first.way, 10) // connects and prepares
	run(second.way, 10)
	var byFirst, bySecond time.Duration
	b.ResetTimer()
	for left := b.N; left > 0; left -= roundTransfers {
		n := min(left, roundTransfers)
		byFirst += run(first.way, n)
		bySecond += run(second.way, n)
	}
	perTransfer := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(b.N*len(requests)) }
	b.ReportMetric(0, "ns/op") // of both ways together, which means nothing
	b.ReportMetric(perTransfer(byFirst), first.name+"-µs/transfer")
	b.ReportMetric(perTransfer(bySecond), second.name+"-µs/transfer")
	b.ReportMetric(float64(bySecond)/float64(byFirst), second.name+"/"+first.name)
}

func transferByHandler(store *idem.Store, outboxes api.Outboxes) transferWay {
	return func(ctx context.Context, key string, t book.NewTransfer) (idem.Result, error) {
		request, err := benchmarkRequest(key, t)
		if err != nil {
			return idem.Result{}, err
		}
		return store.Do(ctx, request, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			transfer, err := book.New("acme", tx).With(outboxes.On(tx)).Transfer(ctx, t)
			if err != nil {
				return idem.Response{}, err
			}
			body, err := json.Marshal(transfer)
			return idem.Response{Status: http.StatusCreated, Body: body, Header: http.Header{
				fiber.HeaderContentType: {fiber.MIMEApplicationJSON},
				fiber.HeaderLocation:    {"/v1/transfers/" + transfer.ID.String()},
			}}, err
		})
	}
}

func transferByBatch(store *idem.Store, outboxes api.Outboxes) transferWay {
	return func(ctx context.Context, key string, t book.NewTransfer) (idem.Result, error) {
		request, err := benchmarkRequest(key, t)
		if err != nil {
			return idem.Result{}, err
		}
		locks := postgres.LockAccountsOnceParams{Tenant: "acme", LockID: key, Ids: []string{t.From, t.To}}
		batch, err := api.TransferBatch(ctx, outboxes, "acme", t, locks)
		if err != nil {
			return idem.Result{}, err
		}
		return store.DoBatch(ctx, request, batch)
	}
}

func benchmarkRequest(key string, t book.NewTransfer) (idem.Request, error) {
	canonical, err := t.Canonical()
	return idem.Request{Scope: "acme", Operation: "POST /v1/transfers", Key: key, Fingerprint: idem.NewFingerprint(canonical)}, err
}

// openForBenchmark opens accounts that may pay without end, once.
func openForBenchmark(b *testing.B, pool *pgxpool.Pool, ids ...string) {
	b.Helper()
	for _, id := range ids {
		_, err := pool.Exec(b.Context(), "insert into ledger.accounts (tenant, id, currency) values ('acme', $1, 'EUR') on conflict do nothing", id)
		must(b, err)
	}
}
