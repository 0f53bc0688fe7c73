package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/examples/ledger/supervisor"
)

const (
	demoKey      = "acme-demo-key"
	demoCurrency = "EUR"
)

// demoAccounts are the two accounts that the printed lines use. The bank's may
// go below zero without end: that is where money comes from.
var demoAccounts = []struct {
	id        string
	unbounded bool
}{{"bank", true}, {"alice", false}}

// runDemo runs the service on a throwaway Postgres. It is a child process, which
// visitors of the page may crash: it is started again, and its socket stays.
func runDemo(ctx context.Context, config Config, stdout io.Writer) (err error) {
	server, err := startOwnPostgres(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	service, err := supervisor.Start(supervisor.Config{
		Addr: config.Addr, Env: []string{"DATABASE_URL=" + server.URL, demoVariable + "=true"},
		Stdout: stdout, Stderr: os.Stderr,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Stop()) }()
	if err := service.Ready(ctx); err != nil {
		return err
	}
	announce(stdout, service.Addr(), config)
	select {
	case <-ctx.Done():
	case <-service.Done(): // Stop says why it gave up
	}
	return nil
}

// openDemoAccounts opens the demo accounts on a database of its own.
func openDemoAccounts(ctx context.Context, pool *pgxpool.Pool, tenant string) error {
	for _, account := range demoAccounts {
		request := book.NewAccount{ID: &account.id, Currency: demoCurrency, MinBalance: new(int64)}
		if account.unbounded {
			request.MinBalance = nil
		}
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := book.New(tenant, tx).OpenAccount(ctx, request)
			return err
		})
		if err != nil && !errors.Is(err, book.ErrAccountExists) {
			return err
		}
	}
	return nil
}

// printDemo prints lines to paste into a shell. A key that is not public stays
// out of them.
func printDemo(w io.Writer, url string, config Config) {
	key := demoKey
	if !config.DemoKeys {
		key = "$LEDGER_API_KEY"
		fmt.Fprintf(w, "\nSet the key of tenant %s first: LEDGER_API_KEY=...\n", config.DemoTenant)
	}
	run := rand.Text()[:8] // a new start on an old database makes a new transfer
	post := func(path, idempotencyKey, body string) {
		fmt.Fprintf(w, `curl -sS -i -w '\n' %s%s -H "Authorization: Bearer %s" -H 'Content-Type: application/json' -H 'Idempotency-Key: %s' -d '%s'`+"\n",
			url, path, key, idempotencyKey, body)
	}
	if config.DatabaseURL != "" {
		fmt.Fprint(w, "\nTwo accounts, once:\n\n")
		for _, account := range demoAccounts {
			minBalance := "0"
			if account.unbounded {
				minBalance = "null"
			}
			post("/v1/accounts", "open-"+account.id+"-"+run,
				fmt.Sprintf(`{"id":"%s","currency":"%s","min_balance":%s}`, account.id, demoCurrency, minBalance))
		}
	}
	fmt.Fprint(w, "\nOpen it in a browser, or paste a transfer, its replay, and the same key for another amount:\n\n")
	for _, amount := range []int{2500, 2500, 9900} {
		post("/v1/transfers", "demo-"+run,
			fmt.Sprintf(`{"from":"bank","to":"alice","amount":%d,"currency":"%s"}`, amount, demoCurrency))
	}
	fmt.Fprintln(w)
}
