package jobs

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/riverqueue/river"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/idempg/idempg/examples/ledger/book"
)

const (
	webhookTimeout  = 15 * time.Second
	answerBytesRead = 64 << 10 // so that the connection can be used again

	secretPrefix   = "whsec_"
	secretBytesMin = 24
	secretBytesMax = 64
)

// Signer signs events, and verifies signatures.
type Signer = standardwebhooks.Webhook

// ParseSecret reads a secret: "whsec_" and 24 to 64 bytes in base64. Its errors
// do not repeat it.
func ParseSecret(secret string) (*Signer, error) {
	encoded, prefixed := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !prefixed || err != nil || len(key) < secretBytesMin || len(key) > secretBytesMax {
		return nil, fmt.Errorf("must be %q and %d to %d bytes in base64", secretPrefix, secretBytesMin, secretBytesMax)
	}
	return standardwebhooks.NewWebhookRaw(key)
}

// Webhook is an endpoint that is told of events, as Standard Webhooks has it
// (https://www.standardwebhooks.com).
type Webhook struct {
	url    string
	signer *Signer
	http   *http.Client
}

// NewWebhook returns the endpoint at address, an http or https URL.
func NewWebhook(address *url.URL, signer *Signer) *Webhook {
	return &Webhook{url: address.String(), signer: signer, http: &http.Client{
		Timeout: webhookTimeout,
		// An endpoint must not send the ledger to other hosts of its network.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// delivery is an event on its way.
type delivery struct {
	Event book.Event `json:"event"`
}

func (delivery) Kind() string { return "webhook" }

type deliverer struct {
	river.WorkerDefaults[delivery]
	webhook *Webhook
}

func (d *deliverer) Work(ctx context.Context, job *river.Job[delivery]) error {
	if d.webhook == nil {
		return errors.New("no endpoint is configured any more")
	}
	return d.webhook.deliver(ctx, job.Args.Event)
}

// deliver posts e. Any answer but 2xx, and none within 15 seconds, is an error,
// after which e is delivered again: the endpoint may have handled it.
func (w *Webhook) deliver(ctx context.Context, e book.Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	now := time.Now()
	signature, err := w.signer.Sign(e.ID.String(), now, body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "ledger")
	request.Header.Set(standardwebhooks.HeaderWebhookID, e.ID.String())
	request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)

	response, err := w.http.Do(request)
	if err != nil {
		if withURL, ok := errors.AsType[*url.Error](err); ok {
			err = withURL.Err // errors are kept with the job, and the URL may hold a password
		}
		return err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, answerBytesRead) // the status has said it all
	switch {
	case response.StatusCode >= 200 && response.StatusCode <= 299:
		return nil
	case response.StatusCode == http.StatusGone: // the one answer that asks for no more
		return river.JobCancel(errors.New("the endpoint is gone"))
	}
	return fmt.Errorf("the endpoint answered %d", response.StatusCode)
}
