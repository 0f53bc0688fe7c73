package fibermw

import "github.com/gofiber/fiber/v2"

// Ending is how a unit ends.
type Ending uint8

// The three endings. Commit and Reject promise the answer to every retry;
// Abort promises nothing, whatever the status says.
const (
	Abort  Ending = iota // undo the writes, keep nothing, free the key: a retry runs again
	Reject               // undo the writes, record the answer: a retry is refused the same way
	Commit               // commit the writes with the record of the answer
)

// JudgeByStatus is the default Judge:
//
//	2xx, 3xx                 Commit
//	401, 403, 408, 425, 429  Abort, for they ask for the same request again
//	other 4xx                Reject
//	5xx and anything else    Abort
//
// A refusal is recorded because a client that was told no may act on it under a
// new key; a delayed duplicate of the old request must not succeed after that.
func JudgeByStatus(c *fiber.Ctx) Ending {
	switch status := c.Response().StatusCode(); {
	case status == fiber.StatusUnauthorized, status == fiber.StatusForbidden,
		status == fiber.StatusRequestTimeout, status == fiber.StatusTooEarly, status == fiber.StatusTooManyRequests:
		return Abort
	case status >= 200 && status < 400:
		return Commit
	case status >= 400 && status < 500:
		return Reject
	}
	return Abort
}

// End overrides Judge for this request: for example, Commit for a decline that
// is answered with 402 and keeps its rows. It holds for the run of the handler
// that calls it. An error that renders as 5xx aborts all the same. End panics
// outside a unit.
func End(c *fiber.Ctx, ending Ending) { mustRun(c, "End").override = &ending }

// ending judges the answer that was rendered, from err if that is not nil.
func (u *unit) ending(err error) Ending {
	switch {
	case err != nil && u.c.Response().StatusCode() >= fiber.StatusInternalServerError:
		return Abort // nobody decided this answer
	case u.override != nil:
		return *u.override
	}
	return u.m.Judge(u.c)
}
