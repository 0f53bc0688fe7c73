package api

import (
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/examples/ledger/book"
)

func postTransfer(c *fiber.Ctx, ledger book.Book) error {
	body := readBody(c.Body())
	request := takeTransfer(body)
	if err := body.end(); err != nil {
		return err
	}
	transfer, err := ledger.Transfer(c.UserContext(), request)
	if err != nil {
		return err
	}
	c.Location("/v1/transfers/" + transfer.ID.String())
	return c.Status(http.StatusCreated).JSON(transfer)
}

func takeTransfer(body *body) book.NewTransfer {
	return book.NewTransfer{
		From:      body.text("from"),
		To:        body.text("to"),
		Amount:    body.integer("amount"),
		Currency:  body.text("currency"),
		Reference: body.optionalText("reference"),
		Metadata:  body.object("metadata"),
	}
}

func getTransfer(c *fiber.Ctx, ledger book.Book) error {
	id, err := pathUUID(c)
	if err != nil {
		return err
	}
	transfer, err := ledger.FindTransfer(c.UserContext(), id)
	if err != nil {
		return err
	}
	return c.JSON(transfer)
}
