package fibermw

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/idem"
)

func testRules(mutate func(*Config)) Rules {
	config := Config{Store: new(idem.Store), Scope: GlobalScope}
	if mutate != nil {
		mutate(&config)
	}
	return RulesOf(config)
}

func TestRulesNameWhatTheJudgeDecides(t *testing.T) {
	t.Parallel()
	want := StatusRules{
		Completed: []string{"200-399"},
		Refused:   []string{"400", "402", "404-407", "409-424", "426-428", "430-499"},
		NotFinal:  []string{"401", "403", "408", "425", "429", "500-599"},
	}
	if got := testRules(nil).Statuses; !reflect.DeepEqual(got, want) {
		t.Errorf("by default %v, want %v", got, want)
	}
	judge := func(c *fiber.Ctx) Ending {
		switch status := c.Response().StatusCode(); {
		case status == 402 && c.Method() == fiber.MethodPatch:
			return Commit
		case status == 418:
			return Ending(99)
		case status == 404:
			return c.Locals("unit").(func() Ending)()
		}
		return Abort
	}
	want = StatusRules{Completed: []string{"402"}, Refused: []string{}, NotFinal: []string{"200-401", "403", "405-599"}}
	got := testRules(func(cfg *Config) { cfg.Judge, cfg.Methods = judge, []string{fiber.MethodPatch} }).Statuses
	if !reflect.DeepEqual(got, want) {
		t.Errorf("with a Judge %v, want %v", got, want)
	}
}

func TestRulesFollowTheConfig(t *testing.T) {
	t.Parallel()
	global := testRules(nil)
	if !strings.HasPrefix(global.Scope, "All callers") || !global.Key.Required || global.Key.Header != ConfigDefault.KeyHeader ||
		!slices.Equal(global.Methods, ConfigDefault.Methods) || len(global.Problems) != len(problemKinds) {
		t.Errorf("rules by default: %+v", global)
	}
	canonical := testRules(func(cfg *Config) { cfg.Fingerprint = CanonicalJSONFingerprint })
	own := testRules(func(cfg *Config) {
		cfg.Scope = func(*fiber.Ctx) (string, error) { return "x", nil }
		cfg.Fingerprint = func(c *fiber.Ctx) (idem.Fingerprint, error) { return DefaultFingerprint(c) }
		cfg.AllowMissingKey, cfg.TTL, cfg.RetryAfter = true, 90*time.Second, 1500*time.Millisecond
		cfg.KeyHeader, cfg.ReplayedHeader, cfg.ProblemTypeBase = "X-Key", "X-Again", "https://api.example/problems/"
		cfg.HeadersNeverStored = []string{"X-Mine"}
	})
	if own.Scope == global.Scope || own.Key.Required || own.Key.Header != "X-Key" || own.Replay.Header != "X-Again" ||
		own.Expiry != Seconds(90*time.Second) || own.Problems[0].Type != "https://api.example/problems/"+CodeKeyInvalid ||
		own.Problems[1].RetryAfter != Seconds(1500*time.Millisecond) || !slices.Contains(own.Replay.HeadersNeverStored, "x-mine") {
		t.Errorf("rules of a config: %+v", own)
	}
	if a, b, c := global.SameRequest, canonical.SameRequest, own.SameRequest; a == b || b == c || a == c {
		t.Errorf("three fingerprints are described as %q, %q, %q", a, b, c)
	}
}

// Goal: the published pattern and the parser accept the same, parameters and
// white space aside.
func TestTheKeyPatternIsWhatTheParserAccepts(t *testing.T) {
	t.Parallel()
	pattern := regexp.MustCompile(keyPattern)
	lines := []string{"a", `"a"`, `"`, `""`, `"a`, `a"`, `"\""`, `"\\"`, `"\"`, `"\a"`, "a b", `"a b"`, "ä", "", "a,b", `"a","b"`, ":YQ==:", "?1", "42", "(a)", "a\x7f"}
	for _, length := range []int{254, 255, 256, 257} {
		lines = append(lines, strings.Repeat("k", length), `"`+strings.Repeat("k", length)+`"`, `"`+strings.Repeat(`\"`, length)+`"`)
	}
	for b := range 256 {
		lines = append(lines, string([]byte{byte(b)}), string([]byte{'"', byte(b), '"'}), string([]byte{'a', byte(b)}))
	}
	for _, line := range lines {
		if strings.Trim(line, " \t") != line {
			continue // white space around
		}
		key, err := parseKey([]string{line})
		if accepted := err == nil && key != ""; accepted != pattern.MatchString(line) {
			t.Errorf("%q: parser %v, pattern %v", line, accepted, pattern.MatchString(line))
		}
	}
}

func TestRulesAreSentInTheFormThatTheClientPrefers(t *testing.T) {
	t.Parallel()
	rules := testRules(func(cfg *Config) { cfg.TTL = 36 * time.Hour })
	for accept, want := range map[string]string{
		"":                                      "application/json",
		"*/*":                                   "application/json",
		"text/html, */*;q=0.1":                  "application/json",
		"text/markdown":                         "text/markdown; charset=utf-8",
		"application/json;q=0.5, text/markdown": "text/markdown; charset=utf-8",
		mimeOpenAPI:                             mimeOpenAPI,
		"image/png":                             "",
	} {
		c := newCtx(t)
		c.Request().Header.Set("Accept", accept)
		err := rules.Send(c)
		if want == "" {
			if !errors.Is(err, fiber.ErrNotAcceptable) {
				t.Errorf("%q: %v", accept, err)
			}
			continue
		}
		if got := c.GetRespHeader("Content-Type"); err != nil || got != want || c.GetRespHeader("Vary") != "Accept" {
			t.Errorf("%q: %q, %v, want %q", accept, got, err, want)
		}
		if body := string(c.Response().Body()); strings.HasPrefix(want, "text/") != strings.HasPrefix(body, "# Idempotency\n") || !strings.Contains(body, "36h") && !strings.Contains(body, `"expirySeconds":129600`) {
			t.Errorf("%q: %.300s", accept, body)
		}
	}
}

// Goal: the text says all that the rules hold, in each branch of its template.
func TestTheMarkdownOfRulesIsComplete(t *testing.T) {
	t.Parallel()
	for _, required := range []bool{true, false} {
		rules := testRules(func(cfg *Config) { cfg.AllowMissingKey = !required })
		rules.Replay.InFlightWait, rules.Expiry, rules.Statuses.Refused = Seconds(2*time.Second), Seconds(time.Minute), nil
		text := rules.Markdown()
		var parts []any
		for _, problem := range rules.Problems {
			parts = append(parts, "("+problem.Type+")", problem.Detail)
		}
		parts = append(parts, rules.Key.Header, rules.Key.Format, rules.Scope, rules.SameRequest, "kept for 1m.", "| none | none |",
			"waits up to 2s", rules.Replay.Header+": true", rules.Replay.HeadersNeverStored[0], rules.Statuses.NotFinal[0], rules.Methods[3])
		for _, part := range parts {
			if !strings.Contains(text, fmt.Sprint(part)) {
				t.Errorf("the text lacks %q:\n%s", part, text)
			}
		}
		if strings.Contains(text, "which is required") != required || strings.Contains(text, "<no value>") {
			t.Errorf("required %v:\n%s", required, text)
		}
	}
}

// Goal: each reference of the OpenAPI document leads somewhere, and each
// problem is an example of the response with its status.
func TestTheOpenAPIComponentsHoldTogether(t *testing.T) {
	t.Parallel()
	rules := testRules(nil)
	encoded, err := json.Marshal(rules.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(encoded, &document); err != nil {
		t.Fatal(err)
	}
	at := func(path string) any {
		node := any(document)
		for step := range strings.SplitSeq(strings.TrimPrefix(path, "#/"), "/") {
			node, _ = node.(map[string]any)[step]
		}
		return node
	}
	references := regexp.MustCompile(`"\$ref":"([^"]*)"`).FindAllStringSubmatch(string(encoded), -1)
	for _, reference := range references {
		if at(reference[1]) == nil {
			t.Errorf("%s leads nowhere", reference[1])
		}
	}
	if len(references) < 5 {
		t.Errorf("only %d references", len(references))
	}
	if p := at("components/parameters/IdempotencyKey").(map[string]any); p["name"] != "Idempotency-Key" || p["required"] != true {
		t.Errorf("parameter %v", p)
	}
	for _, kind := range problemKinds {
		response, _ := at(fmt.Sprintf("components/responses/Idempotency%d", kind.status)).(map[string]any)
		if response == nil || !strings.Contains(fmt.Sprint(response["description"]), kind.title) {
			t.Fatalf("%s: response %v", kind.code, response)
		}
		examples := response["content"].(map[string]any)[mimeProblem].(map[string]any)["examples"].(map[string]any)
		value, _ := examples[kind.code].(map[string]any)["value"].(map[string]any)
		if value["type"] != ConfigDefault.ProblemTypeBase+kind.code || value["status"] != float64(kind.status) {
			t.Errorf("%s: example %v", kind.code, value)
		}
		if _, again := response["headers"].(map[string]any)["Retry-After"]; again != kind.again && kind.status != 500 {
			t.Errorf("%s: Retry-After %v", kind.code, again)
		}
	}
}
