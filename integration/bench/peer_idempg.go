package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/idem/replaycache"
)

// newCore is Store.Do with the defaults.
func newCore(ctx context.Context, p *place) (*system, error) {
	return newStoreSystem(ctx, p, core, idem.Config{})
}

// newWaiting is Store.Do with a policy for duplicates: they wait for the answer.
func newWaiting(ctx context.Context, p *place) (*system, error) {
	return newStoreSystem(ctx, p, coreWaiting, idem.Config{ClaimWait: 10 * time.Second})
}

// newCached is Store.Do that answers retries from memory where it can.
func newCached(ctx context.Context, p *place) (*system, error) {
	cache, err := replaycache.New(replaycache.Config{BytesMax: cacheBytes})
	if err != nil {
		return nil, err
	}
	return newStoreSystem(ctx, p, coreCache, idem.Config{ReplayCache: cache})
}

const cacheBytes = 64 << 20

func newStoreSystem(ctx context.Context, p *place, name string, config idem.Config) (*system, error) {
	store, err := newStore(ctx, p, config)
	if err != nil {
		return nil, err
	}
	do := func(ctx context.Context, r request) (answer, error) {
		return answerOf(r.do(ctx, store))
	}
	return &system{name: name, role: ours, floor: bare, newClient: func() client { return do }}, nil
}

// newDoBatch is Store.DoBatch: the same two statements in one round trip with the
// claim, the record and COMMIT. The answer is put together by the database.
func newDoBatch(ctx context.Context, p *place) (*system, error) {
	store, err := newStore(ctx, p, idem.Config{})
	if err != nil {
		return nil, err
	}
	do := func(ctx context.Context, r request) (answer, error) {
		return answerOf(store.DoBatch(ctx, r.keyed(), r.batch()))
	}
	return &system{name: "idempg DoBatch", role: ours, floor: bare, newClient: func() client { return do }}, nil
}

func newStore(ctx context.Context, p *place, config idem.Config) (*idem.Store, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	return idem.New(pool, config)
}

var jsonHeader = http.Header{"Content-Type": {contentType}}

// keyed is the request for a Store.
func (r request) keyed() idem.Request {
	return idem.Request{Scope: r.user, Operation: operation, Key: r.key, Fingerprint: idem.NewFingerprint(r.payload)}
}

// do carries the request out once, by Store.Do.
func (r request) do(ctx context.Context, store *idem.Store) (idem.Result, error) {
	return store.Do(ctx, r.keyed(), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		body, err := r.mutate(ctx, tx)
		return idem.Response{Status: statusCreated, Header: jsonHeader, Body: body}, err
	})
}

// batch is request.mutate as a Batch.
func (r request) batch() *idem.Batch {
	b := new(idem.Batch)
	b.Queue(updateAccount, r.transfer.Account, r.transfer.Cents)
	b.Respond(jsonHeader, `insert into bench.transfers (account, cents, key) values ($1, $2, $3)
		returning 201, $4::text || id || $5::text`,
		r.transfer.Account, r.transfer.Cents, r.key, answerHead, renderRest(r.transfer.BytesWant))
	return b
}

func answerOf(result idem.Result, err error) (answer, error) {
	if errors.Is(err, idem.ErrInFlight) {
		return answer{status: statusInFlight}, nil
	}
	return answer{status: result.Status, body: result.Body}, err
}
