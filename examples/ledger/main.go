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
	"github.com/idempg/idempg/examples/ledger/jobs"
	"github.com/idempg/idempg/examples/ledger/page"
	"github.com/idempg/idempg/examples/ledger/supervisor"
	"github.com/idempg/idempg/examples/ledger/telemetry"
	"github.com/idempg/idempg/idem"
)

const drainTimeout = api.RequestTimeout + 5*time.Second

func main() {
	slog.SetDefault(telemetry.NewLog(os.Stderr))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := dispatch(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
}

// serve serves until ctx ends, and then until the requests in flight have their
// answers. Without a database it is a demo, which has one of its own.
func serve(ctx context.Context, lookup func(string) (string, bool), stdout io.Writer) error {
	config, err := readConfig(lookup)
	if err != nil {
		return err
	}
	if config.DatabaseURL == "" {
		return runDemo(ctx, config, stdout)
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
	return serveOn(ctx, listener, config, stdout)
}

func serveOn(ctx context.Context, listener net.Listener, config Config, stdout io.Writer) (err error) {
	var tracing *telemetry.Tracing
	if config.Traces {
		if tracing, err = telemetry.StartTracing(ctx); err != nil {
			return fmt.Errorf("OTEL_EXPORTER_OTLP_*: %w", err)
		}
	}
	pool, err := openDatabase(ctx, config.DatabaseURL, migrate, tracing.QueryTracer())
	if err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	defer pool.Close()
	defer func() { err = errors.Join(err, tracing.Flush()) }()
	metrics := telemetry.NewMetrics(pool)
	store, err := idem.New(pool, idem.Config{Observer: metrics})
	if err != nil {
		return err
	}
	if config.Demo {
		if err := openDemoAccounts(ctx, pool, config.DemoTenant); err != nil {
			return err
		}
	} else if config.DemoKeys {
		slog.Warn("LEDGER_API_KEYS is not set: everyone knows the demo keys")
	}
	metricsURL, stopMetrics, err := serveMetrics(config.MetricsAddr, metrics)
	if err != nil {
		return fmt.Errorf("LEDGER_METRICS_ADDR: %w", err)
	}
	defer stopMetrics()
	work, err := jobs.New(jobs.Config{
		Pool: pool, Store: store, Webhook: config.Webhook, Provider: config.Provider, OnSweep: metrics.ObserveSweep,
	})
	if err != nil {
		return err
	}
	if err := work.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Stop()) }() // after the requests, which write jobs

	site := page.Config{Crash: config.Demo}
	if config.DemoKeys {
		site.APIKey = demoKey
	}
	app := api.New(api.Config{
		Pool: pool, Store: store, Keys: config.APIKeys, Outboxes: work, Page: site,
		Tracing: tracing, Draining: ctx.Done(),
		Metrics: metrics, ServeMetrics: config.MetricsAddr == "" && isLoopback(listener.Addr()),
	})
	served := make(chan error, 1)
	go func() { served <- app.Listener(listener) }()
	if !config.Demo {
		announce(stdout, listener.Addr(), config)
	}
	if metricsURL != "" {
		fmt.Fprintln(stdout, "ledger: metrics at", metricsURL)
	}
	select {
	case err := <-served:
		return err
	case <-ctx.Done(): // /readyz says no from here on
	}
	slog.Info("draining", "delay", config.DrainDelay.String(), "timeout", drainTimeout.String())
	time.Sleep(config.DrainDelay) // a second signal does not wait for it
	return app.ShutdownWithTimeout(drainTimeout)
}

// announce says where the service is, and what to try.
func announce(stdout io.Writer, addr net.Addr, config Config) {
	url := "http://" + reachable(addr)
	fmt.Fprintln(stdout, "ledger: listening on", url)
	printDemo(stdout, url, config)
}

// reachable returns the address to connect to from this machine.
func reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if ok && (len(tcp.IP) == 0 || tcp.IP.IsUnspecified()) {
		return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
	}
	return addr.String()
}
