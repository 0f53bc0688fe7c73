package main

import (
	"fmt"
	"slices"
	"time"
)

// scenario is what the clients ask for.
type scenario string

const (
	firstTime scenario = "first-time"  // new keys, accounts at random
	hotRow    scenario = "hot account" // new keys, all on one account
	replays   scenario = "replay"      // keys that have a record
	bursts    scenario = "burst"       // one new key from all clients at once, until each has the answer
	noops     scenario = "no-op"       // new keys, a mutation that does nothing
)

const (
	small = 1 << 10
	large = 64 << 10
)

// setting is where a cell is measured.
type setting struct {
	durable   bool
	roundTrip time.Duration
}

func (s setting) String() string {
	where := "data in memory"
	if s.durable {
		where = "data on disk, fsync on"
	}
	if s.roundTrip == 0 {
		return where + ", loopback"
	}
	return where + ", " + milliseconds(s.roundTrip) + " round trip"
}

// cell is one thing that is measured of all systems that can do it.
type cell struct {
	setting
	scenario scenario
	clients  int
	bytes    int // of an answer
}

func (c cell) String() string {
	return fmt.Sprintf("%v, %s, %s, %s", c.setting, c.scenario, plural(c.clients, "client"), sizeOf(c.bytes))
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

func sizeOf(bytes int) string { return fmt.Sprintf("%d KB", bytes>>10) }

// asks reports whether the scenario asks something of the system that it does. A
// floor of first requests has no duplicates, the SELECT has nothing else, a cache
// is for replays alone, and waiting differs from not waiting in a burst alone.
func (s scenario) asks(name string) bool {
	unprotected := slices.Contains([]string{bare, bareBatch, bareFiber}, name)
	caches := name == coreCache || name == cacheFiber
	switch s {
	case replays:
		return !unprotected && name != coreWaiting
	case bursts:
		return !unprotected && !caches && name != primaryKey
	case noops:
		return name == core || name == coreFiber
	}
	return !caches && name != primaryKey && name != coreWaiting
}

// floor is what a system is compared with in the scenario, or "".
func (s scenario) floor(of *system) string {
	switch s {
	case replays:
		return primaryKey
	case bursts, noops:
		return core
	}
	return of.floor
}

// The cells answer these questions. What does a key cost, when nothing else is
// slow (memory, loopback), when the network is (1 ms), when the disk is, when both
// are; with one client, with a few, and with many more than processors? What
// does a replay cost beside a SELECT? What is left of it with large answers? Do
// locks on the key or the lock on a hot row last longer? What does a burst cost?
func chooseCells(short bool) []cell {
	memory, network := setting{}, setting{roundTrip: time.Millisecond}
	disk, both := setting{durable: true}, setting{durable: true, roundTrip: time.Millisecond}
	if short {
		return slices.Concat(
			cells(memory, firstTime, small, 1, 8), cells(memory, replays, small, 8), cells(memory, noops, small, 1),
			cells(memory, bursts, small, 8), cells(network, firstTime, small, 1, 8), cells(network, replays, small, 8),
			cells(disk, firstTime, small, 8),
		)
	}
	return slices.Concat(
		cells(memory, firstTime, small, 1, 8, 32), cells(memory, firstTime, large, 8),
		cells(memory, hotRow, small, 8),
		cells(memory, replays, small, 1, 8, 32), cells(memory, replays, large, 8),
		cells(memory, bursts, small, 8), cells(memory, noops, small, 1),
		cells(network, firstTime, small, 1, 8, 32), cells(network, firstTime, large, 8),
		cells(network, hotRow, small, 8),
		cells(network, replays, small, 1, 8, 32), cells(network, bursts, small, 8),
		cells(disk, firstTime, small, 1, 8, 32), cells(disk, hotRow, small, 8), cells(disk, replays, small, 8),
		cells(both, firstTime, small, 1, 8),
	)
}

func cells(s setting, what scenario, bytes int, clients ...int) []cell {
	var made []cell
	for _, n := range clients {
		made = append(made, cell{s, what, n, bytes})
	}
	return made
}
