package main

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// target is a figure that was promised before it was measured.
type target struct {
	what    string
	limit   float64
	atMost  bool   // or at least
	format  string // of a figure
	reached spread
}

func (t target) met() bool {
	if t.atMost {
		return t.reached.median <= t.limit
	}
	return t.reached.median >= t.limit
}

// Limit is the target in words.
func (t target) Limit() string {
	if t.atMost {
		return "≤ " + t.figure(t.limit)
	}
	return "≥ " + t.figure(t.limit)
}

// Reached is the median and its spread.
func (t target) Reached() string {
	switch {
	case math.IsNaN(t.reached.median):
		return "–"
	case t.reached.low == t.reached.high:
		return t.figure(t.reached.median)
	}
	return fmt.Sprintf("%s (%s–%s)", t.figure(t.reached.median), t.figure(t.reached.low), t.figure(t.reached.high))
}

// Verdict says by how much.
func (t target) Verdict() string {
	switch {
	case math.IsNaN(t.reached.median):
		return "not measured"
	case t.met():
		return "met"
	}
	return "missed by " + t.figure(math.Abs(t.reached.median-t.limit))
}

// What is what the target is about.
func (t target) What() string { return t.what }

func (t target) figure(value float64) string { return fmt.Sprintf(t.format, value) }

// targets are all targets with what the run reached.
func (r *report) targets() []target {
	counted := map[string]*counted{}
	for _, c := range r.counted {
		counted[c.name] = c
	}
	exactly := func(value float64) spread { return spread{value, value, value} }
	memory, network := setting{}, setting{roundTrip: time.Millisecond}
	trips := func(c counts) float64 { return c.postgresTrips + c.redisTrips }
	times, plain := "×%.2f", "%.0f"
	return []target{
		{"round trips that a key adds to a first-time mutation", 0, true, plain, exactly(trips(counted[core].first) - trips(counted[bare].first))},
		{"p50 against the bare transaction, 1 ms round trip, 1 client", 1.05, true, times, r.latency(cell{network, firstTime, 1, small}, core, bare)},
		{"p50 against the bare transaction, memory, loopback, 1 client", 1.15, true, times, r.latency(cell{memory, firstTime, 1, small}, core, bare)},
		{"throughput against the bare transaction, memory, loopback, 8 clients", 0.75, false, times, r.throughput(cell{memory, firstTime, 8, small}, core, bare)},
		{"throughput against Redis SETNX and a transaction, 1 ms round trip, 8 clients", 1.5, false, times, r.throughput(cell{network, firstTime, 8, small}, core, redisOnce)},
		{"throughput against Redis SETNX and a transaction, memory, loopback, 8 clients", 1.2, false, times, r.throughput(cell{memory, firstTime, 8, small}, core, redisOnce)},
		{"WAL bytes of a replay", 0, true, plain, exactly(counted[core].replay.walBytes)},
		{"transaction ids of a replay", 0, true, plain, exactly(counted[core].replay.xids)},
		{"replays against a primary-key SELECT, memory, loopback, 8 clients", 0.6, false, times, r.throughput(cell{memory, replays, 8, small}, core, primaryKey)},
		{"replays under Fiber against the Redis middleware's, memory, loopback, 8 clients", 0.8, false, times, r.throughput(cell{memory, replays, 8, small}, coreFiber, redisOnFiber)},
		{"the same with the replay cache", 1.5, false, times, r.throughput(cell{memory, replays, 8, small}, cacheFiber, redisOnFiber)},
		{"µs that the Fiber layer adds to a no-op", 15, true, "%.1f", r.layer()},
		{"allocations that the Fiber layer adds to a no-op", 25, true, plain, exactly(counted[coreFiber].noop.allocations - counted[core].noop.allocations)},
	}
}

// throughput is how many times as many operations a does as b.
func (r *report) throughput(c cell, a, b string) spread {
	m := r.measuredAt(c)
	return pairwise(m.of(a).perSecond, m.of(b).perSecond, ratio)
}

// latency is how many times as long a takes as b, at the median.
func (r *report) latency(c cell, a, b string) spread {
	m := r.measuredAt(c)
	return pairwise(m.of(a).p50, m.of(b).p50, ratio)
}

// layer is what fibermw adds to a mutation that does nothing, in microseconds.
func (r *report) layer() spread {
	m := r.measuredAt(cell{setting{}, noops, 1, small})
	return pairwise(m.of(coreFiber).p50, m.of(core).p50, func(a, b float64) float64 { return 1000 * difference(a, b) })
}

func (r *report) measuredAt(c cell) *measured {
	for _, m := range r.measured {
		if m.cell == c {
			return m
		}
	}
	return &measured{}
}

// of is the series of a system, empty if it was not measured.
func (m *measured) of(name string) *series { return cmp.Or(m.series[name], new(series)) }
