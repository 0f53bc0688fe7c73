package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// Goal: what a service publishes as its rules is what it does. Method: a
// service with settings of its own; its rules are read over HTTP, as a client
// would, and every sentence that can be tried is tried.
func TestFiberRulesAreWhatHappens(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{TTL: time.Hour, BodyBytesMax: 2000})
	s.config.KeyHeader, s.config.ReplayedHeader = "X-Request-Key", "X-Repeated"
	s.config.ProblemTypeBase = "https://shop.example/problems#"
	s.config.RetryAfter = 3 * time.Second
	s.config.Methods = []string{http.MethodPost}
	s.config.HeadersNeverStored = []string{"X-Once", "X-Attempt-*"}
	s.config.Judge = func(c *fiber.Ctx) fibermw.Ending {
		switch c.Response().StatusCode() {
		case fiber.StatusNotFound:
			return fibermw.Abort
		case fiber.StatusPaymentRequired:
			return fibermw.Commit
		case fiber.StatusNotImplemented:
			return fibermw.Reject
		}
		return fibermw.JudgeByStatus(c)
	}
	app := quietApp()
	app.Get("/idempotency", fibermw.RulesOf(s.config).Send)
	app.All("/sales/:status/:size", fibermw.New(s.config), func(c *fiber.Ctx) error {
		status, _ := c.ParamsInt("status")
		size, _ := c.ParamsInt("size")
		if c.Method() != http.MethodPost {
			return c.SendStatus(fiber.StatusNoContent) // no unit, no transaction
		}
		c.Set("X-Once", "1")
		c.Set("X-Attempt-Number", "1")
		c.Set("X-Kept", "1")
		if err := s.sell(c, fibermw.Tx(c), c.Path()); err != nil {
			return err
		}
		return c.Status(status).SendString(strings.Repeat("x", size))
	})
	send := connect(t, app)

	var rules struct {
		Key struct {
			Header, Pattern string
			Required        bool
		}
		Methods       []string
		ExpirySeconds float64
		Statuses      struct{ Completed, Refused, NotFinal []string }
		Replay        struct {
			Header             string
			HeadersNeverStored []string
			BodyBytesMax       int
		}
		Problems []struct {
			Type, Title, Detail string
			Status              int
			RetryAfterSeconds   int
		}
	}
	if err := json.Unmarshal([]byte(send(t, httptest.NewRequest(http.MethodGet, "/idempotency", nil)).body), &rules); err != nil {
		t.Fatal(err)
	}
	ask := func(target, key string) answer { return send(t, post(target, "", "", rules.Key.Header, key)) }
	states := map[idem.State][]string{
		idem.StateCompleted: rules.Statuses.Completed, idem.StateRejected: rules.Statuses.Refused, "": rules.Statuses.NotFinal,
	}
	seen := 0
	for state, ranges := range states {
		for _, status := range expandRanges(t, ranges) {
			target, key := fmt.Sprintf("/sales/%d/9", status), fmt.Sprint("key-", status)
			first, second := ask(target, key), ask(target, key)
			if again := second.header.Get(rules.Replay.Header) == "true"; again != (state != "") || first.status != status || second.status != status {
				t.Errorf("%d is said to be %q: answers %v and %v", status, state, first, second)
			}
			if got := s.recorded(t, key); got != state {
				t.Errorf("%d is said to be %q and is recorded as %q", status, state, got)
			}
			for name := range second.header {
				if neverStored(rules.Replay.HeadersNeverStored, name) && second.header.Get(rules.Replay.Header) != "" &&
					!slices.Contains([]string{"Content-Length", rules.Replay.Header}, name) {
					t.Errorf("%d: the replay has %s", status, name)
				}
			}
			seen++
			mustExec(t, s.pool, "delete from sales")
		}
	}
	if seen != 400 {
		t.Errorf("the rules speak of %d statuses", seen)
	}

	record, err := s.store.Lookup(t.Context(), "alice", "key-200")
	if err != nil || record.ExpiresAt.Sub(record.CreatedAt).Seconds() != rules.ExpirySeconds {
		t.Errorf("a record lives from %v to %v, published are %v s: %v", record.CreatedAt, record.ExpiresAt, rules.ExpirySeconds, err)
	}
	pattern := regexp.MustCompile(rules.Key.Pattern)
	for i, key := range []string{"plain", `"quoted"`, "a b", `"`, strings.Repeat("k", 256), "\xe4"} {
		if got := ask(fmt.Sprintf("/sales/200/%d", i), key); (got.status == 200) != pattern.MatchString(key) {
			t.Errorf("the key %q: pattern %v, answer %v", key, pattern.MatchString(key), got)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} { // without a key
		request := httptest.NewRequest(method, "/sales/200/1", nil)
		if got := send(t, request); (got.status == 400) != (rules.Key.Required && slices.Contains(rules.Methods, method)) {
			t.Errorf("%s without a key: %v", method, got)
		}
	}
	problems := map[string]answer{
		"#idempotency-key-missing": send(t, httptest.NewRequest(http.MethodPost, "/sales/200/1", nil)),
		"#idempotency-key-invalid": ask("/sales/200/1", "a b"),
		"#idempotency-key-reused":  ask("/sales/200/1", "key-200"),
		"#response-too-large":      ask(fmt.Sprintf("/sales/200/%d", rules.Replay.BodyBytesMax+1), "large"),
	}
	if got := ask(fmt.Sprintf("/sales/200/%d", rules.Replay.BodyBytesMax), "largest"); got.status != 200 {
		t.Errorf("a body of the published size: %v", got.status)
	}
	for _, problem := range rules.Problems {
		_, code, _ := strings.Cut(problem.Type, "#")
		got, tried := problems["#"+code]
		if tried && (got.status != problem.Status || !strings.Contains(got.body, `"`+problem.Type+`"`) || !strings.Contains(got.body, `"`+problem.Title+`"`)) {
			t.Errorf("%s was answered with %v", problem.Type, got)
		}
		delete(problems, "#"+code)
	}
	if len(problems) != 0 {
		t.Errorf("not published: %v", problems)
	}
}

// expandRanges reads "200-399" and "404".
func expandRanges(t *testing.T, ranges []string) (statuses []int) {
	t.Helper()
	for _, r := range ranges {
		var from, to int
		if n, _ := fmt.Sscanf(r, "%d-%d", &from, &to); n == 1 {
			to = from
		}
		if from == 0 {
			t.Fatalf("not a range of statuses: %q", r)
		}
		for status := from; status <= to; status++ {
			statuses = append(statuses, status)
		}
	}
	return statuses
}

func neverStored(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, family := strings.CutSuffix(pattern, "*")
		return strings.EqualFold(pattern, name) || family && strings.HasPrefix(strings.ToLower(name), prefix)
	})
}
