package main

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/idempg/idempg/examples/ledger/api"
)

func TestBadConfigurationNamesTheVariable(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { must(t, taken.Close()) })
	url, _ := newDatabase(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	nobody := free.Addr().String()
	must(t, free.Close())

	for name, test := range map[string]struct{ variable, value, reason string }{
		"database URL is none":        {"DATABASE_URL", "postgres://u:s3cret@[::1/db", "cannot parse"},
		"database URL has no port":    {"DATABASE_URL", "postgres://u:s3cret@localhost:port/db", "port"},
		"database does not answer":    {"DATABASE_URL", "postgres://u:s3cret@" + nobody + "/db", "refused"},
		"address is none":             {"LEDGER_ADDR", "8080", "missing port"},
		"address has an unknown port": {"LEDGER_ADDR", "127.0.0.1:123456", "port"},
		"address is taken":            {"LEDGER_ADDR", taken.Addr().String(), "in use"},
		"metrics address is none":     {"LEDGER_METRICS_ADDR", "9090", "missing port"},
		"metrics address is taken":    {"LEDGER_METRICS_ADDR", taken.Addr().String(), "in use"},
		"delay is none":               {"LEDGER_DRAIN_DELAY", "soon", "not a duration"},
		"delay is negative":           {"LEDGER_DRAIN_DELAY", "-1s", "not a duration"},
		"keys are empty":              {"LEDGER_API_KEYS", "", "is empty"},
		"keys are blank":              {"LEDGER_API_KEYS", " ", "is empty"},
		"an entry has no tenant":      {"LEDGER_API_KEYS", "s3cret:acme,s3cret", `entry 2 is not "key:tenant"`},
		"an entry is empty":           {"LEDGER_API_KEYS", "s3cret:acme,", `entry 2 is not "key:tenant"`},
		"a tenant is empty":           {"LEDGER_API_KEYS", "s3cret:", "tenant of entry 1"},
		"a tenant is odd":             {"LEDGER_API_KEYS", "s3cret:a b", "tenant of entry 1"},
		"a key is empty":              {"LEDGER_API_KEYS", ":acme", "key of entry 1"},
		"a key has a space":           {"LEDGER_API_KEYS", "s3 cret:acme", "key of entry 1"},
		"the webhook is no URL":       {"LEDGER_WEBHOOK_URL", "127.0.0.1:8081/s3cret", "http or https"},
		"the webhook has no scheme":   {"LEDGER_WEBHOOK_URL", "//u:s3cret@localhost", "http or https"},
		"the secret has no prefix":    {"LEDGER_WEBHOOK_SECRET", "s3crets3crets3crets3crets3crets3crets3cr", "whsec_"},
		"the secret is short":         {"LEDGER_WEBHOOK_SECRET", "whsec_s3cret", "24 to 64"},
		"the secret is no base64":     {"LEDGER_WEBHOOK_SECRET", "whsec_s3cret!!s3cret!!s3cret!!s3cret!!s3cr", "base64"},
		"the secret is absent":        {"LEDGER_WEBHOOK_SECRET", "", "whsec_"},
		"the provider is no URL":      {"LEDGER_PROVIDER_URL", "http://u:s3cret@:port", "http or https"},
		"a key is there twice":        {"LEDGER_API_KEYS", "s3cret:acme,s3cret:globex", "key of entry 2 is there twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			environment := map[string]string{"LEDGER_ADDR": "127.0.0.1:0", "DATABASE_URL": url, "LEDGER_WEBHOOK_URL": "http://127.0.0.1:9", "LEDGER_WEBHOOK_SECRET": testSecret, test.variable: test.value}
			ctx, cancel := context.WithTimeout(t.Context(), stateWaitMax)
			defer cancel()
			err := serve(ctx, func(name string) (string, bool) {
				value, set := environment[name]
				return value, set
			}, io.Discard)
			if err == nil || !strings.HasPrefix(err.Error(), test.variable+": ") || !strings.Contains(err.Error(), test.reason) {
				t.Errorf("got %v, want one that begins with %s and says %q", err, test.variable, test.reason)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error tells a secret: %v", err)
			}
		})
	}
}

func TestDefaultConfiguration(t *testing.T) {
	t.Parallel()
	config, err := readConfig(func(string) (string, bool) { return "", false })
	must(t, err)
	if config.Addr != "127.0.0.1:8080" || config.DatabaseURL != "" || config.DemoTenant != "acme" || !config.DemoKeys {
		t.Errorf("got %+v", config)
	}
	if !config.APIKeys.Has("acme-demo-key") || !config.APIKeys.Has("globex-demo-key") || len(config.APIKeys) != 2 {
		t.Error("the demo keys are not the keys")
	}
}

func TestAnAPIKeyMayHoldColons(t *testing.T) {
	t.Parallel()
	keys, tenant, err := api.ParseKeys("a:b:acme, c:globex")
	must(t, err)
	if !keys.Has("a:b") || !keys.Has("c") || tenant != "acme" {
		t.Errorf("got %d keys, first tenant %s", len(keys), tenant)
	}
}
