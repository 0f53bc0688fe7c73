// Ledger is a small double-entry ledger: the reference for a service whose
// money must move exactly once. Start with package api, whose POST handlers run
// in the transaction that also holds the idempotency key, then package book.
package main

//go:generate env GOWORK=off go tool -modfile=../../tools/go.mod sqlc generate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/idempg/idempg/examples/ledger/api"
	"github.com/idempg/idempg/examples/ledger/supervisor"
	"github.com/idempg/idempg/idem"
)

const (
	drainTimeout  = api.RequestTimeout + 5*time.Second
	sweepInterval = 5 * time.Minute
)

func main() {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := dispatch(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
}

// serve serves until ctx ends, and then until the requests in flight have their
// answers.
func serve(ctx context.Context, lookup func(string) (string, bool), stdout io.Writer) (err error) {
	config, err := readConfig(lookup)
	if err != nil {
		return err
	}
	ctx, listener, err := supervisor.Inherit(ctx, lookup)
	if err != nil {
		return err
	}
	if listener == nil {
		if listener, err = net.Listen("tcp", config.Addr); err != nil {
			return fmt.Errorf("LEDGER_ADDR: %w", err)
		}
	}
	defer listener.Close() // again, when serving has begun
	db, err := openDatabase(ctx, config.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	store, err := idem.New(db.pool, idem.Config{})
	if err != nil {
		return err
	}
	if db.server != nil {
		if err := openDemoAccounts(ctx, db.pool, config.DemoTenant); err != nil {
			return err
		}
	} else if config.DemoKeys {
		slog.Warn("LEDGER_API_KEYS is not set: everyone knows the demo keys")
	}
	go sweep(ctx, store)

	app := api.New(api.Config{Pool: db.pool, Store: store, Keys: config.APIKeys})
	served := make(chan error, 1)
	go func() { served <- app.Listener(listener) }()
	url := "http://" + reachable(listener.Addr())
	fmt.Fprintln(stdout, "ledger: listening on", url)
	printDemo(stdout, url, config)
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	slog.Info("draining", "timeout", drainTimeout)
	return app.ShutdownWithTimeout(drainTimeout)
}

// reachable returns the address to connect to from this machine.
func reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
	}
	return addr.String()
}

// sweep forgets expired records until ctx ends. Any number of instances may.
func sweep(ctx context.Context, store *idem.Store) {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if _, err := store.Sweep(ctx, idem.SweepOptions{}); err != nil && ctx.Err() == nil {
			slog.Error("sweep", "error", err)
		}
	}
}
