package fibermw

import (
	"encoding/json"
	"errors"
	"slices"
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

const mimeProblem = "application/problem+json"

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
	c.Set(fiber.HeaderContentType, mimeProblem)
	return c.Status(problem.Status).Send(body)
}

// problemOf is the problem that an error of the library means to a client.
func (m *middleware) problemOf(err error) *Problem {
	var outcomeUnknown *idem.OutcomeUnknownError
	var tooLarge *idem.ResponseTooLargeError
	code := CodeInternal
	switch {
	case errors.As(err, &outcomeUnknown):
		code = CodeOutcomeUnknown
	case errors.Is(err, idem.ErrInFlight):
		code = CodeInFlight
	case errors.Is(err, idem.ErrKeyReused):
		code = CodeKeyReused
	case errors.As(err, &tooLarge):
		code = CodeResponseTooLarge
	case idem.Retryable(err):
		code = CodeDatabaseUnavailable
	}
	return m.problem(code, err)
}

// problem makes the problem of a code of this package.
func (m *middleware) problem(code string, cause error) *Problem {
	kind := problemKinds[slices.IndexFunc(problemKinds, func(k problemKind) bool { return k.code == code })]
	p := &Problem{Type: m.ProblemTypeBase + code, Title: kind.title, Status: kind.status, Detail: kind.detail, Code: code, cause: cause}
	if kind.again {
		p.RetryAfter = m.RetryAfter
	}
	return p
}

// problemKind is what all problems with one code have in common.
type problemKind struct {
	code   string
	status int
	title  string
	detail string
	again  bool // the same request with the same key may get another answer
}

// problemKinds has all codes, in the order in which a request can meet them.
var problemKinds = []problemKind{
	{CodeKeyMissing, fiber.StatusBadRequest, "Idempotency key missing", "Send a key that is new for each new request and the same for its retries.", false},
	{CodeKeyInvalid, fiber.StatusBadRequest, "Idempotency key invalid", "The header of the key does not hold one key as it is published.", false},
	{CodeInFlight, fiber.StatusConflict, "Request in flight", "A request with this key is being processed. Send it again with the same key a little later to get its answer.", true},
	{CodeKeyReused, fiber.StatusUnprocessableEntity, "Idempotency key reused", "This key was used for a different request. Use a new key for a new request.", false},
	{CodeOutcomeUnknown, fiber.StatusServiceUnavailable, "Outcome unknown", "The request was carried out once or not at all. Send it again with the same key to find out.", true},
	{CodeDatabaseUnavailable, fiber.StatusServiceUnavailable, "Database unavailable", "The database could not carry out the request. Nothing was changed. Send the same request again a little later.", true},
	{CodeResponseTooLarge, fiber.StatusInternalServerError, "Response too large", "The answer is too large to be recorded. Nothing was changed.", false},
	{CodeInternal, fiber.StatusInternalServerError, "Internal error", "The request failed. Nothing was changed.", false},
}
