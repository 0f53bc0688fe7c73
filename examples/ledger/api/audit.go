package api

import (
	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/examples/ledger/book"
)

func getAudit(c *fiber.Ctx, ledger book.Book) error {
	audit, err := ledger.Audit(c.UserContext())
	if err != nil {
		return err
	}
	return c.JSON(audit)
}
