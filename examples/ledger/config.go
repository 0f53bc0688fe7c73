package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

const (
	defaultAddr = "127.0.0.1:8080"
	defaultKeys = "acme-demo-key:acme,globex-demo-key:globex"
)

var (
	apiKeyPattern = regexp.MustCompile(`^[!-~]{1,255}$`)
	tenantPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
)

// Config is the environment of the service.
type Config struct {
	DatabaseURL string // DATABASE_URL; "": a throwaway Postgres of its own
	Addr        string // LEDGER_ADDR
	APIKeys     apiKeys
	DemoTenant  string // tenant of the first API key
	DemoKeys    bool   // LEDGER_API_KEYS is not set: the keys are public knowledge
}

func readConfig(lookup func(string) (string, bool)) (Config, error) {
	config := Config{Addr: defaultAddr}
	config.DatabaseURL, _ = lookup("DATABASE_URL")
	if addr, _ := lookup("LEDGER_ADDR"); addr != "" {
		config.Addr = addr
	}
	keys, set := lookup("LEDGER_API_KEYS")
	if !set {
		keys, config.DemoKeys = defaultKeys, true
	}
	var err error
	if config.APIKeys, config.DemoTenant, err = parseAPIKeys(keys); err != nil {
		return Config{}, fmt.Errorf("LEDGER_API_KEYS: %w", err)
	}
	return config, nil
}

// parseAPIKeys reads "key:tenant,key:tenant". Its errors name an entry by
// number: keys are secrets.
func parseAPIKeys(list string) (keys apiKeys, firstTenant string, err error) {
	if strings.TrimSpace(list) == "" {
		return nil, "", errors.New(`is empty: write "key:tenant,key:tenant", or unset it for the demo keys`)
	}
	keys = apiKeys{}
	for i, entry := range strings.Split(list, ",") {
		entry = strings.TrimSpace(entry)
		colon := strings.LastIndexByte(entry, ':')
		if colon < 0 {
			return nil, "", fmt.Errorf(`entry %d is not "key:tenant"`, i+1)
		}
		key, tenant := entry[:colon], entry[colon+1:]
		switch {
		case !apiKeyPattern.MatchString(key):
			return nil, "", fmt.Errorf("the key of entry %d must be 1 to 255 visible ASCII characters", i+1)
		case !tenantPattern.MatchString(tenant):
			return nil, "", fmt.Errorf("the tenant of entry %d must be 1 to 64 of A-Z a-z 0-9 _ . -", i+1)
		case keys.has(key):
			return nil, "", fmt.Errorf("the key of entry %d is there twice", i+1)
		}
		keys.add(key, tenant)
		if firstTenant == "" {
			firstTenant = tenant
		}
	}
	return keys, firstTenant, nil
}
