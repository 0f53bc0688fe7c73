package main

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idempg/idempg/idem/idemtest"
)

// Goal: a line takes no less than the round trip that it says, for many connections
// as for one, and counts what is sent together once. Method:
// SELECTs through it whose texts are larger than a parcel.
func TestTheLineDelays(t *testing.T) {
	t.Parallel()
	pool := idemtest.NewDatabase(t)
	upstream := hostOf(postgresURL(pool))
	for _, c := range []struct {
		roundTrip time.Duration
		clients   int
	}{{0, 1}, {20 * time.Millisecond, 1}, {20 * time.Millisecond, 8}} {
		l, err := newLine(upstream, c.roundTrip)
		if err != nil {
			t.Fatal(err)
		}
		p := &place{postgresURL: throughLine(postgresURL(pool), l.address()), conns: c.clients}
		took, trips := selects(t, p, l, c.clients)
		if want := int64(c.clients * selectsEach); trips != want {
			t.Errorf("%d statements took %d round trips", want, trips)
		}
		t.Logf("%d clients over %v: half of the statements took at most %v", c.clients, c.roundTrip, took[len(took)/2])
		if took[0] < c.roundTrip {
			t.Errorf("a statement of %d clients over %v took %v", c.clients, c.roundTrip, took[0])
		}
		if err := errors.Join(p.close(), l.close()); err != nil {
			t.Error(err)
		}
	}
}

const selectsEach = 10

// selects returns how long each took, sorted, and how many round trips all did.
func selects(t *testing.T, p *place, l *line, clients int) (took []time.Duration, trips int64) {
	t.Helper()
	pool, err := p.pool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conns := pool.AcquireAllIdle(t.Context())
	for len(conns) < clients {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	before := l.trips.Load()
	each := make([][]time.Duration, clients)
	var group sync.WaitGroup
	for i, conn := range conns {
		group.Go(func() {
			defer conn.Release()
			for range selectsEach {
				since := time.Now()
				// Text with no parameters goes out in one message.
				if _, err := conn.Conn().PgConn().Exec(t.Context(), "select length('"+filling+"')").ReadAll(); err != nil {
					t.Error(err)
				}
				each[i] = append(each[i], time.Since(since))
			}
		})
	}
	group.Wait()
	took = slices.Concat(each...)
	slices.Sort(took)
	return took, l.trips.Load() - before
}
