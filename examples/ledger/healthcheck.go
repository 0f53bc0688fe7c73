package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const healthcheckTimeout = 4 * time.Second

// healthcheck asks the service on this machine whether it is ready, and returns
// why not. It is for an image, which has no other program to ask.
func healthcheck(ctx context.Context, lookup func(string) (string, bool), _ io.Writer) error {
	config, err := readConfig(lookup)
	if err != nil {
		return err
	}
	addr, err := net.ResolveTCPAddr("tcp", config.Addr)
	if err != nil {
		return fmt.Errorf("LEDGER_ADDR: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+reachable(addr)+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // the status says enough
		return fmt.Errorf("not ready: %s: %s", response.Status, body)
	}
	return nil
}
