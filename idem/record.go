package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Record is what the database keeps for one key.
type Record struct {
	Scope       string
	Key         string
	Operation   string
	Fingerprint Fingerprint
	Response    Response
	State       State
	CreatedAt   time.Time // when the key was claimed
	FinishedAt  time.Time // when the outcome was written, in the same transaction
	ExpiresAt   time.Time // when the record stops answering
}

// Lookup returns the live record of a key: what a retry would be answered with.
// It returns [ErrNotFound] when there is none: the key was never used, its
// mutation was aborted, is still running, or the record has expired. It runs
// one statement and locks nothing.
func (s *Store) Lookup(ctx context.Context, scope, key string) (Record, error) {
	if err := validateText("Scope", scope, 1, ScopeBytesMax); err != nil {
		return Record{}, err
	}
	if err := validateText("Key", key, 1, KeyBytesMax); err != nil {
		return Record{}, err
	}
	var row recordRow
	id := pgtype.UUID{Bytes: newIdentity(scope, key).recordID(), Valid: true}
	err := s.pool.QueryRow(ctx, lookupSQL, id).Scan(row.destinations()...)
	if errors.Is(err, pgx.ErrNoRows) {
		return Record{}, ErrNotFound
	}
	if err != nil {
		return Record{}, explain(err)
	}
	return row.record()
}

// result answers from the record.
func (r Record) result() Result {
	return Result{
		Response: r.Response, State: r.State, Replayed: true,
		RecordedAt: r.FinishedAt, ExpiresAt: r.ExpiresAt,
	}
}

// recordRow is a row of idem.records as it is read. All but the two times are
// null for a claim.
type recordRow struct {
	createdAt, expiresAt  pgtype.Timestamptz
	scope, key, operation pgtype.Text
	fingerprint           []byte
	state                 pgtype.Text
	status                pgtype.Int2
	headers, body         []byte
	finishedAt            pgtype.Timestamptz
}

// destinations are in the order of the columns of claimSQL and lookupSQL.
func (r *recordRow) destinations() []any {
	return []any{
		&r.createdAt, &r.expiresAt, &r.scope, &r.key, &r.operation, &r.fingerprint,
		&r.state, &r.status, &r.headers, &r.body, &r.finishedAt,
	}
}

// record checks that the row is whole. A committed row in an unknown state is
// an error, never a new request.
func (r *recordRow) record() (Record, error) {
	state := State(r.state.String)
	if state != StateCompleted && state != StateRejected || len(r.fingerprint) != len(Fingerprint{}) {
		return Record{}, fmt.Errorf("idem: the record of this key has state %q and a fingerprint of %d bytes, which this version does not know: was it written by a newer one?",
			r.state.String, len(r.fingerprint))
	}
	header, err := decodeHeader(r.headers)
	if err != nil {
		return Record{}, err
	}
	return Record{
		Scope: r.scope.String, Key: r.key.String, Operation: r.operation.String,
		Fingerprint: Fingerprint(r.fingerprint),
		Response:    Response{Status: int(r.status.Int16), Header: header, Body: r.body},
		State:       state,
		CreatedAt:   r.createdAt.Time, FinishedAt: r.finishedAt.Time, ExpiresAt: r.expiresAt.Time,
	}, nil
}
