package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/idempg/idempg/examples/ledger/provider"
	"github.com/idempg/idempg/examples/ledger/receiver"
	"github.com/idempg/idempg/idem"
)

const (
	defaultReceiverAddr = "127.0.0.1:8081"
	defaultProviderAddr = "127.0.0.1:8082"
	defaultProviderLost = 0.5 // of the answers to first attempts
	headerTimeout       = 10 * time.Second
)

// serveReceiver serves an endpoint for the ledger's events.
func serveReceiver(ctx context.Context, lookup func(string) (string, bool), stdout io.Writer) (err error) {
	verifier, err := readSecret(lookup)
	if err != nil {
		return err
	}
	url, _ := lookup("DATABASE_URL")
	if url == "" {
		server, startErr := startOwnPostgres(ctx)
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		url = server.URL
	}
	pool, err := openDatabase(ctx, url, migrateReceiver, nil)
	if err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	defer pool.Close()
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		return err
	}
	return serveHTTP(ctx, "receiver", "LEDGER_RECEIVER_ADDR", defaultReceiverAddr, lookup, receiver.New(store, verifier), stdout)
}

// serveProvider serves a fake payment provider, which forgets its charges when it
// ends.
func serveProvider(ctx context.Context, lookup func(string) (string, bool), stdout io.Writer) error {
	lost := defaultProviderLost
	if text, _ := lookup("LEDGER_PROVIDER_LOST"); text != "" {
		var err error
		if lost, err = strconv.ParseFloat(text, 64); err != nil || !(lost >= 0 && lost <= 1) {
			return errors.New("LEDGER_PROVIDER_LOST: must be a number from 0 to 1")
		}
	}
	return serveHTTP(ctx, "provider", "LEDGER_PROVIDER_ADDR", defaultProviderAddr, lookup, provider.NewFake(lost), stdout)
}

// serveHTTP listens where variable says until ctx ends, and then until the
// requests in flight have their answers.
func serveHTTP(ctx context.Context, name, variable, addr string, lookup func(string) (string, bool), handler http.Handler, stdout io.Writer) error {
	if value, _ := lookup(variable); value != "" {
		addr = value
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%s: %w", variable, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintf(stdout, "%s: listening on http://%s\n", name, reachable(listener.Addr()))
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	return server.Shutdown(ctx)
}
