package idem

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ReplayCache keeps recorded answers in the memory of this process: a retry
// that finds its answer there takes no connection and no round trip. Package
// replaycache has one that is bounded in bytes. A cache may forget whatever it
// likes at any time, and must be safe for concurrent use. It decides nothing:
// the Store checks what it gets, and gives it committed records alone.
//
// Stores may share a cache: those on one pool share their answers, those on
// different pools share only the memory.
type ReplayCache interface {
	// Get returns what Set was given for key, or nil.
	Get(key ReplayKey) *CachedReplay

	// Set keeps replay for key, in place of an older one, or does nothing.
	Set(key ReplayKey, replay *CachedReplay)
}

// ReplayKey names a record to a [ReplayCache]: the pool that leads to its
// database, and the digest of its scope and key.
type ReplayKey struct {
	pool *pgxpool.Pool
	id   identity
}

// CachedReplay is a copy of a record's answer, with what it takes to decide
// whether it answers a request. It does not change.
type CachedReplay struct {
	scope, key, operation string
	fingerprint           Fingerprint
	result                Result // Header is in fields
	fields                []cachedField
	bytes                 int
	deadline              time.Time // by the local clock, see clockReading
}

// cachedField is one name of an http.Header: a map would take several times the
// memory.
type cachedField struct {
	name   string
	values []string
}

// What a CachedReplay takes beside its text and body, on a 64-bit machine.
const (
	replayBytes = 256
	fieldBytes  = 40
	valueBytes  = 16
)

// Bytes is how much memory the answer takes: its scope, key, operation, headers
// and body, and 256 bytes for the rest.
func (r *CachedReplay) Bytes() int { return r.bytes }

// newCachedReplay copies what the record of request answers.
func newCachedReplay(request Request, result Result, deadline time.Time) *CachedReplay {
	text, values := len(request.Scope)+len(request.Key)+len(request.Operation), 0
	for name, v := range result.Header {
		text, values = text+len(name), values+len(v)
		for _, value := range v {
			text += len(value)
		}
	}
	var copies strings.Builder // of all strings, in one piece: the caller's may be views of a buffer that is reused
	copies.Grow(text)
	keep := func(s string) string {
		start := copies.Len()
		copies.WriteString(s)
		return copies.String()[start:]
	}
	r := &CachedReplay{
		scope: keep(request.Scope), key: keep(request.Key), operation: keep(request.Operation),
		fingerprint: request.Fingerprint, result: result, deadline: deadline,
		bytes: replayBytes + text + len(result.Body) + len(result.Header)*fieldBytes + values*valueBytes,
	}
	r.result.Replayed = true
	r.result.Header = nil
	r.result.Body = bytes.Clone(result.Body)
	r.fields = make([]cachedField, 0, len(result.Header))
	kept := make([]string, 0, values)
	for name, v := range result.Header {
		start := len(kept)
		for _, value := range v {
			kept = append(kept, keep(value))
		}
		r.fields = append(r.fields, cachedField{keep(name), kept[start:len(kept):len(kept)]})
	}
	return r
}

// replay is what the database would answer request with, in memory of its own.
func (r *CachedReplay) replay(request Request) (Result, error) {
	if r.operation != request.Operation || r.fingerprint != request.Fingerprint {
		return Result{}, ErrKeyReused
	}
	result := r.result
	result.Body = bytes.Clone(r.result.Body)
	if len(r.fields) == 0 {
		return result, nil
	}
	count := 0
	for _, field := range r.fields {
		count += len(field.values)
	}
	values := make([]string, 0, count)
	result.Header = make(http.Header, len(r.fields))
	for _, field := range r.fields {
		start := len(values)
		values = append(values, field.values...)
		result.Header[field.name] = values[start:len(values):len(values)]
	}
	return result, nil
}

// answers reports whether r is the record of the request's key and still lives.
// The wall clock counts, too, for the monotonic one may stand still while the
// machine is suspended.
func (r *CachedReplay) answers(request Request, now time.Time) bool {
	return r.scope == request.Scope && r.key == request.Key &&
		now.Before(r.deadline) && now.Round(0).Before(r.deadline.Round(0))
}

// clockReading is one look at the database's clock: it showed database at some
// moment after the local clock showed sent.
type clockReading struct {
	sent     time.Time
	database time.Time
}

// deadline is the local time after which a record may have expired by the
// database's clock. The two clocks are never compared: what is left of the
// record's life is counted from the moment before the statement was sent, less
// one part in a thousand for clocks that run at different speeds (NTP slews each
// by up to one in two thousand). It reports false when nothing is known or left.
func (c clockReading) deadline(expiresAt time.Time) (deadline time.Time, ok bool) {
	if c.database.IsZero() {
		return time.Time{}, false
	}
	left := expiresAt.Sub(c.database)
	return c.sent.Add(left - left/1000), left > 0
}

// remembered answers from the ReplayCache, or by run, whose answer it keeps
// there. run returns nil only for what was committed, and is as durable as the
// server is configured to make it.
func (s *Store) remembered(ctx context.Context, c *call, run func() (Result, error)) (Result, error) {
	cache := s.config.ReplayCache
	if cache == nil {
		return run()
	}
	key := ReplayKey{pool: s.pool, id: c.id}
	if ctx.Err() == nil { // else run says so
		if replay := cache.Get(key); replay != nil && replay.answers(c.request, time.Now()) {
			c.seen.Cached = true
			return replay.replay(c.request)
		}
	}
	result, err := run()
	if deadline, ok := c.clock.deadline(result.ExpiresAt); ok && err == nil {
		cache.Set(key, newCachedReplay(c.request, result, deadline))
	}
	return result, err
}
