package storm

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
)

// accounts are those that the clients use.
var accounts = append([]string{bank}, customers...)

// openAccounts opens the bank's account and those of the customers.
func (c *client) openAccounts(ctx context.Context) error {
	for _, id := range accounts {
		least := new(int64)
		if id == bank {
			least = nil
		}
		body := encode(map[string]any{"id": id, "currency": currency, "min_balance": least})
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.urls[0]+"/v1/accounts", bytes.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Idempotency-Key", "open-"+id)
		request.Header.Set("Content-Type", "application/json")
		r, err := c.do(request)
		if err != nil {
			return err
		}
		if r.status != http.StatusCreated {
			return fmt.Errorf("open account %s: %d %s", id, r.status, r.body)
		}
	}
	return nil
}
