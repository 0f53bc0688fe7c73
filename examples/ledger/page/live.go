package page

import (
	"errors"
	"fmt"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/idem"
)

const (
	accountsMax = 50
	keysMax     = 50
)

type live struct {
	Accounts []account
	Keys     []keyState
}

// keyState is what the database knows of a key. While the first request with it
// runs there is no record, as there is none of a key that was never used.
type keyState struct {
	Key    string
	Record *idem.Record
}

// Live returns a handler that answers with fragments of HTML: the first
// accounts of a book, and the record of each parameter "key" of the query, of
// which there may be 50. The keys are looked up in the scope of the caller.
func Live(store *idem.Store, scope func(*fiber.Ctx) (string, error)) func(*fiber.Ctx, book.Book) error {
	return func(c *fiber.Ctx, ledger book.Book) error {
		owner, err := scope(c)
		if err != nil {
			return err
		}
		keys := c.Context().QueryArgs().PeekMulti("key")
		if len(keys) > keysMax {
			return fiber.NewError(fiber.StatusBadRequest, fmt.Sprintf("more than %d keys", keysMax))
		}
		accounts, _, err := ledger.Accounts(c.UserContext(), book.Page{Items: accountsMax})
		if err != nil {
			return err
		}
		var shown live
		for _, a := range accounts {
			shown.Accounts = append(shown.Accounts, account{a, decimals(a.Currency)})
		}
		for _, key := range keys {
			state := keyState{Key: string(key)}
			record, err := store.Lookup(c.UserContext(), owner, state.Key)
			var invalid *idem.InvalidRequestError
			switch {
			case err == nil:
				state.Record = &record
			case errors.As(err, &invalid):
				return fiber.NewError(fiber.StatusBadRequest, invalid.Error())
			case !errors.Is(err, idem.ErrNotFound):
				return err
			}
			shown.Keys = append(shown.Keys, state)
		}
		c.Set(fiber.HeaderCacheControl, "no-store")
		return render(c, "live.html", shown)
	}
}
