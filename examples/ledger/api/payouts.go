package api

import (
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/idem"
)

// postPayout answers before the provider is asked. The key for that comes from
// the key of this request: whoever sends it again cannot make a second charge.
func postPayout(c *fiber.Ctx, ledger book.Book) error {
	body := readBody(c.Body())
	request := book.NewPayout{
		From:        body.text("from"),
		Amount:      body.integer("amount"),
		Currency:    body.text("currency"),
		Destination: body.text("destination"),
		Reference:   body.optionalText("reference"),
		ChargeKey:   uuid.MustParse(idem.DerivedKey(c.UserContext(), "charge")),
	}
	if err := body.end(); err != nil {
		return err
	}
	payout, err := ledger.Payout(c.UserContext(), request)
	if err != nil {
		return err
	}
	c.Location("/v1/payouts/" + payout.ID.String())
	return c.Status(http.StatusAccepted).JSON(payout)
}

func getPayout(c *fiber.Ctx, ledger book.Book) error {
	id, err := pathUUID(c)
	if err != nil {
		return err
	}
	payout, err := ledger.FindPayout(c.UserContext(), id)
	if err != nil {
		return err
	}
	return c.JSON(payout)
}
