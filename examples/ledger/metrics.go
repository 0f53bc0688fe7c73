package main

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/idempg/idempg/examples/ledger/telemetry"
)

// serveMetrics answers /metrics at addr, apart from what clients can reach.
// With addr "" it does nothing.
func serveMetrics(addr string, metrics *telemetry.Metrics) (url string, stop func(), err error) {
	if addr == "" {
		return "", func() {}, nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("metrics", "error", err)
		}
	}()
	return "http://" + reachable(listener.Addr()) + "/metrics", func() { _ = server.Close() }, nil
}

func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
