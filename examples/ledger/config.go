package main

import (
	"fmt"

	"github.com/idempg/idempg/examples/ledger/api"
)

const (
	defaultAddr  = "127.0.0.1:8080"
	demoVariable = "LEDGER_DEMO"
	defaultKeys  = "acme-demo-key:acme,globex-demo-key:globex"
)

// Config is the environment of the service.
type Config struct {
	DatabaseURL string // DATABASE_URL; "": a throwaway Postgres of its own
	Addr        string // LEDGER_ADDR
	Demo        bool   // LEDGER_DEMO; set by the demo for its child
	APIKeys     api.Keys
	DemoTenant  string // tenant of the first API key
	DemoKeys    bool   // LEDGER_API_KEYS is not set: the keys are public knowledge
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
	keys, set := lookup("LEDGER_API_KEYS")
	if !set {
		keys, config.DemoKeys = defaultKeys, true
	}
	var err error
	if config.APIKeys, config.DemoTenant, err = api.ParseKeys(keys); err != nil {
		return Config{}, fmt.Errorf("LEDGER_API_KEYS: %w", err)
	}
	return config, nil
}
