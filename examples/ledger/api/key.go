package api

import (
	"errors"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/idem"
)

// KeyRecord is what is on record for an idempotency key.
type KeyRecord struct {
	Operation  string    `json:"operation"`
	State      string    `json:"state"`  // completed, or rejected: its writes were undone
	Status     int       `json:"status"` // of the answer that every retry gets
	RecordedAt time.Time `json:"recorded_at"`
	ExpiresAt  time.Time `json:"expires_at"`
}

// answerKey tells what a key did: the transfer that its answer names, if any.
// Without a record it did nothing that lasts, is still at it, or is forgotten.
func answerKey(c *fiber.Ctx, store *idem.Store, ledger book.Book, key string) error {
	if !validKey(key) {
		return book.Invalid("idempotency_key", "must be 1 to %d visible ASCII characters", idem.KeyBytesMax)
	}
	transfers := []book.Transfer{}
	record, err := store.Lookup(c.UserContext(), tenantOf(c), key)
	if errors.Is(err, idem.ErrNotFound) {
		return c.JSON(fiber.Map{"transfers": transfers, "next_cursor": nil, "record": nil})
	}
	if err != nil {
		return err
	}
	location := record.Response.Header.Get(fiber.HeaderLocation)
	if text, found := strings.CutPrefix(location, transferPath); found {
		id, err := uuid.Parse(text)
		if err != nil {
			return err
		}
		transfer, err := ledger.FindTransfer(c.UserContext(), id)
		if err != nil {
			return err
		}
		transfers = append(transfers, transfer)
	}
	return c.JSON(fiber.Map{"transfers": transfers, "next_cursor": nil, "record": KeyRecord{
		Operation: record.Operation, State: string(record.State), Status: record.Response.Status,
		RecordedAt: record.FinishedAt.UTC(), ExpiresAt: record.ExpiresAt.UTC(),
	}})
}
