package api

import (
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/examples/ledger/book"
)

func postAccount(c *fiber.Ctx, ledger book.Book) error {
	body := readBody(c.Body())
	request := book.NewAccount{
		ID:         body.optionalText("id"),
		Currency:   body.text("currency"),
		MinBalance: body.integerOrNull("min_balance"),
	}
	if err := body.end(); err != nil {
		return err
	}
	account, err := ledger.OpenAccount(c.UserContext(), request)
	if err != nil {
		return err
	}
	c.Location("/v1/accounts/" + account.ID)
	return c.Status(http.StatusCreated).JSON(account)
}

func getAccount(c *fiber.Ctx, ledger book.Book) error {
	id := c.Params("id")
	if err := book.ValidateAccountID("id", id); err != nil {
		return err
	}
	account, err := ledger.Account(c.UserContext(), id)
	if err != nil {
		return err
	}
	return c.JSON(account)
}

// getEntries answers a page of a statement, newest first. The next page is
// asked for with the lowest version of this one.
func getEntries(c *fiber.Ctx, ledger book.Book) error {
	id := c.Params("id")
	if err := book.ValidateAccountID("id", id); err != nil {
		return err
	}
	limit, err := queryInteger(c, "limit", book.EntriesPageDefault, book.EntriesPageMax)
	if err != nil {
		return err
	}
	beforeVersion, err := queryInteger(c, "before_version", book.NewestVersion, book.NewestVersion)
	if err != nil {
		return err
	}
	entries, err := ledger.Entries(c.UserContext(), id, int32(limit), beforeVersion)
	if err != nil {
		return err
	}
	return c.JSON(fiber.Map{"entries": entries})
}
