package fibermw

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/idem"
)

// New makes the middleware. What follows on the route runs as one unit; it
// takes the transaction from [Tx]. It runs at most once per request, because
// Fiber cannot run the rest of a route twice: a serialization failure is
// answered with 503, and the client may send the same key again.
//
// New panics when config cannot work, and says which field is wrong.
func New(config ...Config) fiber.Handler {
	m := newMiddleware(config...)
	return func(c *fiber.Ctx) error {
		if m.skips(c) || !slices.Contains(m.Methods, c.Method()) || running(c) != nil {
			return c.Next()
		}
		request, err := m.request(c)
		if err != nil {
			return m.refuse(c, err)
		}
		request.AttemptsMax = 1
		return m.run(c, request, (*fiber.Ctx).Next)
	}
}

// middleware is a config at work.
type middleware struct {
	Config
	neverStored headerNames
}

func newMiddleware(config ...Config) *middleware {
	cfg := configDefault(config...)
	cfg.check()
	return &middleware{Config: cfg, neverStored: cfg.neverStored()}
}

func (m *middleware) skips(c *fiber.Ctx) bool { return m.Next != nil && m.Next(c) }

// request makes the idem.Request. It has no key when the client sent none and
// may do so. Nothing in it refers to Fiber's buffers.
func (m *middleware) request(c *fiber.Ctx) (idem.Request, error) {
	request := idem.Request{Operation: strings.Clone(m.Operation(c)), TTL: m.TTL}
	key, err := parseKey(headerLines(c, m.KeyHeader))
	switch {
	case err != nil:
		problem := m.problem(CodeKeyInvalid, nil)
		problem.Detail = "The header " + m.KeyHeader + " " + err.Error() + "."
		return request, problem
	case key == "" && m.AllowMissingKey:
		return request, nil
	case key == "":
		problem := m.problem(CodeKeyMissing, nil)
		problem.Detail = "Send the header " + m.KeyHeader + " with a value that is new for each new request and the same for its retries."
		return request, problem
	}
	request.Key = key

	scope, err := m.Scope(c)
	switch {
	case err != nil:
		return request, err
	case scope == "":
		return request, errors.New("fibermw: Config.Scope returned an empty scope: nobody may share keys by accident")
	}
	request.Scope = strings.Clone(scope)

	if err := readBody(c); err != nil {
		return request, err
	}
	request.Fingerprint, err = m.Fingerprint(c)
	return request, err
}

// refuse answers a request that does not become a unit.
func (m *middleware) refuse(c *fiber.Ctx, err error) error {
	var problem *Problem
	var status *fiber.Error
	switch {
	case errors.As(err, &problem):
		return m.ErrorHandler(c, problem)
	case errors.As(err, &status):
		return err
	}
	return m.ErrorHandler(c, m.problemOf(err))
}

// run runs handler as a unit and answers.
func (m *middleware) run(c *fiber.Ctx, request idem.Request, handler fiber.Handler) error {
	u := m.newUnit(c, handler, request.Key == "")
	defer u.release()
	do := m.Store.Do
	if u.keyless {
		do = m.Store.DoWithoutKey
	}
	result, err := do(u.caller, request, u.mutate)
	if err != nil {
		return u.fail(err)
	}
	u.result = &result
	if result.Replayed || !u.captured { // the answer is not the one that was rendered
		u.before.restore(c)
		m.answer(c, result)
	}
	return nil
}

// methodAndPath is the default operation. A path that no operation may hold
// is named by its digest.
func methodAndPath(c *fiber.Ctx) string {
	operation := c.Method() + " " + c.Path()
	if len(operation) <= idem.OperationBytesMax && utf8.ValidString(operation) && !strings.Contains(operation, "\x00") {
		return operation
	}
	digest := sha256.Sum256([]byte(operation))
	return c.Method() + " sha256:" + hex.EncodeToString(digest[:])
}
