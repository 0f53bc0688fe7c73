package main

import (
	"math"
	"slices"
	"time"
)

// spread is a median and the extremes of what it is the median of.
type spread struct{ median, low, high float64 }

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := sorted[len(sorted)/2]
	if len(sorted)%2 == 0 {
		middle = (middle + sorted[len(sorted)/2-1]) / 2
	}
	return spread{middle, sorted[0], sorted[len(sorted)-1]}
}

// pairwise applies f to the values of each round: what disturbs the machine in a
// round disturbs both.
func pairwise(a, b []float64, f func(a, b float64) float64) spread {
	var values []float64
	for i := range min(len(a), len(b)) {
		values = append(values, f(a[i], b[i]))
	}
	return spreadOf(values)
}

func ratio(a, b float64) float64      { return a / b }
func difference(a, b float64) float64 { return a - b }

// quantile returns milliseconds.
func quantile(sorted []time.Duration, percent int) float64 {
	return float64(sorted[(len(sorted)-1)*percent/100].Nanoseconds()) / 1e6
}
