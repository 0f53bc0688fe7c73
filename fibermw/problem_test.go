package fibermw

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2/log"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idempg/idempg/idem"
)

func TestEveryErrorHasItsProblem(t *testing.T) {
	t.Parallel()
	secret := &pgconn.PgError{Code: "23505", Message: "secret", ConstraintName: "secret", SeverityUnlocalized: "ERROR"}
	m := testMiddleware(func(cfg *Config) { cfg.RetryAfter = 1500 * time.Millisecond })
	for _, tc := range []struct {
		err    error
		code   string
		status int
		retry  string
	}{
		{fmt.Errorf("%w: secret", idem.ErrInFlight), CodeInFlight, 409, "2"},
		{fmt.Errorf("%w: secret", idem.ErrKeyReused), CodeKeyReused, 422, ""},
		{&idem.OutcomeUnknownError{Cause: secret}, CodeOutcomeUnknown, 503, "2"},
		{&idem.ResponseTooLargeError{Field: "Body"}, CodeResponseTooLarge, 500, ""},
		{&pgconn.PgError{Code: "40001", Message: "secret"}, CodeDatabaseUnavailable, 503, "2"},
		{&pgconn.PgError{Code: "57P01", Message: "secret", SeverityUnlocalized: "FATAL"}, CodeDatabaseUnavailable, 503, "2"},
		{secret, CodeInternal, 500, ""},
		{errors.New("secret"), CodeInternal, 500, ""},
	} {
		c := newCtx(t)
		if err := SendProblem(c, m.problemOf(tc.err)); err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(c.Response().Body(), &got); err != nil {
			t.Fatal(err)
		}
		header := &c.Response().Header
		if c.Response().StatusCode() != tc.status || got["status"] != float64(tc.status) ||
			got["type"] != ConfigDefault.ProblemTypeBase+tc.code || got["title"] == "" || got["detail"] == "" || len(got) != 4 ||
			string(header.ContentType()) != "application/problem+json" || string(header.Peek("Retry-After")) != tc.retry {
			t.Errorf("%v: %d, %s%s", tc.err, c.Response().StatusCode(), header, c.Response().Body())
		}
		if strings.Contains(string(c.Response().Body()), "secret") || strings.Contains(m.problemOf(tc.err).Error(), "secret") {
			t.Errorf("%v reaches the client: %s", tc.err, c.Response().Body())
		}
		if !errors.Is(m.problemOf(tc.err), tc.err) {
			t.Errorf("%v is not the cause for the operator", tc.err)
		}
	}
}

// The type of a problem is a link, and leads somewhere.
func TestEveryProblemIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/problems.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []string{
		CodeKeyMissing, CodeKeyInvalid, CodeInFlight, CodeKeyReused,
		CodeOutcomeUnknown, CodeDatabaseUnavailable, CodeResponseTooLarge, CodeInternal,
	} {
		if !strings.Contains(string(page), "\n## "+code+"\n") {
			t.Errorf("docs/problems.md has no section %s", code)
		}
		if p := testMiddleware(nil).problem(code, nil); p.Status == 0 || p.Title == "" {
			t.Errorf("the problem %s has no status or no title", code)
		}
	}
}

// Goal: an operator finds the cause of a 5xx, and no line for what clients do
// wrong. Not parallel: Fiber's log is one for the process.
func TestSendProblemLogsTheCauseOfA5xx(t *testing.T) {
	var out bytes.Buffer
	log.SetOutput(&out)
	defer log.SetOutput(os.Stderr)
	m := testMiddleware(nil)
	for _, err := range []error{idem.ErrInFlight, idem.ErrKeyReused, errors.New("the cause")} {
		if err := SendProblem(newCtx(t), m.problemOf(err)); err != nil {
			t.Fatal(err)
		}
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "internal-error: the cause") {
		t.Errorf("logged %q", got)
	}
}
