package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/integration/faults"
)

// blackHoleConfig is short in what ends a black hole. Where the ends learn of a
// break the usual timeouts do, on a busy machine too.
var blackHoleConfig = idem.Config{IdleInTransactionTimeout: time.Second, CommitTimeout: time.Second, SettleTimeout: 4 * time.Second}

// faultSlots bound how many cells of all matrices run at once. Those with a
// black hole spend their time waiting.
var faultSlots, blackHoleSlots = make(chan struct{}, 6), make(chan struct{}, 36)

// faultMatrix repeats one unit on a database of its own.
type faultMatrix struct {
	bench     *bench
	watch     *pgxpool.Pool // looks at what is durable
	unit      *faultUnit
	condition faultCondition
	good      []faults.Message // of an undisturbed run
	cells     atomic.Int64     // makes keys
	injected  atomic.Int64
}

// faultCell is one run of the unit with its own proxy, pool and key.
type faultCell struct {
	*faultMatrix
	t     *testing.T
	key   string
	app   string // the application_name of its connections
	deaf  bool   // the server may not learn that a connection is broken
	wire  *faults.Proxy
	pool  *pgxpool.Pool
	store *idem.Store
}

// faultRounds is how many more runs with random faults the environment asks for.
func faultRounds() int {
	rounds, _ := strconv.Atoi(os.Getenv("IDEM_FAULT_ROUNDS")) // unset is 0
	return rounds
}

// Goal: whatever message of a call the network loses, the caller's answer is
// what is durable, the effect happens at most once and exactly once after a
// retry, and the key is free in time. Method: record the messages of a good
// run, then repeat the call with a fault at each of them.
func TestFaultsAtEveryMessage(t *testing.T) {
	t.Parallel()
	for _, condition := range []faultCondition{
		{mode: pgx.QueryExecModeExec}, {mode: pgx.QueryExecModeCacheStatement, warm: true},
	} {
		for _, unit := range faultUnits() {
			if unit.thorough && !condition.warm && faultRounds() == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", unit.name, condition), func(t *testing.T) {
				t.Parallel()
				m := newFaultMatrix(t, unit, condition)
				matrix := m.runAll(t)
				t.Logf("%s%d faults injected", matrix, m.injected.Load())
				if unmet := strings.Count(matrix, "?"); int64(unmet) > m.injected.Load()/2 {
					t.Errorf("%d cells never met their fault", unmet)
				}
			})
		}
	}
}

func newFaultMatrix(t *testing.T, unit *faultUnit, condition faultCondition) *faultMatrix {
	t.Helper()
	b := newBench(t, idem.Config{AcquireTimeout: time.Minute}, maxConns(12))
	m := &faultMatrix{bench: b, watch: b.Pool(t, maxConns(4)), unit: unit, condition: condition}
	c := m.newCell(t, idem.Config{})
	defer c.end()
	c.wire.Record()
	if _, err := unit.call(t.Context(), c); err != nil {
		t.Fatalf("the good run: %v", err)
	}
	settled(t, c.pool)
	m.good = c.wire.Recorded()
	return m
}

// faultRow is a row of the matrix: one point and manner, at each message that
// goes one way. The rows marked thorough are for the long run; see faultRounds.
type faultRow struct {
	direction faults.Direction
	point     faults.Point
	manner    faults.Manner
	thorough  bool
}

var faultRows = []faultRow{
	{faults.ToServer, faults.Before, faults.FIN, false},
	{faults.ToServer, faults.Before, faults.RST, true},
	{faults.ToServer, faults.Before, faults.BlackHole, false},
	{faults.ToServer, faults.After, faults.FIN, true},
	{faults.ToServer, faults.After, faults.RST, true},
	{faults.ToServer, faults.After, faults.BlackHole, false},
	{faults.ToServer, faults.Swallow, faults.FIN, false},
	{faults.ToServer, faults.Swallow, faults.RST, false},
	{faults.ToServer, faults.Swallow, faults.BlackHole, false},
	{faults.ToClient, faults.Before, faults.FIN, false},
	{faults.ToClient, faults.Before, faults.RST, true},
	{faults.ToClient, faults.Before, faults.BlackHole, true},
}

// runAll runs every cell and returns the matrix: a column for each message. A
// message that the server does not act on at once is only met before: after it
// is before the next.
func (m *faultMatrix) runAll(t *testing.T) string {
	var group sync.WaitGroup
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %s\n", m.unit.name, m.condition)
	cells := map[faultRow][]byte{}
	for _, row := range faultRows {
		if row.thorough && faultRounds() == 0 {
			continue
		}
		places, kinds := m.places(row.direction)
		line := bytes.Repeat([]byte{' '}, len(kinds))
		cells[row] = line
		for i, place := range places {
			if row.point != faults.Before && strings.IndexByte("SQp-", kinds[i]) < 0 {
				continue
			}
			place.Point, place.Manner = row.point, row.manner
			group.Go(func() {
				for try := 0; line[i] == ' ' || line[i] == '?' && try < 5; try++ {
					line[i] = m.run(t, place)
				}
			})
		}
	}
	group.Wait()
	for i, row := range faultRows {
		if _, kinds := m.places(row.direction); i == 0 || row.direction != faultRows[i-1].direction {
			fmt.Fprintf(&text, "%-20s %s\n", row.direction, kinds)
		}
		if line := cells[row]; line != nil {
			fmt.Fprintf(&text, "  %-7s %-10s %s\n", row.point, row.manner, line)
		}
	}
	return text.String()
}

// places are where the messages that go one way can be met again, and their
// type bytes. Messages of the start-up are counted for themselves, because a
// call may or may not open one more connection.
func (m *faultMatrix) places(direction faults.Direction) (places []faults.Fault, kinds []byte) {
	next := map[bool]int{}
	for _, message := range m.good {
		if message.Direction == direction {
			places = append(places, faults.Fault{Direction: direction, Startup: message.Startup, Index: next[message.Startup]})
			kinds = append(kinds, max(message.Kind, '-'))
			next[message.Startup]++
		}
	}
	return places, kinds
}

// run runs one cell and returns how the call ended, in one character.
func (m *faultMatrix) run(t *testing.T, armed ...faults.Fault) byte {
	config, slots, patience := idem.Config{}, faultSlots, time.Minute
	deaf := slices.ContainsFunc(armed, func(f faults.Fault) bool { return f.Manner == faults.BlackHole })
	if deaf {
		config, slots, patience = blackHoleConfig, blackHoleSlots, 300*time.Millisecond
	}
	slots <- struct{}{}
	defer func() { <-slots }()
	c := m.newCell(t, config)
	c.deaf = deaf
	defer c.end()
	ctx, cancel := impatient(t.Context(), c.wire.Arm(armed...), patience)
	defer cancel()
	result, err := m.unit.call(ctx, c)
	// The ROLLBACK after a replay comes after the answer.
	_ = eventually(settleWait, func() error {
		if c.wire.Fired() == 0 && c.pool.Stat().AcquiredConns() > 0 {
			return errors.New("not settled")
		}
		return nil
	})
	fired := c.wire.Fired()
	m.injected.Add(int64(fired))
	held, violation := c.check(t.Context(), result, err)
	switch {
	case violation != nil:
		t.Errorf("%s, %s: %v: the call got %d %q, %v: %v", m.unit.name, m.condition, armed, result.Status, result.Body, err, violation)
		return 'X'
	case fired == 0: // on a busy machine a short timeout may come first, and a wait end early
		return '?'
	case held:
		return 'H'
	case isUnknown(err):
		return 'u'
	case err != nil:
		return 'e'
	}
	return '='
}

// impatient returns a context that ends some time after the network has failed.
func impatient(ctx context.Context, failed <-chan struct{}, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-failed:
			defer time.AfterFunc(patience, cancel).Stop()
			<-ctx.Done()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (m *faultMatrix) newCell(t *testing.T, config idem.Config) *faultCell {
	c := &faultCell{faultMatrix: m, t: t, wire: newWire(t, m.bench.database)}
	poolConfig, err := pgxpool.ParseConfig(m.bench.URL)
	if err != nil {
		t.Fatal(err)
	}
	throughWire(c.wire, m.condition.mode)(poolConfig)
	c.key = fmt.Sprintf("%s-%d", m.unit.name, m.cells.Add(1))
	c.app = c.key
	poolConfig.ConnConfig.RuntimeParams["application_name"] = c.app
	poolConfig.ConnConfig.ConnectTimeout = 20 * time.Second
	poolConfig.MaxConns = 4
	if c.pool, err = pgxpool.NewWithConfig(t.Context(), poolConfig); err != nil {
		t.Fatal(err)
	}
	if m.unit.name == "wait" {
		config.ClaimWait = 30 * time.Second
	}
	c.store = newStore(t, c.pool, config)
	if m.condition.warm {
		warm := *c
		warm.key += "-warm"
		warm.start()
		if _, err := m.unit.call(t.Context(), &warm); err != nil && !isClassified(err) {
			t.Errorf("warming up: %v", err)
		}
		settled(t, c.pool)
	}
	c.start()
	return c
}

func (c *faultCell) start() {
	if c.unit.prepare != nil {
		c.unit.prepare(c.t, c.bench, c.key)
	}
}

func (c *faultCell) end() {
	c.wire.Close()
	c.pool.Close()
}
