package api

import (
	"strconv"
	"time"

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

// readPage reads which part of a list is asked for.
func readPage(c *fiber.Ctx) (book.Page, error) {
	items, err := queryInteger(c, "limit", 1, book.PageItemsMax, book.PageItemsDefault)
	return book.Page{Items: int(items), Cursor: c.Query("cursor")}, err
}

// answerPage answers a part of a list, which is called name, and where the next
// one begins.
func answerPage[T any](c *fiber.Ctx, name string, items []T, next *string, err error) error {
	if err != nil {
		return err
	}
	return c.JSON(fiber.Map{name: items, "next_cursor": next})
}

// queryInteger reads a number from least to most from the query.
func queryInteger(c *fiber.Ctx, name string, least, most, absent int64) (int64, error) {
	text := c.Query(name)
	if text == "" {
		return absent, nil
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < least || number > most {
		return 0, book.Invalid(name, "must be an integer from %d to %d", least, most)
	}
	return number, nil
}

// queryTime reads a time from the query.
func queryTime(c *fiber.Ctx, name string, absent time.Time) (time.Time, error) {
	text := c.Query(name)
	if text == "" {
		return absent, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, book.Invalid(name, "must be a time such as 2026-01-31T00:00:00Z (RFC 3339), with + written as %%2B")
	}
	return at, nil
}
