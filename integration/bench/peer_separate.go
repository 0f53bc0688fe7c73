package main

import (
	"context"
	"crypto/sha256"
	"errors"

	"github.com/jackc/pgx/v5"
)

var errKeyReused = errors.New("the key was used for another request")

const separateTable = `
create table bench.separate (
    scope        text        not null,
    key          text        not null,
    fingerprint  bytea       not null,
    status       smallint,
    content_type text,
    body         bytea       compression lz4,
    created_at   timestamptz not null default now(),
    expires_at   timestamptz not null default now() + interval '24 hours',
    primary key (scope, key)
) with (fillfactor = 70);
create index on bench.separate (expires_at);`

// newSeparate is the key in the business transaction, one statement after the
// other: begin, insert the key, the mutation, update the key's row, commit. A
// duplicate waits at the insert until the first has ended, and then reads.
func newSeparate(ctx context.Context, p *place) (*system, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	do := func(ctx context.Context, r request) (a answer, err error) {
		fingerprint := sha256.Sum256(r.payload)
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			inserted, err := tx.Exec(ctx, `insert into bench.separate (scope, key, fingerprint) values ($1, $2, $3)
				on conflict do nothing`, r.user, r.key, fingerprint[:])
			if err != nil {
				return err
			}
			if inserted.RowsAffected() == 0 {
				a, err = separateReplay(ctx, tx, r, fingerprint)
				return err
			}
			a.status = statusCreated
			if a.body, err = r.mutate(ctx, tx); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `update bench.separate set status = $3, content_type = $4, body = $5
				where scope = $1 and key = $2`, r.user, r.key, a.status, contentType, a.body)
			return err
		})
		return a, err
	}
	return &system{name: "separate statements", role: peer, floor: bare, newClient: func() client { return do }}, nil
}

func separateReplay(ctx context.Context, tx pgx.Tx, r request, fingerprint [sha256.Size]byte) (a answer, err error) {
	var recorded []byte
	var recordedType string
	err = tx.QueryRow(ctx, `select fingerprint, status, content_type, body from bench.separate
		where scope = $1 and key = $2`, r.user, r.key).Scan(&recorded, &a.status, &recordedType, &a.body)
	if err == nil && string(recorded) != string(fingerprint[:]) {
		err = errKeyReused
	}
	return a, err
}
