package fibermw

import (
	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

// unitKey is where the unit is among the locals. Its type keeps it apart from
// all keys of others.
type unitKey struct{}

// Tx returns the transaction of the unit that the handler runs in. Only the
// library ends it; see [idem.Mutation]. It panics outside a unit, for a
// statement without the transaction would be one without protection.
func Tx(c *fiber.Ctx) pgx.Tx { return mustRun(c, "Tx").tx }

// Result returns what the unit of this request ended with. It reports false
// before the unit has ended, and when it ended with an error or was aborted.
// It is for middleware that runs after this one, such as a log.
func Result(c *fiber.Ctx) (idem.Result, bool) {
	u, _ := c.Locals(unitKey{}).(*unit)
	if u == nil || u.result == nil {
		return idem.Result{}, false
	}
	return *u.result, true
}

// running returns the unit that runs now for this request, or nil.
func running(c *fiber.Ctx) *unit {
	u, _ := c.Locals(unitKey{}).(*unit)
	if u == nil || u.tx == nil {
		return nil
	}
	return u
}

func mustRun(c *fiber.Ctx, function string) *unit {
	u := running(c)
	if u == nil {
		panic("fibermw: " + function + " was called outside a unit: mount fibermw.New before the handler, with the method in Config.Methods, or use fibermw.Handle")
	}
	return u
}
