package main

import (
	"context"
	"crypto/sha256"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const transactionsTable = `
create table bench.transactions (
    scope        text        not null,
    key          text        not null,
    fingerprint  bytea       not null,
    leased_until timestamptz not null,
    status       smallint,
    content_type text,
    body         bytea       compression lz4,
    expires_at   timestamptz not null default now() + interval '24 hours',
    primary key (scope, key)
) with (fillfactor = 70);
create index on bench.transactions (expires_at);`

// transactions keeps keys in Postgres, but in transactions of their own: claim
// and commit, the mutation and commit, record and commit. A claim is a lease,
// because its owner can die; when it outlives the lease, or dies before it has
// recorded, the mutation happens twice.
type transactions struct{ pool *pgxpool.Pool }

func newTransactions(ctx context.Context, p *place) (*system, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	t := transactions{pool}
	return &system{name: "three transactions", role: peer, floor: bare, newClient: func() client { return t.do }}, nil
}

func (t transactions) do(ctx context.Context, r request) (a answer, err error) {
	fingerprint := sha256.Sum256(r.payload)
	claimed, err := t.pool.Exec(ctx, `
		insert into bench.transactions (scope, key, fingerprint, leased_until)
		values ($1, $2, $3, now() + interval '30 seconds') on conflict do nothing`, r.user, r.key, fingerprint[:])
	if err != nil {
		return a, err
	}
	if claimed.RowsAffected() == 0 {
		a, err := t.replay(ctx, r, fingerprint)
		if err != nil || a.status != 0 {
			return a, err
		}
	}
	a.status = statusCreated
	err = pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		a.body, err = r.mutate(ctx, tx)
		return err
	})
	if err != nil {
		_, freeErr := t.pool.Exec(ctx, `delete from bench.transactions
			where scope = $1 and key = $2 and status is null`, r.user, r.key)
		return a, errors.Join(err, freeErr)
	}
	_, err = t.pool.Exec(ctx, `update bench.transactions set status = $3, content_type = $4, body = $5
		where scope = $1 and key = $2`, r.user, r.key, a.status, contentType, a.body)
	return a, err
}

// replay answers from the record, or says that the key is in flight. A claim
// whose lease has run out is taken over: the answer then has no status.
func (t transactions) replay(ctx context.Context, r request, fingerprint [sha256.Size]byte) (a answer, err error) {
	var recorded []byte
	var status *int
	var recordedType *string
	var leased bool
	err = t.pool.QueryRow(ctx, `select fingerprint, status, content_type, body, leased_until > now()
		from bench.transactions where scope = $1 and key = $2`, r.user, r.key).
		Scan(&recorded, &status, &recordedType, &a.body, &leased)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // its owner has just given it up
		return answer{status: statusInFlight}, nil
	case err != nil:
		return a, err
	case string(recorded) != string(fingerprint[:]):
		return a, errKeyReused
	case status != nil:
		a.status = *status
		return a, nil
	case leased:
		return answer{status: statusInFlight}, nil
	}
	taken, err := t.pool.Exec(ctx, `update bench.transactions set leased_until = now() + interval '30 seconds'
		where scope = $1 and key = $2 and status is null and leased_until <= now()`, r.user, r.key)
	if err == nil && taken.RowsAffected() == 0 {
		a.status = statusInFlight
	}
	return a, err
}
