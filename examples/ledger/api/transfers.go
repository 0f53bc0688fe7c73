package api

import (
	"fmt"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/idem"
)

const transferPath = "/v1/transfers/"

func postTransfer(c *fiber.Ctx, ledger book.Book) error {
	body := readBody(c.Body())
	request := takeTransfer(body)
	if err := body.end(); err != nil {
		return err
	}
	transfer, err := ledger.Transfer(c.UserContext(), request)
	return answerTransfer(c, transfer, err)
}

func answerTransfer(c *fiber.Ctx, transfer book.Transfer, err error) error {
	if err != nil {
		return err
	}
	c.Location(transferPath + transfer.ID.String())
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

func postLinkedTransfer(c *fiber.Ctx, ledger book.Book) error {
	body := readBody(c.Body())
	request := book.NewLinkedTransfer{
		Reference: body.optionalText("reference"),
		Metadata:  body.object("metadata"),
	}
	for i, raw := range body.list("legs") {
		leg := readItem(fmt.Sprintf("legs[%d]", i), raw)
		request.Legs = append(request.Legs, book.NewLeg{
			Account: leg.text("account"), Amount: leg.integer("amount"), Currency: leg.text("currency"),
		})
		if err := leg.end(); err != nil {
			return err
		}
	}
	if err := body.end(); err != nil {
		return err
	}
	transfer, err := ledger.LinkedTransfer(c.UserContext(), request)
	return answerTransfer(c, transfer, err)
}

func postReversal(c *fiber.Ctx, ledger book.Book) error {
	id, err := pathUUID(c)
	if err != nil {
		return err
	}
	body := readOptionalBody(c.Body())
	request := book.NewReversal{ID: id, Reference: body.optionalText("reference"), Metadata: body.object("metadata")}
	if err := body.end(); err != nil {
		return err
	}
	transfer, err := ledger.Reverse(c.UserContext(), request)
	return answerTransfer(c, transfer, err)
}

// getTransfers lists transfers, or tells what a key did.
func getTransfers(store *idem.Store) func(*fiber.Ctx, book.Book) error {
	return func(c *fiber.Ctx, ledger book.Book) error {
		if key := c.Query("idempotency_key"); key != "" {
			return answerKey(c, store, ledger, key)
		}
		page, err := readPage(c)
		if err != nil {
			return err
		}
		transfers, next, err := ledger.Transfers(c.UserContext(), page)
		return answerPage(c, "transfers", transfers, next, err)
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
