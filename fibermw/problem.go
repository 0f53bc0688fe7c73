package fibermw

import (
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/log"

	"github.com/idempg/idempg/idem"
)

// The codes of problems. Each has a section of this name in docs/problems.md.
const (
	CodeKeyMissing          = "idempotency-key-missing" // 400
	CodeKeyInvalid          = "idempotency-key-invalid" // 400
	CodeInFlight            = "request-in-flight"       // 409
	CodeKeyReused           = "idempotency-key-reused"  // 422
	CodeOutcomeUnknown      = "outcome-unknown"         // 503
	CodeDatabaseUnavailable = "database-unavailable"    // 503
	CodeResponseTooLarge    = "response-too-large"      // 500
	CodeInternal            = "internal-error"          // 500
)

// Problem is an answer of this package (RFC 9457). Its fields and its Error are
// for clients; the cause is for the operator and found by errors.Unwrap.
type Problem struct {
	Type   string `json:"type"` // Config.ProblemTypeBase and Code
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`

	Code       string        `json:"-"` // one of the Code constants
	RetryAfter time.Duration `json:"-"` // when to send the same request again; 0: it would not help

	cause error
}

// Error is the detail. It is safe to show to a client.
func (p *Problem) Error() string { return p.Detail }

// Unwrap returns the cause, or nil. It is not for clients.
func (p *Problem) Unwrap() error { return p.cause }

// SendProblem answers with problem as application/problem+json. It logs the
// cause of a 5xx with Fiber's log, for nobody else is told.
func SendProblem(c *fiber.Ctx, problem *Problem) error {
	if problem.Status >= fiber.StatusInternalServerError && problem.cause != nil {
		log.Errorf("[IDEMPG] %s %q: %s: %v", c.Method(), c.Path(), problem.Code, problem.cause)
	}
	body, err := json.Marshal(problem)
	if err != nil {
		return err
	}
	if problem.RetryAfter > 0 {
		seconds := (problem.RetryAfter + time.Second - 1) / time.Second
		c.Set(fiber.HeaderRetryAfter, strconv.FormatInt(int64(seconds), 10))
	}
	c.Set(fiber.HeaderContentType, "application/problem+json")
	return c.Status(problem.Status).Send(body)
}

// problemOf is the problem that an error of the library means to a client.
func (m *middleware) problemOf(err error) *Problem {
	var outcomeUnknown *idem.OutcomeUnknownError
	var tooLarge *idem.ResponseTooLargeError
	switch {
	case errors.As(err, &outcomeUnknown):
		return m.problem(CodeOutcomeUnknown, "The request was carried out once or not at all. Send it again with the same key to find out.", err)
	case errors.Is(err, idem.ErrInFlight):
		return m.problem(CodeInFlight, "A request with this key is being processed. Send it again with the same key a little later to get its answer.", err)
	case errors.Is(err, idem.ErrKeyReused):
		return m.problem(CodeKeyReused, "This key was used for a different request. Use a new key for a new request.", err)
	case errors.As(err, &tooLarge):
		return m.problem(CodeResponseTooLarge, "The answer is too large to be recorded. Nothing was changed.", err)
	case idem.Retryable(err):
		return m.problem(CodeDatabaseUnavailable, "The database could not carry out the request. Nothing was changed. Send the same request again a little later.", err)
	}
	return m.problem(CodeInternal, "The request failed. Nothing was changed.", err)
}

func (m *middleware) problem(code, detail string, cause error) *Problem {
	p := &Problem{Type: m.ProblemTypeBase + code, Detail: detail, Code: code, cause: cause}
	switch code {
	case CodeKeyMissing:
		p.Status, p.Title = fiber.StatusBadRequest, "Idempotency key missing"
	case CodeKeyInvalid:
		p.Status, p.Title = fiber.StatusBadRequest, "Idempotency key invalid"
	case CodeInFlight:
		p.Status, p.Title, p.RetryAfter = fiber.StatusConflict, "Request in flight", m.RetryAfter
	case CodeKeyReused:
		p.Status, p.Title = fiber.StatusUnprocessableEntity, "Idempotency key reused"
	case CodeOutcomeUnknown:
		p.Status, p.Title, p.RetryAfter = fiber.StatusServiceUnavailable, "Outcome unknown", m.RetryAfter
	case CodeDatabaseUnavailable:
		p.Status, p.Title, p.RetryAfter = fiber.StatusServiceUnavailable, "Database unavailable", m.RetryAfter
	case CodeResponseTooLarge:
		p.Status, p.Title = fiber.StatusInternalServerError, "Response too large"
	case CodeInternal:
		p.Status, p.Title = fiber.StatusInternalServerError, "Internal error"
	}
	return p
}
