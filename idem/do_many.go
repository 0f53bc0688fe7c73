package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// chunkItemsHardMax bounds the advisory locks that one transaction takes, two an
// item, which come out of a table that the whole server shares.
const chunkItemsHardMax = 1000

// Item is one mutation of a [Store.DoMany] call.
type Item struct {
	Request Request
	Batch   *Batch
}

// ItemResult is what [Store.DoBatch] would have returned for an Item.
type ItemResult struct {
	Result Result
	Err    error
}

// ManyOptions bounds what [Store.DoMany] puts into one transaction.
type ManyOptions struct {
	// ChunkItemsMax is how many items share a transaction. Larger chunks save
	// more and hold keys and rows for longer. At most 1000. Defaults to 100.
	ChunkItemsMax int
}

// DoMany runs many keyed mutations with the contract of [Store.DoBatch] for each
// and far fewer round trips and commits: it is for consumers that drain a queue.
// It returns one ItemResult for each Item, in their order.
//
// The items of a chunk share one transaction of two round trips. An item fails
// alone: when its statements fail, the transaction is undone and the others run
// again without it, so statements may run twice before they are committed once.
// Calls whose items lock the same rows in different orders deadlock, and then
// their items run one by one: have the first item of a transaction lock what all
// need, in one order, or sort the items.
//
// Items take effect in their order, except those whose key is in flight
// elsewhere, which come after their chunk. A key that comes again within a call
// is answered as if it came later: a replay, or [ErrKeyReused].
//
// When ctx ends, chunks that were not begun answer its error. The error that
// DoMany itself returns is about options; then nothing ran.
func (s *Store) DoMany(ctx context.Context, items []Item, options ManyOptions) ([]ItemResult, error) {
	setDefault(&options.ChunkItemsMax, 100)
	if options.ChunkItemsMax < 1 || options.ChunkItemsMax > chunkItemsHardMax {
		return nil, fmt.Errorf("idem: ManyOptions.ChunkItemsMax is %d: 1 to %d, or 0 for the default", options.ChunkItemsMax, chunkItemsHardMax)
	}
	results := make([]ItemResult, len(items))
	var chunk []*member
	keys := map[identity]bool{} // of the chunk
	for i, item := range items {
		m, err := s.newMember(ctx, item, &results[i])
		if err != nil {
			m.end(ctx, Result{}, err)
			continue
		}
		if len(chunk) == options.ChunkItemsMax || keys[m.call.id] {
			s.runChunk(ctx, chunk)
			chunk = nil
			clear(keys)
		}
		chunk = append(chunk, m)
		keys[m.call.id] = true
	}
	s.runChunk(ctx, chunk)
	return results, nil
}

// member is an item of a chunk.
type member struct {
	store  *Store
	call   *call
	batch  *Batch
	look   look
	answer answer // of its statements, valid once they have run
	out    *ItemResult
}

func (s *Store) newMember(ctx context.Context, item Item, out *ItemResult) (*member, error) {
	c, err := s.newCall(ctx, item.Request)
	if err == nil {
		err = item.Batch.validate()
	}
	return &member{store: s, call: c, batch: item.Batch, out: out}, err
}

// end publishes how the item ended.
func (m *member) end(ctx context.Context, result Result, err error) {
	*m.out = ItemResult{Result: result, Err: err}
	m.store.finish(ctx, m.call, result, err)
}

// runAlone runs an item as DoBatch does.
func (m *member) runAlone(ctx context.Context) {
	result, err := m.store.runBatch(ctx, m.call, m.batch)
	m.end(ctx, result, err)
}

// runChunk runs the items in one transaction, and without whoever stands in the
// way of that.
func (s *Store) runChunk(ctx context.Context, members []*member) {
	if len(members) == 0 {
		return
	}
	if len(members) == 1 {
		members[0].runAlone(ctx)
		return
	}
	t := s.tryChunk(ctx, members)
	var unsettled *unsettledError
	switch {
	case t.err == nil:
	case t.failed != nil: // the first of those left that cannot be part of it
		before, after := split(t.left, t.failed)
		s.runChunk(ctx, before)
		t.failed.runAlone(ctx)
		s.runChunk(ctx, after)
	case errors.As(t.err, &unsettled):
		s.settleChunk(ctx, t.left, unsettled)
	case t.together: // they would all fail
		for _, m := range t.left {
			m.end(ctx, Result{}, t.err)
		}
	default: // who is to blame is not known
		for _, m := range t.left {
			m.runAlone(ctx)
		}
	}
	for _, m := range t.later {
		m.runAlone(ctx)
	}
}

func split(members []*member, at *member) (before, after []*member) {
	for i, m := range members {
		if m == at {
			return members[:i], members[i+1:]
		}
	}
	return members, nil
}

// trial is how an attempt at a chunk ended. After an error nothing stays.
type trial struct {
	err      error
	left     []*member // have no answer yet
	failed   *member   // whose fault err is, if that is known
	together bool      // err is that of no single item
	later    []*member // have a key that must be looked at again, or waited for
}

// tryChunk claims all keys in one round trip, and runs and commits what was
// claimed in another. Keys that are not free get their answer at once.
func (s *Store) tryChunk(ctx context.Context, members []*member) (t trial) {
	t.left, t.together = members, true
	u, err := s.acquire(ctx)
	if err != nil {
		t.err = err
		return t
	}
	defer u.release(ctx)
	since := time.Now()
	batch := s.begin.batch()
	queueClaims(batch, members)
	if err := u.send(ctx, batch).Close(); err != nil {
		t.err, t.together = u.lost(explain(err)), classify(err) != retry
		return t
	}
	if t.judge(ctx, u, members); t.err != nil || len(t.left) == 0 {
		return t
	}
	claimed := time.Now()
	t.commit(ctx, s, u)
	for _, m := range t.left {
		m.call.seen.Claim += claimed.Sub(since)
		m.call.seen.Commit += time.Since(claimed)
		if t.err == nil {
			m.call.seen.Attempts++
			m.end(ctx, m.answer.result(m.batch.header), nil)
		}
	}
	return t
}

// queueClaims queues claimManySQL, to be read into the looks of the members.
func queueClaims(batch *pgx.Batch, members []*member) {
	n := len(members)
	ids, payloadLocks, keyLocks, ttls := make([]pgtype.UUID, n), make([]int64, n), make([]int64, n), make([]int64, n)
	scopes, keys, operations, fingerprints := make([]string, n), make([]string, n), make([]string, n), make([][]byte, n)
	for i, m := range members {
		c := m.call
		ids[i] = pgtype.UUID{Bytes: c.id.recordID(), Valid: true}
		payloadLocks[i], keyLocks[i], ttls[i] = c.payloadLock, c.id.keyLock(), c.request.TTL.Microseconds()
		scopes[i], keys[i], operations[i] = c.request.Scope, c.request.Key, c.request.Operation
		fingerprints[i] = c.request.Fingerprint[:]
		m.look, m.answer = look{}, answer{}
	}
	batch.Queue(claimManySQL, ids, payloadLocks, keyLocks, scopes, keys, operations, fingerprints, ttls).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var place int64
			var l look
			if err := rows.Scan(append([]any{&place, &l.verdict, &l.now}, l.row.destinations()...)...); err != nil {
				return err
			}
			members[place-1].look = l
		}
		return rows.Err()
	})
}

// judge answers the items whose key was not claimed.
func (t *trial) judge(ctx context.Context, u *unit, members []*member) {
	t.left = nil
	for i, m := range members {
		result, err := m.call.judge(ctx, u.tx, &m.look)
		var pgErr *pgconn.PgError
		switch {
		case err == nil && m.look.verdict == claimed:
			t.left = append(t.left, m)
		case err == nil:
			m.end(ctx, result, nil)
		case errors.As(err, &pgErr), u.conn.Conn().IsClosed(): // the transaction is broken
			t.err, t.together = u.lost(err), classify(err) != retry
			t.left = append(t.left, members[i:]...)
			return
		case errors.Is(err, ErrInFlight) && m.store.config.ClaimWait > 0, errors.Is(err, errLookAgain), errors.Is(err, errReusedInFlight):
			t.later = append(t.later, m)
		default:
			m.end(ctx, Result{}, err)
		}
	}
}

// commit sends the statements of all that were claimed, their records and COMMIT.
func (t *trial) commit(ctx context.Context, s *Store, u *unit) {
	batch := &pgx.Batch{}
	t.together = false
	for _, m := range t.left {
		err := m.batch.queue(ctx, u.conn.Conn(), batch)
		if err == nil {
			err = m.batch.queueRespond(ctx, u.conn.Conn(), batch, m.call.id.recordID(), s.config, &m.answer)
		}
		if err != nil {
			t.err, t.failed = err, m
			return
		}
	}
	t.err = s.sendCommit(ctx, u, batch)
	var unsettled *unsettledError
	switch {
	case t.err == nil, errors.As(t.err, &unsettled):
		return
	case u.conn.Conn().IsClosed(): // the backend holds the keys until it notices, which settling waits for
		t.err = &unsettledError{cause: t.err}
		return
	case classify(t.err) != definite:
		return
	}
	for _, m := range t.left {
		if !m.answer.finishedAt.Valid {
			t.failed = m
			return
		}
	}
}

// settleChunk finds out how a COMMIT without an answer ended, item by item: all
// share that end, so one that nobody can learn is that of all.
func (s *Store) settleChunk(ctx context.Context, members []*member, unsettled *unsettledError) {
	for _, m := range members {
		m.call.seen.Unsettled = true
		m.call.seen.Attempts++
	}
	for i, m := range members {
		m.call.claimedAt, m.call.unsettled = m.look.row.createdAt, unsettled.cause
		m.runAlone(ctx)
		var outcomeUnknown *OutcomeUnknownError
		if errors.As(m.out.Err, &outcomeUnknown) && errors.Is(outcomeUnknown.Cause, unsettled.cause) {
			for _, rest := range members[i+1:] {
				rest.end(ctx, Result{}, m.out.Err)
			}
			return
		}
	}
}
