package fibermw

import (
	"context"
	"errors"
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idempg/idempg/idem"
)

// unit is the handler of one request as a mutation.
type unit struct {
	m       *middleware
	c       *fiber.Ctx
	handler fiber.Handler
	keyless bool            // there will be no record
	caller  context.Context // the user context, as it was before
	before  *snapshot       // the response and the locals, as they were before

	ran      bool         // the handler has run before
	tx       pgx.Tx       // not nil while the handler runs
	override *Ending      // by End
	captured bool         // the response is the one that is recorded
	result   *idem.Result // not nil after a good end
}

// errAborted ends a unit whose answer says so by itself.
var errAborted = errors.New("fibermw: the status of the answer aborts the unit")

// handlerError is an error of the handler that aborts the unit.
type handlerError struct{ error }

func (e *handlerError) Unwrap() error { return e.error }

func (m *middleware) newUnit(c *fiber.Ctx, handler fiber.Handler, keyless bool) *unit {
	u := &unit{m: m, c: c, handler: handler, keyless: keyless, caller: c.UserContext()}
	c.Locals(unitKey{}, u)
	u.before = takeSnapshot(c)
	return u
}

func (u *unit) release() { u.before.release() }

// mutate is the idem.Mutation: it runs the handler once, renders its error and
// ends as the answer is judged.
func (u *unit) mutate(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
	if u.ran {
		u.before.restore(u.c)
	}
	u.ran, u.override, u.captured = true, nil, false
	defer u.enter(ctx, tx)()

	err := u.handler(u.c)
	if isDatabaseError(err) {
		var status *fiber.Error
		if idem.Retryable(err) || !errors.As(err, &status) {
			return idem.Response{}, &handlerError{err}
		}
		err = status
	}
	var made *snapshot
	if err != nil {
		made = takeSnapshot(u.c)
		defer made.release()
		u.render(err)
	}

	ending := u.ending(err)
	switch {
	case ending != Commit && ending != Reject && err != nil:
		made.restore(u.c) // Fiber renders the error again, outside
		return idem.Response{}, &handlerError{err}
	case ending != Commit && ending != Reject:
		return idem.Response{}, errAborted
	}
	response, captureErr := u.m.capture(u.c, u.before)
	if captureErr != nil {
		return idem.Response{}, captureErr
	}
	u.captured = true
	if ending == Reject {
		return idem.Response{}, idem.Reject(response, err)
	}
	return response, nil
}

// enter makes the unit the one that runs. Accept-Encoding is hidden, for the
// record must suit clients that accept another one.
func (u *unit) enter(ctx context.Context, tx pgx.Tx) (leave func()) {
	header := &u.c.Request().Header
	encodings := headerLines(u.c, fiber.HeaderAcceptEncoding)
	header.Del(fiber.HeaderAcceptEncoding)
	u.c.SetUserContext(ctx)
	u.tx = tx
	return func() {
		u.tx = nil
		u.c.SetUserContext(u.caller)
		for _, encoding := range encodings {
			header.Add(fiber.HeaderAcceptEncoding, encoding)
		}
	}
}

// render has the app render err, as Fiber would.
func (u *unit) render(err error) {
	if failed := u.c.App().ErrorHandler(u.c, err); failed != nil {
		_ = u.c.SendStatus(http.StatusInternalServerError) // always nil
	}
}

// fail answers a unit that ended with an error: nothing it wrote stays, or
// nobody knows.
func (u *unit) fail(err error) error {
	var own *handlerError
	ownError := errors.As(err, &own)
	switch {
	case errors.Is(err, errAborted):
		return nil // the answer that was rendered
	case ownError && !isDatabaseError(err):
		return own.error
	}
	u.before.restore(u.c)

	var status *fiber.Error
	var outcomeUnknown *idem.OutcomeUnknownError
	switch {
	case ownError && errors.As(err, &status):
		return status
	case u.caller.Err() != nil && !errors.As(err, &outcomeUnknown):
		return u.caller.Err() // whoever set the deadline answers
	}
	problem := u.m.problemOf(err)
	if u.keyless && problem.Code == CodeOutcomeUnknown { // sending it again could carry it out twice
		problem.Detail, problem.RetryAfter = "The request was carried out once or not at all, and it has no key to find out with. Look at the state before you send it again.", 0
	}
	return u.m.ErrorHandler(u.c, problem)
}

// isDatabaseError reports whether the text of err may hold SQL, names of the
// schema, values, or addresses.
func isDatabaseError(err error) bool {
	var (
		pgErr      *pgconn.PgError
		connectErr *pgconn.ConnectError
		configErr  *pgconn.ParseConfigError
		scanErr    pgx.ScanArgError
	)
	return err != nil && (idem.Retryable(err) || errors.As(err, &pgErr) || errors.As(err, &connectErr) ||
		errors.As(err, &configErr) || errors.As(err, &scanErr))
}
