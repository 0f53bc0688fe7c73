package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

// newCore is Store.Do with the defaults.
func newCore(ctx context.Context, p *place) (*system, error) {
	s, err := newStoreSystem(ctx, p, core, idem.Config{})
	if s != nil {
		s.inFlight = "409"
	}
	return s, err
}

// newWaiting is Store.Do with a policy for duplicates: they wait for the answer.
func newWaiting(ctx context.Context, p *place) (*system, error) {
	s, err := newStoreSystem(ctx, p, coreWaiting, idem.Config{ClaimWait: 10 * time.Second})
	if s != nil {
		s.inFlight = "waits"
	}
	return s, err
}

func newStoreSystem(ctx context.Context, p *place, name string, config idem.Config) (*system, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	store, err := idem.New(pool, config)
	if err != nil {
		return nil, err
	}
	do := func(ctx context.Context, r request) (answer, error) {
		result, err := store.Do(ctx, idem.Request{
			Scope: r.user, Operation: operation, Key: r.key, Fingerprint: idem.NewFingerprint(r.payload),
		}, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			body, err := r.mutate(ctx, tx)
			return idem.Response{Status: statusCreated, Header: http.Header{"Content-Type": {contentType}}, Body: body}, err
		})
		if errors.Is(err, idem.ErrInFlight) {
			return answer{status: statusInFlight}, nil
		}
		return answer{status: result.Status, body: result.Body}, err
	}
	return &system{name: name, floor: bare, newClient: func() client { return do }}, nil
}
