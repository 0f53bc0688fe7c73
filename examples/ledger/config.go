package main

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/idempg/idempg/examples/ledger/api"
	"github.com/idempg/idempg/examples/ledger/jobs"
	"github.com/idempg/idempg/examples/ledger/provider"
)

const (
	defaultAddr  = "127.0.0.1:8080"
	demoVariable = "LEDGER_DEMO"
	defaultKeys  = "acme-demo-key:acme,globex-demo-key:globex"
)

// Config is the environment of the service.
type Config struct {
	DatabaseURL string        // DATABASE_URL; "": a throwaway Postgres of its own
	Addr        string        // LEDGER_ADDR
	MetricsAddr string        // LEDGER_METRICS_ADDR; "": at Addr, if that is a loopback address
	DrainDelay  time.Duration // LEDGER_DRAIN_DELAY
	Traces      bool          // OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set
	Demo        bool          // LEDGER_DEMO; set by the demo for its child
	APIKeys     api.Keys
	Webhook     *jobs.Webhook    // LEDGER_WEBHOOK_URL and _SECRET; nil: no events
	Provider    *provider.Client // LEDGER_PROVIDER_URL; nil: no payouts
	DemoTenant  string           // tenant of the first API key
	DemoKeys    bool             // LEDGER_API_KEYS is not set: the keys are public knowledge
}

func readConfig(lookup func(string) (string, bool)) (Config, error) {
	config := Config{Addr: defaultAddr}
	config.DatabaseURL, _ = lookup("DATABASE_URL")
	if addr, _ := lookup("LEDGER_ADDR"); addr != "" {
		config.Addr = addr
	}
	demo, _ := lookup(demoVariable)
	if config.Demo = demo == "true"; demo != "" && !config.Demo {
		return Config{}, fmt.Errorf("%s: is %q: set it to true, or not at all", demoVariable, demo)
	}
	config.MetricsAddr, _ = lookup("LEDGER_METRICS_ADDR")
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		endpoint, _ := lookup(name)
		config.Traces = config.Traces || endpoint != ""
	}
	if delay, _ := lookup("LEDGER_DRAIN_DELAY"); delay != "" {
		var err error
		if config.DrainDelay, err = time.ParseDuration(delay); err != nil || config.DrainDelay < 0 {
			return Config{}, fmt.Errorf("LEDGER_DRAIN_DELAY: %q is not a duration such as 5s", delay)
		}
	}
	keys, set := lookup("LEDGER_API_KEYS")
	if !set {
		keys, config.DemoKeys = defaultKeys, true
	}
	var err error
	if config.APIKeys, config.DemoTenant, err = api.ParseKeys(keys); err != nil {
		return Config{}, fmt.Errorf("LEDGER_API_KEYS: %w", err)
	}
	if config.Webhook, err = readWebhook(lookup); err != nil {
		return Config{}, err
	}
	config.Provider, err = readProvider(lookup)
	return config, err
}

func readProvider(lookup func(string) (string, bool)) (*provider.Client, error) {
	address, _ := lookup("LEDGER_PROVIDER_URL")
	if address == "" {
		return nil, nil
	}
	endpoint, err := parseURL(address)
	if err != nil {
		return nil, fmt.Errorf("LEDGER_PROVIDER_URL: %w", err)
	}
	return provider.NewClient(endpoint, provider.Timeout), nil
}

func readWebhook(lookup func(string) (string, bool)) (*jobs.Webhook, error) {
	address, _ := lookup("LEDGER_WEBHOOK_URL")
	if address == "" {
		return nil, nil
	}
	endpoint, err := parseURL(address)
	if err != nil {
		return nil, fmt.Errorf("LEDGER_WEBHOOK_URL: %w", err)
	}
	signer, err := readSecret(lookup)
	if err != nil {
		return nil, err
	}
	return jobs.NewWebhook(endpoint, signer), nil
}

func readSecret(lookup func(string) (string, bool)) (*jobs.Signer, error) {
	secret, _ := lookup("LEDGER_WEBHOOK_SECRET")
	signer, err := jobs.ParseSecret(secret)
	if err != nil {
		return nil, fmt.Errorf("LEDGER_WEBHOOK_SECRET: %w", err)
	}
	return signer, nil
}

// parseURL reads a URL to call. Its error does not repeat it, for it may hold a
// password.
func parseURL(address string) (*url.URL, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, errors.New("must be an http or https URL")
	}
	return parsed, nil
}
