package integration

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

// faultUnit is one kind of call that the fault tests break at every message.
type faultUnit struct {
	name      string
	prepare   func(t *testing.T, b *bench, key string) // what is there before, on connections of its own
	call      func(ctx context.Context, c *faultCell) (idem.Result, error)
	state     idem.State // of the record after one retry
	effects   int        // visible after one retry
	recorded, // the record is there before the call, or without it
	keyless bool
	thorough bool // cold connections are for the long run; see faultRounds
}

func (u *faultUnit) mutation(key string) idem.Mutation {
	if u.state == idem.StateRejected {
		return rejecting(key)
	}
	return created(key)
}

func (u *faultUnit) body(key string) string {
	if u.state == idem.StateRejected {
		return "no"
	}
	return string(receipt(key).Body)
}

// faultUnits are the kinds of calls.
func faultUnits() []*faultUnit {
	do := func(ctx context.Context, c *faultCell) (idem.Result, error) {
		return c.store.Do(ctx, request(c.key), c.unit.mutation(c.key))
	}
	doBatch := func(ctx context.Context, c *faultCell) (idem.Result, error) {
		if c.unit.state == idem.StateRejected {
			return c.store.DoBatch(ctx, request(c.key), rejectingBatch(c.key))
		}
		return c.store.DoBatch(ctx, request(c.key), createdBatch(c.key))
	}
	before := func(t *testing.T, b *bench, key string) { mustDo(t, b.store, request(key), created(key)) }
	return []*faultUnit{
		{name: "first", call: do, state: idem.StateCompleted, effects: 1},
		{name: "replay", prepare: before, call: do, state: idem.StateCompleted, effects: 1, recorded: true},
		{name: "reject", call: do, state: idem.StateRejected},
		{name: "take-over", call: do, state: idem.StateCompleted, effects: 2, prepare: func(t *testing.T, b *bench, key string) {
			before(t, b, key)
			b.exec(t, `update idem.records set created_at = now() - interval '2 days',
				expires_at = now() - interval '1 day' where key = $1`, key)
		}},
		{name: "wait", call: waitForOwner, state: idem.StateCompleted, effects: 1, recorded: true},
		{name: "batch", call: doBatch, state: idem.StateCompleted, effects: 1},
		{name: "batch replay", prepare: before, call: doBatch, state: idem.StateCompleted, effects: 1, recorded: true, thorough: true},
		{name: "batch reject", call: doBatch, state: idem.StateRejected, thorough: true},
		{name: "keyless", keyless: true, effects: 1, call: func(ctx context.Context, c *faultCell) (idem.Result, error) {
			return c.store.DoWithoutKey(ctx, idem.Request{}, created(c.key))
		}},
	}
}

// waitForOwner is a duplicate that waits for an owner of the key, who is not
// disturbed, and ends when the duplicate waits or has met its fault.
func waitForOwner(ctx context.Context, c *faultCell) (idem.Result, error) {
	owner := hold()
	owned := goDo(c.t.Context(), c.bench.store, request(c.key), owner.mutation(created(c.key)))
	<-owner.entered
	duplicate := goDo(ctx, c.store, request(c.key), created(c.key))
	var ended *outcome
	for ended == nil && c.wire.Fired() == 0 && !scalar[bool](c.t, c.watch, `select exists (select from pg_stat_activity
			where application_name = $1 and wait_event_type = 'Lock' and wait_event = 'advisory')`, c.app) {
		select {
		case o := <-duplicate:
			ended = &o
		case <-time.After(time.Millisecond):
		}
	}
	close(owner.leave)
	if o := <-owned; o.err != nil {
		c.t.Errorf("%s: the owner got %v", c.key, o.err)
	}
	if ended == nil {
		o := <-duplicate
		ended = &o
	}
	return ended.result, ended.err
}

// faultCondition is how the connections of a call are when it starts.
type faultCondition struct {
	mode pgx.QueryExecMode
	warm bool // connected, and the statements prepared
}

func (c faultCondition) String() string {
	if c.warm {
		return c.mode.String() + ", warm"
	}
	return c.mode.String() + ", cold"
}
