package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	systemConns = 38 // of every system: more than clients, for rollbacks after the answer
	seedClients = 16
	seedsSmall  = 512
	seedsLarge  = 64
	warmUp      = 50 * time.Millisecond

	// retryPause is how long a client of a burst waits after a 409.
	retryPause = time.Millisecond
)

// series are the figures of one system in one cell, one of each a round.
type series struct {
	perSecond []float64
	p50, p99  []float64 // milliseconds
}

// measured is a cell with its figures, by system.
type measured struct {
	cell
	series map[string]*series
}

// measure takes the rounds of one cell. Within a round every system has a slice
// of time, and the order moves on by one from round to round.
func measure(ctx context.Context, c cell, all []*system, rounds int, slice time.Duration) (*measured, error) {
	var systems []*system
	m := &measured{cell: c, series: map[string]*series{}}
	for _, s := range all {
		if !c.scenario.asks(s.name) {
			continue
		}
		systems = append(systems, s)
		m.series[s.name] = new(series)
		if err := s.prepare(ctx, c); err != nil {
			return nil, fmt.Errorf("%s, prepare %v: %w", s.name, c, err)
		}
	}
	for round := range rounds {
		for i := range systems {
			s := systems[(round+i)%len(systems)]
			s.place.settle()
			runtime.GC() // a slice pays for its own garbage
			latencies, elapsed, err := s.run(ctx, c, slice)
			if err != nil {
				return nil, fmt.Errorf("%s, %v: %w", s.name, c, err)
			}
			m.series[s.name].add(latencies, elapsed)
		}
	}
	return m, nil
}

func (s *series) add(latencies []time.Duration, elapsed time.Duration) {
	slices.Sort(latencies)
	s.perSecond = append(s.perSecond, float64(len(latencies))/elapsed.Seconds())
	s.p50 = append(s.p50, quantile(latencies, 50))
	s.p99 = append(s.p99, quantile(latencies, 99))
}

// prepare makes the records that are replayed, and opens the connections.
func (s *system) prepare(ctx context.Context, c cell) error {
	if c.scenario == replays && s.seeds[c.bytes] == nil {
		if err := s.seed(ctx, c.bytes); err != nil {
			return err
		}
	}
	_, _, err := s.run(ctx, c, warmUp)
	return err
}

func (s *system) seed(ctx context.Context, bytesWant int) error {
	seeds := make([]request, seedsSmall)
	if bytesWant > small {
		seeds = seeds[:seedsLarge]
	}
	var group sync.WaitGroup
	failed := make([]error, seedClients)
	for worker := range seedClients {
		group.Go(func() {
			do := s.newClient()
			for i := worker; i < len(seeds) && failed[worker] == nil; i += seedClients {
				seeds[i] = newRequest(1+rand.IntN(accounts), bytesWant)
				_, failed[worker] = created(ctx, do, seeds[i])
			}
		})
	}
	group.Wait()
	s.seeds[bytesWant] = seeds
	return cmp.Or(failed...)
}

// next is the next request of a client.
func (s *system) next(c cell) request {
	switch c.scenario {
	case replays:
		return s.seeds[c.bytes][rand.IntN(len(s.seeds[c.bytes]))]
	case hotRow:
		return newRequest(hotOne, c.bytes)
	}
	r := newRequest(1+rand.IntN(accounts), c.bytes)
	r.noop = c.scenario == noops
	return r
}

// run has the clients work for a slice of time.
func (s *system) run(ctx context.Context, c cell, slice time.Duration) ([]time.Duration, time.Duration, error) {
	if c.scenario == bursts {
		return s.runBursts(ctx, c, slice)
	}
	latencies, failed := make([][]time.Duration, c.clients), make([]error, c.clients)
	var group sync.WaitGroup
	start := time.Now()
	for worker := range c.clients {
		group.Go(func() {
			do := s.newClient()
			for failed[worker] == nil && time.Since(start) < slice {
				r := s.next(c)
				since := time.Now()
				_, failed[worker] = created(ctx, do, r)
				latencies[worker] = append(latencies[worker], time.Since(since))
			}
		})
	}
	group.Wait()
	return slices.Concat(latencies...), time.Since(start), cmp.Or(failed...)
}

// created makes any other answer an error: a system that does nothing is fast.
func created(ctx context.Context, do client, r request) (answer, error) {
	a, err := do(ctx, r)
	if err == nil && a.status != statusCreated {
		err = fmt.Errorf("status %d for a request without a rival", a.status)
	}
	return a, err
}

// runBursts sends burst after burst. The latency of one is the time until every
// client has the answer, and all must have the same.
func (s *system) runBursts(ctx context.Context, c cell, slice time.Duration) ([]time.Duration, time.Duration, error) {
	clients := make([]client, c.clients)
	for i := range clients {
		clients[i] = s.newClient()
	}
	var latencies []time.Duration
	start := time.Now()
	for time.Since(start) < slice {
		r := newRequest(1+rand.IntN(accounts), c.bytes)
		since := time.Now()
		answers, err := burst(ctx, clients, r)
		if err != nil {
			return nil, 0, err
		}
		latencies = append(latencies, time.Since(since))
		for _, a := range answers {
			if !bytes.Equal(a.body, answers[0].body) {
				return nil, 0, fmt.Errorf("two answers to one key: %.40s and %.40s", answers[0].body, a.body)
			}
		}
	}
	return latencies, time.Since(start), nil
}

// burst sends one request from all clients at once. Who is told that the key is in
// flight asks again.
func burst(ctx context.Context, clients []client, r request) ([]answer, error) {
	answers, failed := make([]answer, len(clients)), make([]error, len(clients))
	var group sync.WaitGroup
	for i, do := range clients {
		group.Go(func() {
			for {
				answers[i], failed[i] = do(ctx, r)
				if failed[i] != nil || answers[i].status != statusInFlight {
					return
				}
				time.Sleep(retryPause)
			}
		})
	}
	group.Wait()
	return answers, cmp.Or(failed...)
}
