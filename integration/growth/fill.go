package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idempg/idempg/idem"
)

const (
	operation = "POST /v1/transfers"
	scopes    = 1000

	fillBatchRows = 50_000

	lifetime = 24 * time.Hour
)

// ledger names a set of keys. Each is a random UUID, as clients send them, yet
// the same number always gives the same key.
type ledger uint64

const (
	filledKeys ledger = iota + 1
	calledKeys
	expiredKeys
)

// request is the n-th of the ledger.
func (l ledger) request(n int) idem.Request {
	random := rand.New(rand.NewPCG(uint64(l), uint64(n)))
	key := pgtype.UUID{Valid: true}
	binary.BigEndian.PutUint64(key.Bytes[:8], random.Uint64()&^0xf000|0x4000) // version 4
	binary.BigEndian.PutUint64(key.Bytes[8:], random.Uint64()>>2|1<<63)
	return idem.Request{
		Scope: fmt.Sprintf("tenant-%04d", random.IntN(scopes)), Operation: operation, Key: key.String(),
		Fingerprint: idem.NewFingerprint(fmt.Appendf(nil, `{"from":"cash","to":"alice","cents":%d}`, n)),
	}
}

var header = http.Header{"Content-Type": {"application/json"}}

const headerJSON = `{"Content-Type": ["application/json"]}`

func body(n int) []byte {
	return fmt.Appendf(nil, `{"id":%d,"from":"cash","to":"alice","cents":%d,"currency":"EUR","status":"posted"}`, n, n)
}

// recordID spells what package idem makes of a scope and a key. The replays
// that the program measures would fail if it did not.
func recordID(scope, key string) [16]byte {
	var framed []byte
	for _, part := range []string{"idempg.key", scope, key} {
		framed = binary.BigEndian.AppendUint64(framed, uint64(len(part)))
		framed = append(framed, part...)
	}
	digest := sha256.Sum256(framed)
	return [16]byte(digest[:16])
}

// fill adds records until there are size of them, as first requests would have
// left them just now. So the newest record is always the last to expire.
func (d *database) fill(ctx context.Context, size int) error {
	err := d.copyRecords(ctx, filledKeys, d.filled, size, func(int) time.Time { return time.Now() })
	d.filled = size
	return err
}

// fillExpired adds records from one number up to another that have expired.
func (d *database) fillExpired(ctx context.Context, from, to int) error {
	oldest := time.Now().Add(-2 * lifetime)
	return d.copyRecords(ctx, expiredKeys, from, to, func(n int) time.Time { return oldest.Add(time.Duration(n) * 10 * time.Millisecond) })
}

// copyRecords copies the records with the numbers from up to to, a batch per
// transaction. They go in one by one in the order of their times, so that the
// indexes grow as they do under first requests.
func (d *database) copyRecords(ctx context.Context, keys ledger, from, to int, createdAt func(n int) time.Time) error {
	for first := from; first < to; first += fillBatchRows {
		n, end := first-1, min(to, first+fillBatchRows)
		_, err := d.async.CopyFrom(ctx, pgx.Identifier{"idem", "records"}, recordColumns, pgx.CopyFromFunc(func() ([]any, error) {
			if n++; n == end {
				return nil, nil
			}
			return recordRow(keys, n, createdAt(n)), nil
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

var recordColumns = []string{
	"id", "created_at", "expires_at", "finished_at", "status", "unfinished", "state",
	"scope", "key", "operation", "fingerprint", "headers", "body",
}

func recordRow(keys ledger, n int, createdAt time.Time) []any {
	r := keys.request(n)
	return []any{
		recordID(r.Scope, r.Key), createdAt, createdAt.Add(lifetime), createdAt.Add(10 * time.Millisecond), int16(http.StatusCreated), nil, "completed",
		r.Scope, r.Key, r.Operation, r.Fingerprint[:], headerJSON, body(n),
	}
}
