// Package provider is the payment provider that payouts go to: a client, and a
// fake that fails as real ones do.
package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	// Timeout is how long a call may take, by default.
	Timeout = 10 * time.Second

	answerBytesMax = 64 << 10
)

// Charge asks the provider to pay an amount, in the minor unit of the currency.
type Charge struct {
	Amount      int64   `json:"amount"`
	Currency    string  `json:"currency"`
	Destination string  `json:"destination"`
	Reference   *string `json:"reference,omitempty"`
}

// Paid is what the provider says of a charge that it made.
type Paid struct {
	ID string `json:"id"`
}

// RefusedError says that the provider made no charge and never will for this
// key.
type RefusedError struct {
	Reason string `json:"reason"`
}

// Error tells the reason.
func (e *RefusedError) Error() string { return "refused by the provider: " + e.Reason }

// Client calls a provider.
type Client struct {
	url  string
	http *http.Client
}

// NewClient returns a client of the provider at address. A call takes at most
// timeout.
func NewClient(address *url.URL, timeout time.Duration) *Client {
	return &Client{url: address.JoinPath("charges").String(), http: &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Charge makes a charge, once for all calls with the same key. *RefusedError is
// the provider's last word. After any other error the charge may have been made:
// call again with the same key to find out.
func (c *Client) Charge(ctx context.Context, key string, charge Charge) (Paid, error) {
	body, err := json.Marshal(charge)
	if err != nil {
		return Paid{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return Paid{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response, err := c.http.Do(request)
	if err != nil {
		if withURL, ok := errors.AsType[*url.Error](err); ok {
			err = withURL.Err // errors are kept with the job, and the URL may hold a password
		}
		return Paid{}, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
	if err != nil {
		return Paid{}, err
	}
	switch response.StatusCode {
	case http.StatusCreated:
		var paid Paid
		if err := json.Unmarshal(answer, &paid); err != nil || paid.ID == "" {
			return Paid{}, errors.New("the provider answered 201 without the id of a charge")
		}
		return paid, nil
	case http.StatusPaymentRequired:
		refused := &RefusedError{}
		if err := json.Unmarshal(answer, refused); err != nil || refused.Reason == "" {
			refused.Reason = "no reason given"
		}
		return Paid{}, refused
	}
	return Paid{}, fmt.Errorf("the provider answered %d", response.StatusCode)
}
