package integration

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// Goal: what the Idempotency-Key draft (draft-ietf-httpapi-idempotency-key-header)
// asks of a server holds, statement by statement. The subtests have the numbers
// of its sections, and each has a service of its own.
func TestFiberTheDraft(t *testing.T) {
	t.Parallel()
	for statement, check := range map[string]func(t *testing.T, s *shop, send browser){
		"2.1 the key is a String": func(t *testing.T, s *shop, send browser) {
			first := send(t, post("/sales?item=a", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`, ""))
			expectReplay(t, first, send(t, post("/sales?item=a", `"8e03978e-40d5-43dd-bc93-6894a57f9324";a=1`, "")))
			s.expect(t, 1, 1)
		},
		"2.1 more than one header field is refused": func(t *testing.T, s *shop, send browser) {
			request := post("/sales?item=a", `"a"`, "")
			request.Header.Add("Idempotency-Key", `"b"`)
			got := send(t, request)
			got.mustProblem(t, 400, fibermw.CodeKeyInvalid)
			mustLink(t, got)
			send(t, post("/sales?item=a", `"a", "b"`, "")).mustProblem(t, 400, fibermw.CodeKeyInvalid) // as a proxy may join them
			s.expect(t, 0, 0)
		},
		"2.2 a key is not for another payload": func(t *testing.T, s *shop, send browser) {
			send(t, post("/sales?item=a", "key", `{"a":1}`))
			got := send(t, post("/sales?item=a", "key", `{"a":2}`))
			got.mustProblem(t, 422, fibermw.CodeKeyReused)
			mustLink(t, got)
			s.expect(t, 1, 1)
		},
		"2.3 an expired key is new, as published": func(t *testing.T, s *shop, _ browser) {
			s.config.TTL = time.Millisecond
			if got := time.Duration(fibermw.RulesOf(s.config).Expiry); got != s.config.TTL {
				t.Errorf("published is %v", got)
			}
			send := direct(s.seller())
			send(t, post("/sales?item=a", "key", ""))
			err := eventually(settleWait, func() error {
				if state := s.recorded(t, "key"); state != "" {
					return fmt.Errorf("the record is still %s", state)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			mustExec(t, s.pool, "delete from sales")
			if got := send(t, post("/sales?item=a", "key", "")); got.status != 201 || got.replayed() {
				t.Errorf("the expired key was answered with %v", got)
			}
			s.expect(t, 2, 1)
		},
		"2.5 the rules are published": func(t *testing.T, s *shop, _ browser) {
			app := quietApp()
			app.Get("/idempotency", fibermw.RulesOf(s.config).Send)
			request := post("/idempotency", "", "")
			request.Method = http.MethodGet
			if got := direct(app)(t, request); got.status != 200 || !strings.Contains(got.body, `"expirySeconds":86400`) {
				t.Errorf("published: %v", got)
			}
		},
		"2.6 a first request is processed, its retry gets the result, success or error": func(t *testing.T, s *shop, send browser) {
			for _, target := range []string{"/sales?item=a", "/refuse"} {
				first := send(t, post(target, target, ""))
				expectReplay(t, first, send(t, post(target, target, "")))
			}
			s.expect(t, 2, 1)
		},
		"2.7 a missing key is 400 with a link": func(t *testing.T, s *shop, send browser) {
			got := send(t, post("/sales?item=a", "", ""))
			got.mustProblem(t, 400, fibermw.CodeKeyMissing)
			mustLink(t, got)
			s.expect(t, 0, 0)
		},
		"2.7 401, 403 and 429 can be tried again": func(t *testing.T, s *shop, send browser) {
			for _, status := range []int{401, 403, 429, 500, 502, 503, 504} {
				target := fmt.Sprintf("/refuse?status=%d", status)
				for range 2 {
					if got := send(t, post(target, target, "")); got.status != status || got.replayed() {
						t.Errorf("%d: %v", status, got)
					}
				}
			}
			s.expect(t, 14, 0)
		},
		"5 the key is validated before anything is processed": func(t *testing.T, s *shop, _ browser) {
			s.config.Scope = func(*fiber.Ctx) (string, error) { panic("asked before the key was valid") }
			for _, key := range []string{"'; drop table sales; --", "a\r b", strings.Repeat("k", 1<<11), "\x00"} {
				request := post("/sales?item=a", "", "")
				request.Header["Idempotency-Key"] = []string{key}
				got := direct(s.seller())(t, request)
				got.mustProblem(t, 400, fibermw.CodeKeyInvalid)
				if strings.Contains(got.body, key) {
					t.Errorf("the answer repeats the key: %s", got.body)
				}
			}
			s.expect(t, 0, 0)
		},
		"5 the lookup key is a composite: a guessed key of another client opens nothing": func(t *testing.T, s *shop, send browser) {
			send(t, post("/sales?item=a", "key", ""))
			if got := send(t, post("/sales?item=b", "key", "", "X-User", "bob")); got.status != 201 || got.replayed() {
				t.Errorf("bob got %v", got)
			}
			s.expect(t, 2, 2)
		},
	} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, idem.Config{})
			app := s.seller()
			app.Post("/refuse", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
				if err := s.sell(c, tx, c.OriginalURL()); err != nil {
					return err
				}
				return fiber.NewError(c.QueryInt("status", fiber.StatusConflict), "refused")
			}))
			check(t, s, direct(app))
		})
	}
}

// Goal: 409 for a concurrent retry (section 2.6), with its problem and a link.
func TestFiberTheDraftConcurrentRequest(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	app := quietApp()
	var duplicate answer
	app.Post("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		duplicate = direct(app)(t, post("/", "key", ""))
		return s.sell(c, tx, "item")
	}))
	first := direct(app)(t, post("/", "key", ""))
	duplicate.mustProblem(t, 409, fibermw.CodeInFlight)
	mustLink(t, duplicate)
	expectReplay(t, first, direct(app)(t, post("/", "key", "")))
	s.expect(t, 1, 1)
}

// mustLink checks that the body has a link to the documentation.
func mustLink(t *testing.T, got answer) {
	t.Helper()
	_, rest, _ := strings.Cut(got.body, `"type":"`)
	link, _, _ := strings.Cut(rest, `"`)
	if u, err := url.Parse(link); err != nil || u.Scheme != "https" || u.Host == "" || u.Fragment == "" {
		t.Errorf("no link in %s", got.body)
	}
}

// Goal: each bare item of RFC 8941 has a defined outcome, and the same key in
// two spellings is one key. A String counts by its value. Whatever else a client
// sends counts as it is written, if it is visible ASCII: the draft forbids it,
// but clients that send the bare value are many.
func TestFiberKeysOfEveryType(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	send := connect(t, s.seller())
	for i, tc := range []struct {
		name, line, key string // no key: refused
	}{
		{"String", `"k1"`, `k1`},
		{"String with escapes", `"k\"2\\"`, `k"2\`},
		{"String with parameters", `"k3";a;b=?0;c="x;y"`, `k3`},
		{"String with a parameter of a type that is wrong", `"k4";a=(1)`, ``},
		{"String with an upper-case parameter", `"k5";A=1`, ``},
		{"String with an escape of another character", `"k\6"`, ``},
		{"unterminated String", `"k7`, ``},
		{"token", `k8`, `k8`},
		{"token with a parameter", `k9;a=1`, `k9;a=1`},
		{"integer", `10`, `10`},
		{"negative decimal", `-1.10`, `-1.10`},
		{"boolean", `?1`, `?1`},
		{"byte sequence", `:azEx:`, `:azEx:`},
		{"inner list", `("k12" "k13")`, ``},
		{"inner list without a space", `("k14")`, `("k14")`},
		{"list of Strings", `"k15","k16"`, ``},
		{"list of tokens", `k17, k18`, ``},
		{"list of tokens without a space", `k19,k20`, `k19,k20`},
		{"dictionary", `a="k21"`, `a="k21"`},
		{"display string", `%"k%c3%bc"`, `%"k%c3%bc"`},
		{"UTF-8", `"kü"`, ``},
	} {
		target := fmt.Sprintf("/sales?item=%d", i)
		got := send(t, post(target, tc.line, ""))
		if tc.key == "" {
			got.mustProblem(t, 400, fibermw.CodeKeyInvalid)
			continue
		}
		if state := s.recorded(t, tc.key); got.status != 201 || state != idem.StateCompleted {
			t.Errorf("%s: %v, and the key %q is %q", tc.name, got, tc.key, state)
		}
		spelled := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(tc.key) + `"`
		expectReplay(t, got, send(t, post(target, spelled, "")))
	}
}
