package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

const (
	redisLockTTL   = 30 * time.Second
	redisRecordTTL = 24 * time.Hour
)

// redisStore is the middleware that teams write on Redis: lock the key with SET
// NX, run the transaction, SET the record, answer duplicates from it. Scoped by
// user, with a SHA-256 of the body to tell another request apart. The lock's SET
// also GETs, so locking and replaying take one round trip each.
//
// What it cannot do: when the process dies between COMMIT and the record, or
// runs longer than the lock, or Redis loses the record, the mutation happens
// twice.
type redisStore struct{ db *redis.Client }

// A value is its kind, the fingerprint, and then the token of the lock's owner, or the
// status and the body of the record.
const (
	redisLocked byte = iota
	redisRecorded
)

const redisValueHeader = 1 + sha256.Size

// unlockScript removes the lock if it is still ours.
var unlockScript = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end
return 0`)

var errRedisRecord = errors.New("the record in Redis is malformed")

// newRedis is redisStore around a transaction.
func newRedis(ctx context.Context, p *place) (*system, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	store := redisStore{p.redis()}
	do := func(ctx context.Context, r request) (answer, error) {
		return store.do(ctx, r.user, r.key, r.payload, func() (a answer, err error) {
			a.status = statusCreated
			err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				a.body, err = r.mutate(ctx, tx)
				return err
			})
			return a, err
		})
	}
	return &system{name: redisOnce, role: peer, floor: bare, newClient: func() client { return do }}, nil
}

// do runs handle once per user and key, as far as Redis can tell.
func (s redisStore) do(ctx context.Context, user, key string, payload []byte, handle func() (answer, error)) (answer, error) {
	name := "idempotency:" + user + ":" + key
	fingerprint := sha256.Sum256(payload)
	lock := append([]byte{redisLocked}, fingerprint[:]...)
	lock = append(lock, rand.Text()...)

	found, err := s.db.SetArgs(ctx, name, lock, redis.SetArgs{Mode: "NX", TTL: redisLockTTL, Get: true}).Result()
	switch {
	case err == nil:
		return redisReplay([]byte(found), fingerprint)
	case !errors.Is(err, redis.Nil):
		return answer{}, fmt.Errorf("lock: %w", err)
	}
	a, err := handle()
	if err != nil {
		// The caller may be gone; the lock must not outlive the attempt.
		return a, errors.Join(err, unlockScript.Run(context.WithoutCancel(ctx), s.db, []string{name}, lock).Err())
	}
	record := append([]byte{redisRecorded}, fingerprint[:]...)
	record = binary.BigEndian.AppendUint16(record, uint16(a.status))
	record = append(record, a.body...)
	if err := s.db.Set(ctx, name, record, redisRecordTTL).Err(); err != nil {
		return a, fmt.Errorf("record: %w", err)
	}
	return a, nil
}

func redisReplay(value []byte, fingerprint [sha256.Size]byte) (answer, error) {
	switch {
	case len(value) < redisValueHeader+2:
		return answer{}, errRedisRecord
	case !bytes.Equal(value[1:redisValueHeader], fingerprint[:]):
		return answer{}, errKeyReused
	case value[0] == redisLocked:
		return answer{status: statusInFlight}, nil
	}
	rest := value[redisValueHeader:]
	return answer{status: int(binary.BigEndian.Uint16(rest)), body: rest[2:]}, nil
}
