package api

import (
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/examples/ledger/book"
)

// queryInteger reads a number from 1 to most from the query.
func queryInteger(c *fiber.Ctx, name string, absent, most int64) (int64, error) {
	text := c.Query(name)
	if text == "" {
		return absent, nil
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < 1 || number > most {
		return 0, book.Invalid(name, "must be an integer from 1 to %d", most)
	}
	return number, nil
}
