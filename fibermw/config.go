package fibermw

import (
	"fmt"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/idem"
)

// Config is the configuration of [New] and [Handle]. Store and Scope are
// required.
type Config struct {
	// Next skips the middleware when it returns true.
	// Defaults to nil: never skip.
	Next func(c *fiber.Ctx) bool

	// Store runs the units. Its limits and policies apply: TTL, ClaimWait,
	// BodyBytesMax and the rest.
	// Required: it defaults to nil, which New and Handle refuse.
	Store *idem.Store

	// Scope says whose key it is: the tenant or user that was authenticated.
	// Take something that stays the same for all retries. A token that rotates
	// is not a scope: a retry with the fresh token would run again. An error
	// ends the request: a *fiber.Error keeps its status, another is a 500, and
	// so is an empty scope. [GlobalScope] is one namespace for all callers.
	// Required: it defaults to nil, which New and Handle refuse.
	Scope func(c *fiber.Ctx) (string, error)

	// Operation names what is done. One key for two operations is refused.
	// Defaults to method and path, such as "POST /v1/transfers".
	Operation func(c *fiber.Ctx) string

	// KeyHeader is the request header that holds the key: an RFC 8941 String
	// or the bare value, 1 to 255 bytes of visible ASCII.
	// Defaults to "Idempotency-Key".
	KeyHeader string

	// AllowMissingKey runs a request without a key in a plain transaction: the
	// same endings, no record, no protection against retries.
	// Defaults to false: such a request is answered with 400.
	AllowMissingKey bool

	// Methods are those that run as units. New passes others through; Handle
	// runs them in a plain transaction, as without a key.
	// Defaults to POST, PUT, PATCH and DELETE.
	Methods []string

	// Fingerprint digests what the request asks for, before the handler runs.
	// Errors are treated like those of Scope.
	// Defaults to [DefaultFingerprint]; see also [CanonicalJSONFingerprint].
	Fingerprint func(c *fiber.Ctx) (idem.Fingerprint, error)

	// Judge says how the unit ends, by the answer that was rendered. It is not
	// asked after [End], nor when an error was rendered as 5xx, which always
	// aborts. It may run more than once.
	// Defaults to [JudgeByStatus].
	Judge func(c *fiber.Ctx) Ending

	// TTL is how long the record answers retries.
	// Defaults to 0: the Store's.
	TTL time.Duration

	// RetryAfter is what the header Retry-After advises when the same request
	// should be sent again, rounded up to seconds.
	// Defaults to 1 second.
	RetryAfter time.Duration

	// ReplayedHeader is set to "true" on every replay, and never on a first
	// answer.
	// Defaults to "Idempotency-Replayed".
	ReplayedHeader string

	// CacheLookupHeader also sets "X-Cache-Lookup: HIT" on every replay, for
	// clients of middlewares that cache in Redis.
	// Defaults to false.
	CacheLookupHeader bool

	// HeadersNeverStored are response headers that belong to one request and
	// not to the answer. A trailing * stands for any ending. They are in
	// addition to the hop-by-hop headers, Content-Length and Date, the CORS
	// headers (Access-Control-*), request ids and traces (X-Request-Id,
	// Request-Id, X-Correlation-Id, Correlation-Id, X-Trace-Id, Traceparent,
	// Tracestate, Traceresponse, Server-Timing), rate limits (RateLimit*,
	// X-RateLimit*, X-Rate-Limit*), and the two markers of replays.
	// Defaults to nil: no more than those.
	HeadersNeverStored []string

	// StoreSetCookie stores the cookies that the handler sets. Whoever sends
	// the key again then gets them, too.
	// Defaults to false: only the first answer carries them.
	StoreSetCookie bool

	// ProblemTypeBase precedes the code of a [Problem] in its type.
	// Defaults to the documentation of the problems.
	ProblemTypeBase string

	// ErrorHandler answers what this package refuses or could not do. The
	// Problem it gets is safe to show to a client; the cause, by errors.Unwrap,
	// is not. Returning the Problem gives it to the app's ErrorHandler.
	// Defaults to [SendProblem].
	ErrorHandler func(c *fiber.Ctx, problem *Problem) error
}

// ConfigDefault is the default config. It lacks the two fields that have no
// safe default: Store and Scope.
var ConfigDefault = Config{
	Operation:       methodAndPath,
	KeyHeader:       "Idempotency-Key",
	Methods:         []string{fiber.MethodPost, fiber.MethodPut, fiber.MethodPatch, fiber.MethodDelete},
	Fingerprint:     DefaultFingerprint,
	Judge:           JudgeByStatus,
	RetryAfter:      time.Second,
	ReplayedHeader:  "Idempotency-Replayed",
	ProblemTypeBase: "https://github.com/idempg/idempg/blob/main/docs/problems.md#",
	ErrorHandler:    SendProblem,
}

// GlobalScope is one namespace for all callers, written out on purpose: right
// for a service with a single caller, or with keys that nobody can guess.
func GlobalScope(*fiber.Ctx) (string, error) { return "global", nil }

// configDefault fills in the defaults.
func configDefault(config ...Config) Config {
	if len(config) == 0 {
		return ConfigDefault
	}
	cfg := config[0]
	if cfg.Operation == nil {
		cfg.Operation = ConfigDefault.Operation
	}
	if cfg.KeyHeader == "" {
		cfg.KeyHeader = ConfigDefault.KeyHeader
	}
	if len(cfg.Methods) == 0 {
		cfg.Methods = ConfigDefault.Methods
	}
	if cfg.Fingerprint == nil {
		cfg.Fingerprint = ConfigDefault.Fingerprint
	}
	if cfg.Judge == nil {
		cfg.Judge = ConfigDefault.Judge
	}
	if cfg.RetryAfter == 0 {
		cfg.RetryAfter = ConfigDefault.RetryAfter
	}
	if cfg.ReplayedHeader == "" {
		cfg.ReplayedHeader = ConfigDefault.ReplayedHeader
	}
	if cfg.ProblemTypeBase == "" {
		cfg.ProblemTypeBase = ConfigDefault.ProblemTypeBase
	}
	if cfg.ErrorHandler == nil {
		cfg.ErrorHandler = ConfigDefault.ErrorHandler
	}
	return cfg
}

// check panics when the config cannot work, as Fiber's middlewares do.
func (cfg Config) check() {
	switch {
	case cfg.Store == nil:
		panic("fibermw: Config.Store is nil: make one with idem.New")
	case cfg.Scope == nil:
		panic("fibermw: Config.Scope is nil: return the authenticated tenant or user, or say fibermw.GlobalScope when all callers share their keys")
	case strings.ContainsAny(cfg.KeyHeader, " \t\r\n:"):
		panic(fmt.Sprintf("fibermw: Config.KeyHeader is %q: it must be the name of a header", cfg.KeyHeader))
	case strings.ContainsAny(cfg.ReplayedHeader, " \t\r\n:"):
		panic(fmt.Sprintf("fibermw: Config.ReplayedHeader is %q: it must be the name of a header", cfg.ReplayedHeader))
	case cfg.TTL != 0 && cfg.TTL < time.Millisecond:
		panic(fmt.Sprintf("fibermw: Config.TTL is %v: at least 1ms, or 0 for the Store's", cfg.TTL))
	case cfg.RetryAfter < 0:
		panic(fmt.Sprintf("fibermw: Config.RetryAfter is %v: it cannot be negative", cfg.RetryAfter))
	}
	for _, method := range cfg.Methods {
		if method == "" || strings.ToUpper(method) != method {
			panic(fmt.Sprintf("fibermw: Config.Methods has %q: write methods as in fiber.MethodPost", method))
		}
	}
}
