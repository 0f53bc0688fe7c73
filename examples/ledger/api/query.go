package api

import (
	"strconv"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"github.com/idempg/idempg/examples/ledger/book"
)

// pathUUID reads the id in the path, which has one spelling.
func pathUUID(c *fiber.Ctx) (uuid.UUID, error) {
	id, err := uuid.Parse(c.Params("id"))
	if err != nil || len(c.Params("id")) != len(id.String()) {
		return uuid.UUID{}, book.Invalid("id", "must be a UUID")
	}
	return id, nil
}

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
