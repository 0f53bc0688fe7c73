package api

import (
	"math"
	"net/http"
	"time"

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

func getAccounts(c *fiber.Ctx, ledger book.Book) error {
	page, err := readPage(c)
	if err != nil {
		return err
	}
	accounts, next, err := ledger.Accounts(c.UserContext(), page)
	return answerPage(c, "accounts", accounts, next, err)
}

// getAccount answers an account as it is, or as it was at a version.
func getAccount(c *fiber.Ctx, ledger book.Book) error {
	id := c.Params("id")
	if err := book.ValidateAccountID("id", id); err != nil {
		return err
	}
	if c.Query("at_version") != "" {
		version, err := queryInteger(c, "at_version", 0, math.MaxInt64, 0)
		if err != nil {
			return err
		}
		account, err := ledger.AccountAt(c.UserContext(), id, version)
		if err != nil {
			return err
		}
		return c.JSON(account)
	}
	account, err := ledger.Account(c.UserContext(), id)
	if err != nil {
		return err
	}
	return c.JSON(account)
}

func getEntries(c *fiber.Ctx, ledger book.Book) error {
	id := c.Params("id")
	if err := book.ValidateAccountID("id", id); err != nil {
		return err
	}
	page, err := readPage(c)
	if err != nil {
		return err
	}
	entries, next, err := ledger.Entries(c.UserContext(), id, page)
	return answerPage(c, "entries", entries, next, err)
}

// getStatement answers a period, which goes from the beginning until now where
// the request does not say.
func getStatement(c *fiber.Ctx, ledger book.Book) error {
	id := c.Params("id")
	if err := book.ValidateAccountID("id", id); err != nil {
		return err
	}
	from, err := queryTime(c, "from", time.Time{})
	if err != nil {
		return err
	}
	to, err := queryTime(c, "to", farFuture)
	if err != nil {
		return err
	}
	if to.Before(from) {
		return book.Invalid("to", "must not be before from")
	}
	page, err := readPage(c)
	if err != nil {
		return err
	}
	statement, err := ledger.Statement(c.UserContext(), id, from, to, page)
	if err != nil {
		return err
	}
	return c.JSON(statement)
}

// farFuture is after every time that a database may have.
var farFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
