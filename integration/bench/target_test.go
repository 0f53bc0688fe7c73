package main

import (
	"math"
	"testing"
)

// A verdict is about the median, says by how much, and a figure that is missing is not
// a target that is met.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit, reached float64
		atMost         bool
		verdict        string
		met            bool
	}{
		{1.05, 1.05, true, "met", true},
		{1.05, 1.25, true, "missed by ×0.20", false},
		{0.75, 0.80, false, "met", true},
		{0.75, 0.50, false, "missed by ×0.25", false},
		{0.75, math.NaN(), false, "not measured", false},
		{0.75, math.NaN(), true, "not measured", false},
	} {
		target := target{limit: c.limit, atMost: c.atMost, format: "×%.2f", reached: spread{median: c.reached, low: 0, high: 9}}
		if target.Verdict() != c.verdict || target.met() != c.met {
			t.Errorf("%v against %s: %s, met %v; want %s, %v", c.reached, target.Limit(), target.Verdict(), target.met(), c.verdict, c.met)
		}
	}
}

// Ratios compare the slices of one round, and the spread is theirs.
func TestRatiosAreOfOneRound(t *testing.T) {
	t.Parallel()
	got := pairwise([]float64{10, 30, 8}, []float64{10, 10, 10}, ratio)
	if want := (spread{1, 0.8, 3}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if middle := spreadOf([]float64{4, 1, 3, 2}).median; middle != 2.5 {
		t.Errorf("the median of four is %v", middle)
	}
}
