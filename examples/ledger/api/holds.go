package api

import (
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/examples/ledger/book"
)

func postHold(c *fiber.Ctx, ledger book.Book) error {
	body := readBody(c.Body())
	request := book.NewHold{
		From:      body.text("from"),
		To:        body.text("to"),
		Amount:    body.integer("amount"),
		Currency:  body.text("currency"),
		ExpiresIn: body.integer("expires_in"),
	}
	if err := body.end(); err != nil {
		return err
	}
	hold, err := ledger.Hold(c.UserContext(), request)
	if err != nil {
		return err
	}
	c.Location("/v1/holds/" + hold.ID.String())
	return c.Status(http.StatusCreated).JSON(hold)
}

// postCapture creates a transfer, and answers the hold that it ended.
func postCapture(c *fiber.Ctx, ledger book.Book) error {
	id, err := pathUUID(c)
	if err != nil {
		return err
	}
	body := readOptionalBody(c.Body())
	amount := body.optionalInteger("amount")
	if err := body.end(); err != nil {
		return err
	}
	hold, err := ledger.Capture(c.UserContext(), id, amount)
	if err != nil {
		return err
	}
	c.Location(transferPath + hold.TransferID.String())
	return c.Status(http.StatusCreated).JSON(hold)
}

func postVoid(c *fiber.Ctx, ledger book.Book) error {
	id, err := pathUUID(c)
	if err != nil {
		return err
	}
	if err := readOptionalBody(c.Body()).end(); err != nil {
		return err
	}
	hold, err := ledger.Void(c.UserContext(), id)
	if err != nil {
		return err
	}
	return c.JSON(hold)
}

func getHolds(c *fiber.Ctx, ledger book.Book) error {
	page, err := readPage(c)
	if err != nil {
		return err
	}
	holds, next, err := ledger.Holds(c.UserContext(), page)
	return answerPage(c, "holds", holds, next, err)
}

func getHold(c *fiber.Ctx, ledger book.Book) error {
	id, err := pathUUID(c)
	if err != nil {
		return err
	}
	hold, err := ledger.FindHold(c.UserContext(), id)
	if err != nil {
		return err
	}
	return c.JSON(hold)
}
