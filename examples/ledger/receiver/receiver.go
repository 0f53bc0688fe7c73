// Package receiver is a consumer of the ledger's events: the example of an inbox.
// It adds up what went through each account. The ledger delivers an event until
// it hears of it, so the same one may come twice, and at the same time; the sums
// and the record that it was handled commit together, under the event's id.
package receiver

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/idempg/idempg/idem"
)

const (
	bodyBytesMax  = 64 << 10
	handleTimeout = 10 * time.Second // less than the ledger waits

	// remember is longer than the ledger goes on delivering, which is three weeks.
	remember = 60 * 24 * time.Hour
)

// Migrations are the receiver's tables, for goose.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// Receiver is the endpoint, a net/http handler.
type Receiver struct {
	store    *idem.Store
	verifier *standardwebhooks.Webhook
}

// New returns an endpoint that remembers in store which events it has handled.
func New(store *idem.Store, verifier *standardwebhooks.Webhook) *Receiver {
	return &Receiver{store, verifier}
}

// event is what the ledger sends. Its data depends on its type.
type event struct {
	Type   string          `json:"type"`
	Tenant string          `json:"tenant"`
	Data   json.RawMessage `json:"data"`
}

// transfer is the part of a posted one that is counted. It has two accounts, or
// legs.
type transfer struct {
	leg
	From string `json:"from"`
	To   string `json:"to"`
	Legs []leg  `json:"legs"`
}

type leg struct {
	Account  string `json:"account"`
	Amount   int64  `json:"amount"` // negative for an account that pays
	Currency string `json:"currency"`
}

func (t transfer) legs() []leg {
	if t.Legs == nil {
		return []leg{{t.From, -t.Amount, t.Currency}, {t.To, t.Amount, t.Currency}}
	}
	return t.Legs
}

// ServeHTTP answers 204 when the event is handled, now or before. After any
// other answer the ledger delivers it again.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, bodyBytesMax))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if err := r.verifier.Verify(body, request.Header); err != nil { // also that it is not older than 5 minutes
		slog.WarnContext(request.Context(), "event refused", "error", err)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(request.Context(), handleTimeout)
	defer cancel()
	result, err := r.store.Do(ctx, idem.Request{
		Scope: "webhooks", Operation: e.Type, Key: request.Header.Get(standardwebhooks.HeaderWebhookID),
		Fingerprint: idem.NewFingerprint(body), TTL: remember,
	}, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		return idem.Response{Status: http.StatusNoContent}, handle(ctx, tx, e)
	})
	if err != nil {
		slog.ErrorContext(ctx, "event not handled", "type", e.Type, "error", err)
		w.WriteHeader(statusOf(err))
		return
	}
	slog.InfoContext(ctx, "event handled", "type", e.Type, "replayed", result.Replayed)
	w.WriteHeader(result.Status)
}

// handle does what the event is for. Types that it does not know are none of
// its business.
func handle(ctx context.Context, tx pgx.Tx, e event) error {
	if e.Type != "transfer.posted" {
		return nil
	}
	var t transfer
	if err := json.Unmarshal(e.Data, &t); err != nil {
		return err
	}
	legs, err := json.Marshal(t.legs())
	if err != nil {
		return err
	}
	// In the order of the accounts, so that crossed transfers do not deadlock.
	_, err = tx.Exec(ctx, `
		insert into receiver.turnover as t (tenant, account, currency, sent, received, transfers)
		select $2, account, currency, greatest(-amount, 0), greatest(amount, 0), 1
		from json_to_recordset($1) as legs (account text, currency text, amount bigint)
		order by account
		on conflict (tenant, account, currency) do update set
			sent = t.sent + excluded.sent, received = t.received + excluded.received, transfers = t.transfers + 1`,
		string(legs), e.Tenant)
	return err
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, idem.ErrInFlight): // the same event is being handled
		return http.StatusConflict
	case errors.Is(err, idem.ErrKeyReused): // another event with the same id
		return http.StatusUnprocessableEntity
	case idem.Retryable(err):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
