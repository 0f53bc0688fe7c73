package main

import (
	"fmt"
	"math"
	"time"
)

// charts are the curves of the page, by file name.
func (r *report) charts() map[string]chart {
	charts := map[string]chart{
		"latency.svg": r.latencyChart(),
		"bytes.svg":   r.bytesChart(),
		"wal.svg":     r.walChart(),
	}
	for i, s := range r.Sweeps {
		charts[s.ChartName(i)] = s.chart()
	}
	return charts
}

// place puts a number of records on a logarithmic axis, with zero a step to the
// left of the smallest size above it.
func (r *report) place(records int) float64 {
	if records == 0 {
		return math.Log10(float64(r.Plan.Sizes[1])) - 0.5
	}
	return math.Log10(float64(records))
}

func (r *report) sizeTicks() (ticks []tick) {
	for _, size := range r.Plan.Sizes {
		ticks = append(ticks, tick{r.place(size), count(size)})
	}
	return ticks
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (r *report) latencyChart() chart {
	c := chart{Title: "Time of a request, as the table grows", XLabel: "records in the table", YLabel: "milliseconds", Ticks: r.sizeTicks()}
	names := []string{"first", "first, not waited for", "replay"}
	for i, name := range names {
		p50, p99 := line{Name: name + ", p50"}, line{Name: name + ", p99", Dashed: true}
		for _, p := range r.Points {
			x := r.place(p.Records)
			p50.Points = append(p50.Points, xy{x, milliseconds(p.Latencies[i].GrownP50)})
			p99.Points = append(p99.Points, xy{x, milliseconds(p.Latencies[i].GrownP99)})
		}
		c.Lines = append(c.Lines, p50, p99)
	}
	return c
}

func (r *report) bytesChart() chart {
	c := chart{Title: "Index bytes per record, as the table grows", XLabel: "records in the table", YLabel: "bytes per record"}
	key, expiry, both := line{Name: "primary key"}, line{Name: "expiry index"}, line{Name: "both"}
	for _, p := range r.Points {
		if p.Records == 0 {
			continue
		}
		x := r.place(p.Records)
		c.Ticks = append(c.Ticks, tick{x, count(p.Records)})
		key.Points = append(key.Points, xy{x, p.Bytes.PrimaryKey})
		expiry.Points = append(expiry.Points, xy{x, p.Bytes.ExpiryIndex})
		both.Points = append(both.Points, xy{x, p.Bytes.Indexes()})
	}
	c.Lines = []line{key, expiry, both}
	return c
}

func (r *report) walChart() chart {
	c := chart{Title: "What a first request logs after a checkpoint", XLabel: "first requests since the checkpoint", YLabel: "bytes per request"}
	add := func(name string, curve walCurve, dashed bool) {
		l := line{Name: name, Dashed: dashed}
		for _, b := range curve.Buckets {
			l.Points = append(l.Points, xy{math.Log2(float64(b.End)), b.Bytes})
		}
		c.Lines = append(c.Lines, l)
	}
	for _, p := range r.Points {
		add(count(p.Records)+" records", p.WAL, false)
	}
	add(count(r.Last().Records)+", wal_compression", r.Last().Squeezed, true)
	for _, b := range r.Last().WAL.Buckets {
		c.Ticks = append(c.Ticks, tick{math.Log2(float64(b.End)), count(b.End)})
	}
	return c
}

// ChartName is the file name of the i-th sweep's chart.
func (c sweepCost) ChartName(i int) string { return fmt.Sprintf("sweep-%d.svg", i+1) }

// chart draws the load beside the sweep, second by second.
func (c sweepCost) chart() chart {
	drawn := chart{
		Title: "First requests beside a sweep: " + c.Manner.Name, XLabel: "seconds", YLabel: "milliseconds",
		Bands: []band{{"sweep", c.From.Seconds(), c.To.Seconds()}},
	}
	p50, p99 := line{Name: "p50"}, line{Name: "p99", Dashed: true}
	for _, s := range c.Timeline {
		x := s.At.Seconds()
		p50.Points = append(p50.Points, xy{x, milliseconds(s.P50)})
		p99.Points = append(p99.Points, xy{x, milliseconds(s.P99)})
		if int(x)%10 == 0 {
			drawn.Ticks = append(drawn.Ticks, tick{x, fmt.Sprint(int(x))})
		}
	}
	drawn.Lines = []line{p50, p99}
	return drawn
}
