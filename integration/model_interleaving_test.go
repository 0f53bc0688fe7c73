package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

// ending is how a session's part in a schedule ends.
type ending string

const (
	completes      ending = "completes"
	rejects        ending = "rejects"
	aborts         ending = "aborts"
	diesInWork     ending = "dies in its work"  // the backend is killed when the effect is written; the unit runs again
	diesInTheClaim ending = "dies in its claim" // the backend is killed between snapshot and locks
)

func (e ending) dies() bool { return strings.HasPrefix(string(e), "dies") }

var playedEndings = []ending{completes, rejects, aborts, diesInWork, diesInTheClaim}

// world is what two sessions meet each other in.
type world struct {
	name         string
	otherPayload bool // the second session asks for something else
	expired      bool // there is an expired record before the first step
	nature       func(*explorer, *testing.T, *play)
}

var worlds = []world{
	{name: "the same request"},
	{name: "another payload", otherPayload: true},
	{name: "the record expires", nature: (*explorer).expire},
	{name: "an expired record is swept", expired: true, nature: (*explorer).sweep},
}

// schedule is one order of the steps of two sessions (0 and 1) and of nature (2).
type schedule struct {
	world   world
	order   []int
	endings [2]ending
}

func (s schedule) String() string {
	return fmt.Sprintf("%s, in the order %v, one %s, the other %s", s.world.name, s.order, s.endings[0], s.endings[1])
}

// schedules lists all orders of all worlds and endings in which session 0
// begins: the others are the same with the names changed. One death is enough.
func schedules() (all []schedule) {
	for _, w := range worlds {
		left := []int{sessionSteps, sessionSteps, 0}
		if w.nature != nil {
			left[2] = 1
		}
		for _, order := range orders(left) {
			if slices.Index(order, 0) > slices.Index(order, 1) {
				continue
			}
			for _, one := range playedEndings {
				for _, two := range playedEndings {
					if one.dies() && two.dies() {
						continue
					}
					all = append(all, schedule{w, order, [2]ending{one, two}})
				}
			}
		}
	}
	return all
}

// orders lists all sequences in which each actor has as many steps as it has left.
func orders(left []int) (all [][]int) {
	for actor, n := range left {
		if n == 0 {
			continue
		}
		rest := slices.Clone(left)
		rest[actor]--
		for _, order := range orders(rest) {
			all = append(all, append([]int{actor}, order...))
		}
	}
	if all == nil {
		return [][]int{nil}
	}
	return all
}

// sessionSteps is how many steps a session has: its claim takes a snapshot; it
// gets the key or not, and writes; it ends.
const sessionSteps = 3

// exploreFor bounds the exploration on a machine that is too slow for all of the
// schedules: they are shuffled, so that several runs see all of them.
// IDEM_TEST_EXPLORE is a duration for a longer run.
func exploreFor(t *testing.T) time.Duration {
	t.Helper()
	wanted := os.Getenv("IDEM_TEST_EXPLORE")
	if wanted == "" {
		return time.Minute
	}
	d, err := time.ParseDuration(wanted)
	if err != nil {
		t.Fatalf("IDEM_TEST_EXPLORE: %v", err)
	}
	return d
}

// Goal: whatever the order in which two requests with one key and the expiry
// act, each effect has its record and each record its effect, and every answer
// is a record's. Method: all orders of the steps that two calls of Do consist
// of, driven on a real Postgres by a gate in the claim and by mutations that
// wait to be told how to end.
func TestEveryInterleavingOfTwoClaims(t *testing.T) {
	t.Parallel()
	const workers = 2
	all, random := schedules(), modelRand(t)
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	limit := exploreFor(t)
	var next, played atomic.Int64
	t.Cleanup(func() { t.Logf("%d of %d schedules", played.Load(), len(all)) })
	for worker := range workers {
		t.Run(fmt.Sprint("worker ", worker), func(t *testing.T) {
			t.Parallel()
			e, start := newExplorer(t), time.Now()
			defer func() { t.Logf("explored for %v", time.Since(start).Round(time.Millisecond)) }()
			for i := next.Add(1) - 1; i < int64(len(all)) && !t.Failed() && time.Since(start) < limit; i = next.Add(1) - 1 {
				e.play(t, fmt.Sprint("k", i), all[i])
				played.Add(1)
			}
		})
	}
}

// modelRand is the source of the choices of a model check, whose seed
// IDEM_TEST_SEED repeats.
func modelRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("IDEM_TEST_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("IDEM_TEST_SEED=%d repeats the choices of this run", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// explorer plays schedules on a database of its own.
type explorer struct {
	*bench
	gates  *gates
	stores [2]*idem.Store
}

func newExplorer(t *testing.T) *explorer {
	t.Helper()
	config := idem.Config{AttemptsMax: 2}
	e := &explorer{bench: newBench(t, config)}
	e.gates = newGates(t, e.bench)
	for i := range e.stores {
		e.stores[i] = newStore(t, e.Pool(t, throughGate(i+1)), config)
	}
	return e
}

// play is one schedule on its way.
type play struct {
	schedule
	key     string
	calls   [2]*playedCall
	inside  atomic.Int32 // mutations between their first statement and their end
	retired []answered   // records that have expired
}

// answered is what a record says.
type answered struct{ State, Body string }

// playedCall is one session's call of Do.
type playedCall struct {
	name    string // of its effect, and the body of its answer
	ending  ending
	done    <-chan outcome
	entered chan uint32 // the backend on which the effect is written
	leave   chan struct{}
	runs    int
	pid     uint32
	outcome *outcome // once it has returned
	beside  bool     // the other session was at work when it returned
}

func (e *explorer) play(t *testing.T, key string, s schedule) {
	t.Helper()
	p := &play{schedule: s, key: key}
	if s.world.expired {
		mustDo(t, e.store, request(key), answering(key+"/before"))
		e.expire(t, p)
	}
	for actor, step := range steps(s.order) {
		if actor == 2 {
			s.world.nature(e, t, p)
			continue
		}
		[]func(*testing.T, *play, int){e.look, e.claim, e.end}[step](t, p, actor)
	}
	for i := range p.calls {
		p.await(i)
	}
	for _, complaint := range append(e.judge(t, p), e.judgeRetry(t, p)...) {
		t.Errorf("%s: %s: %s", key, s, complaint)
	}
}

// steps yields each actor of the order with the number of its step.
func steps(order []int) func(yield func(actor, step int) bool) {
	return func(yield func(actor, step int) bool) {
		var taken [3]int
		for _, actor := range order {
			if !yield(actor, taken[actor]) {
				return
			}
			taken[actor]++
		}
	}
}

// look starts a call, up to the snapshot of its claim.
func (e *explorer) look(t *testing.T, p *play, i int) {
	t.Helper()
	c := &playedCall{
		name: fmt.Sprintf("%s/%d", p.key, i), ending: p.endings[i],
		entered: make(chan uint32, 1), leave: make(chan struct{}),
	}
	p.calls[i] = c
	r := request(p.key)
	if p.world.otherPayload && i == 1 {
		r = otherPayload(p.key)
	}
	e.gates.close(t, i+1)
	c.done = goDo(t.Context(), e.stores[i], r, p.mutation(c))
	for !p.returned(i) && !e.gates.query(t, waiting, i+1) {
		time.Sleep(time.Millisecond)
	}
}

// mutation writes the effect and waits for its end, the first time that it runs.
func (p *play) mutation(c *playedCall) idem.Mutation {
	return func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		if p.inside.Add(1) > 1 {
			c.name += ", beside another" // no such effect is allowed
		}
		response, err := answering(c.name)(ctx, tx)
		if c.runs++; c.runs > 1 || err != nil {
			p.inside.Add(-1)
			return response, err
		}
		c.entered <- tx.Conn().PgConn().PID()
		<-c.leave
		switch c.ending {
		case rejects:
			return idem.Response{}, idem.Reject(response, errDecline)
		case aborts:
			return idem.Response{}, errDecline
		}
		return response, nil
	}
}

// answering writes the effect and answers with its name.
func answering(name string) idem.Mutation {
	return func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		return idem.Response{Status: 201, Body: []byte(name)}, write(ctx, tx, name)
	}
}

// claim lets a call through the gate, until it has written or returned.
func (e *explorer) claim(t *testing.T, p *play, i int) {
	t.Helper()
	c := p.calls[i]
	if c.outcome == nil && c.ending == diesInTheClaim {
		e.gates.kill(t, `select pid from pg_locks where locktype = 'advisory' and not granted and objid = $1
			and database = (select oid from pg_database where datname = current_database())`, int64(i+1))
	}
	e.gates.open(t, i+1)
	if c.outcome != nil {
		return
	}
	select {
	case c.pid = <-c.entered:
	case o := <-c.done:
		p.arrive(i, o)
	}
}

// end ends the work of a call that has not returned.
func (e *explorer) end(t *testing.T, p *play, i int) {
	t.Helper()
	c := p.calls[i]
	if c.outcome != nil {
		return
	}
	if c.ending == diesInWork {
		e.gates.kill(t, "select $1::bigint::int", int64(c.pid))
	}
	p.inside.Add(-1)
	close(c.leave)
	if c.ending != diesInWork { // which then waits for the other session
		p.await(i)
	}
}

func (p *play) await(i int) {
	if p.calls[i].outcome == nil {
		p.arrive(i, <-p.calls[i].done)
	}
}

func (p *play) returned(i int) bool {
	select {
	case o := <-p.calls[i].done:
		p.arrive(i, o)
		return true
	default:
		return false
	}
}

func (p *play) arrive(i int, o outcome) {
	p.calls[i].outcome = &o
	other := p.calls[1-i]
	p.calls[i].beside = other != nil && other.outcome == nil
}

// expire makes the record expire, if it is there.
func (e *explorer) expire(t *testing.T, p *play) {
	t.Helper()
	rows, err := e.pool.Query(t.Context(), `
		update idem.records set created_at = now() - interval '2 days', expires_at = now() - interval '1 day'
		where id = (select id from idem.records where key = $1 and expires_at > now() for update skip locked)
		returning state, convert_from(body, 'UTF8')`, p.key)
	if err != nil {
		t.Fatal(err)
	}
	expired, err := pgx.CollectRows(rows, pgx.RowToStructByPos[answered])
	if err != nil {
		t.Fatal(err)
	}
	p.retired = append(p.retired, expired...)
}

func (e *explorer) sweep(t *testing.T, _ *play) {
	t.Helper()
	if _, err := e.store.Sweep(t.Context(), idem.SweepOptions{BatchRows: 10}); err != nil {
		t.Fatal(err)
	}
}

// judge says what is wrong once both calls have returned.
func (e *explorer) judge(t *testing.T, p *play) (complaints []string) {
	t.Helper()
	records := slices.Clone(p.retired)
	if live := e.live(t, p.key); live != nil {
		records = append(records, live.answered)
	}
	var completed []string
	for _, r := range records {
		if r.State == string(idem.StateCompleted) {
			completed = append(completed, r.Body)
		}
	}
	slices.Sort(completed)
	effects := scalar[[]string](t, e.pool,
		"select coalesce(array_agg(name order by name), '{}') from effects where split_part(name, '/', 1) = $1", p.key)
	if !slices.Equal(effects, completed) {
		complaints = append(complaints, fmt.Sprintf("the effects are %q, the completed records %q", effects, completed))
	}
	for _, c := range p.calls {
		if complaint := p.judgeCall(c, records); complaint != "" {
			complaints = append(complaints, fmt.Sprintf("%s got %+v, %v: %s", c.name, c.outcome.result, c.outcome.err, complaint))
		}
	}
	return complaints
}

// judgeCall says what is wrong with what one call returned, or "".
func (p *play) judgeCall(c *playedCall, records []answered) string {
	result, err := c.outcome.result, c.outcome.err
	answer := answered{string(result.State), string(result.Body)}
	switch {
	case err == nil && !slices.Contains(records, answer):
		return fmt.Sprintf("the records are %q", records)
	case err == nil && result.Replayed == (answer.Body == c.name):
		return "a first answer is the call's own, a replay another's"
	case err == nil:
		return ""
	case errors.Is(err, errDecline) && c.ending == aborts:
		return ""
	case errors.Is(err, idem.ErrInFlight) && c.beside:
		return ""
	case errors.Is(err, idem.ErrKeyReused) && p.world.otherPayload && (c.beside || len(records) > 0):
		return ""
	case c.ending.dies() && idem.Retryable(err) && !errors.Is(err, idem.ErrInFlight):
		return ""
	}
	return "no such error is allowed here"
}

// judgeRetry sends the first request again. It gets the record that lives, or
// runs.
func (e *explorer) judgeRetry(t *testing.T, p *play) (complaints []string) {
	t.Helper()
	live := e.live(t, p.key)
	var o outcome
	_ = eventually(settleWait, func() error { // a refused call gives its locks back a moment later
		o.result, o.err = e.store.Do(t.Context(), request(p.key), answering(p.key+"/retry"))
		if errors.Is(o.err, idem.ErrInFlight) {
			return o.err
		}
		return nil
	})
	result, err := o.result, o.err
	switch {
	case live != nil && live.Fingerprint != request(p.key).Fingerprint:
		if !errors.Is(err, idem.ErrKeyReused) {
			return []string{fmt.Sprintf("the retry got %v, want ErrKeyReused", err)}
		}
	case err != nil:
		return []string{fmt.Sprintf("the retry got %v", err)}
	case live != nil && (!result.Replayed || string(result.Body) != live.Body):
		return []string{fmt.Sprintf("the retry got %+v, want a replay of %+v", result, live)}
	case live == nil && (result.Replayed || string(result.Body) != p.key+"/retry"):
		return []string{fmt.Sprintf("the retry got %+v, want its own answer", result)}
	}
	return nil
}

// liveRecord is a record that answers.
type liveRecord struct {
	answered
	Fingerprint idem.Fingerprint
}

// live returns the live record of a key, or nil.
func (e *explorer) live(t *testing.T, key string) *liveRecord {
	t.Helper()
	record, err := e.store.Lookup(t.Context(), "acme", key)
	if errors.Is(err, idem.ErrNotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return &liveRecord{answered{string(record.State), string(record.Response.Body)}, record.Fingerprint}
}
