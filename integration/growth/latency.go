package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

// kind is a kind of request whose time is measured.
type kind struct {
	Name string
	// slice makes a number of requests, one after the other, and returns how
	// long each took.
	slice func(d *database, ctx context.Context, ops int) ([]time.Duration, error)
}

var kinds = []kind{
	{"first request", func(d *database, ctx context.Context, ops int) ([]time.Duration, error) {
		return d.firstRequests(ctx, d.durable, ops)
	}},
	{"first request, commit not waited for", func(d *database, ctx context.Context, ops int) ([]time.Duration, error) {
		return d.firstRequests(ctx, d.relaxed, ops)
	}},
	{"replay", (*database).replays},
}

// latency compares the two databases in one kind of request. The quantiles are
// medians over the slices; the ratio is the median over the pairs of slices.
type latency struct {
	GrownP50, GrownP99, EmptyP50, EmptyP99 time.Duration
	Ratio, RatioLow, RatioHigh             float64 // of the p50, grown to empty; the middle half of the pairs
}

// measureLatency takes turns between the two databases, the first of a pair
// second in the next.
func (l *lab) measureLatency(ctx context.Context, k kind, rounds, ops int) (latency, error) {
	quantiles := map[*database]map[int][]time.Duration{l.grown: {}, l.empty: {}}
	for round := range rounds + 1 {
		pair := []*database{l.grown, l.empty}
		if round%2 == 1 {
			slices.Reverse(pair)
		}
		for _, d := range pair {
			times, err := k.slice(d, ctx, ops)
			if err != nil {
				return latency{}, err
			}
			if round == 0 { // warms up the connection and its statements
				continue
			}
			for _, q := range []int{50, 99} {
				quantiles[d][q] = append(quantiles[d][q], quantile(times, q))
			}
		}
	}
	var ratios []float64
	for i, grown := range quantiles[l.grown][50] {
		ratios = append(ratios, float64(grown)/float64(quantiles[l.empty][50][i]))
	}
	return latency{
		GrownP50: quantile(quantiles[l.grown][50], 50), GrownP99: quantile(quantiles[l.grown][99], 50),
		EmptyP50: quantile(quantiles[l.empty][50], 50), EmptyP99: quantile(quantiles[l.empty][99], 50),
		Ratio: quantile(ratios, 50), RatioLow: quantile(ratios, 25), RatioHigh: quantile(ratios, 75),
	}, nil
}

// firstRequests makes first requests, whose mutation does nothing, so that the
// library's own statements are all there is.
func (d *database) firstRequests(ctx context.Context, store *idem.Store, ops int) ([]time.Duration, error) {
	times := make([]time.Duration, 0, ops)
	for range ops {
		n := int(d.calls.Add(1)) - 1
		request := calledKeys.request(n)
		since := time.Now()
		if err := firstRequest(ctx, store, request, n); err != nil {
			return nil, err
		}
		times = append(times, time.Since(since))
	}
	return times, nil
}

func firstRequest(ctx context.Context, store *idem.Store, request idem.Request, n int) error {
	result, err := store.Do(ctx, request, func(context.Context, pgx.Tx) (idem.Response, error) {
		return idem.Response{Status: 201, Header: header, Body: body(n)}, nil
	})
	if err == nil && result.Replayed {
		err = errors.New("a first request was a replay: the key has been used")
	}
	return err
}

// replays asks again with keys chosen at random among those that fill has used
// or, where it was not at work, first requests.
func (d *database) replays(ctx context.Context, ops int) ([]time.Duration, error) {
	keys, known := filledKeys, d.filled
	if known == 0 {
		keys, known = calledKeys, int(d.calls.Load())
	}
	times := make([]time.Duration, 0, ops)
	for range ops {
		request := keys.request(rand.IntN(known))
		since := time.Now()
		result, err := d.durable.Do(ctx, request, func(context.Context, pgx.Tx) (idem.Response, error) {
			return idem.Response{}, errors.New("a replay ran: the record is not where the library looks for it")
		})
		if err == nil && !result.Replayed {
			err = errors.New("a replay was not marked as one")
		}
		if err != nil {
			return nil, err
		}
		times = append(times, time.Since(since))
	}
	return times, nil
}

// quantile is the nearest-rank percentile. It is 0 for no values.
func quantile[T time.Duration | float64](values []T, percent int) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}
