package fibermw

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

func TestAConfigThatCannotWorkPanicsAndNamesTheField(t *testing.T) {
	t.Parallel()
	good := Config{Store: new(idem.Store), Scope: GlobalScope}
	for field, spoil := range map[string]func(*Config){
		"Store":          func(c *Config) { c.Store = nil },
		"Scope":          func(c *Config) { c.Scope = nil },
		"KeyHeader":      func(c *Config) { c.KeyHeader = "Idempotency Key" },
		"ReplayedHeader": func(c *Config) { c.ReplayedHeader = "Replayed:" },
		"TTL":            func(c *Config) { c.TTL = time.Nanosecond },
		"RetryAfter":     func(c *Config) { c.RetryAfter = -time.Second },
		"Methods":        func(c *Config) { c.Methods = []string{"post"} },
	} {
		config := good
		spoil(&config)
		for name, construct := range map[string]func(){
			"New":    func() { New(config) },
			"Handle": func() { Handle(config, func(*fiber.Ctx, pgx.Tx) error { return nil }) },
		} {
			if text := panicOf(construct); !strings.Contains(text, "Config."+field+" ") {
				t.Errorf("%s with a bad %s: panic %q does not name the field", name, field, text)
			}
		}
	}
	if text := panicOf(func() { New() }); !strings.Contains(text, "Config.Store") {
		t.Errorf("New(): panic %q", text)
	}
	if text := panicOf(func() { Handle(good, nil) }); !strings.Contains(text, "handler") {
		t.Errorf("Handle(config, nil): panic %q", text)
	}
	if text := panicOf(func() { New(good) }); text != "" {
		t.Errorf("New with a good config: panic %q", text)
	}
}

func panicOf(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprint(r)
		}
	}()
	f()
	return ""
}

// Goal: no field that has a default stays empty.
func TestConfigDefaultFillsEveryField(t *testing.T) {
	t.Parallel()
	cfg := configDefault(Config{Store: new(idem.Store), Scope: GlobalScope})
	if cfg.Operation == nil || cfg.Fingerprint == nil || cfg.Judge == nil || cfg.ErrorHandler == nil ||
		cfg.KeyHeader != "Idempotency-Key" || cfg.ReplayedHeader != "Idempotency-Replayed" ||
		cfg.RetryAfter != time.Second || len(cfg.Methods) != 4 || cfg.ProblemTypeBase == "" {
		t.Errorf("configDefault left something out: %+v", cfg)
	}
}
