// Command growth measures what a growing table of records costs: the time of a
// first request and of a replay, the bytes of the indexes and of the write-ahead
// log, and what a sweep does to the requests beside it. It starts a durable
// Postgres of its own, prints a table, and writes a page with curves.
//
// It needs the server programs of PostgreSQL or Docker, and about 12 GB of disk
// (2 GB with -short) in the temporary directory, which it frees at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
)

// plan says how much to measure.
type plan struct {
	Sizes      []int         // records in the table, ascending
	Rounds     int           // slices per database and kind of request
	SliceOps   int           // requests per slice
	WALOps     int           // first requests after a checkpoint
	Trial      int           // records in each trial of another index design
	Expired    int           // records that each sweep forgets
	LoadPerSec int           // first requests beside the sweep
	WarmUp     time.Duration // of that load, before it counts
	Baseline   time.Duration // before the sweep
	Settle     time.Duration // after the sweep, for vacuum
}

var (
	full = plan{
		Sizes: []int{0, 1_000_000, 3_000_000, 10_000_000}, Rounds: 30, SliceOps: 100, WALOps: 16_000, Trial: 300_000,
		Expired: 1_000_000, LoadPerSec: 200, WarmUp: 10 * time.Second, Baseline: 15 * time.Second, Settle: 20 * time.Second,
	}
	short = plan{
		Sizes: []int{0, 100_000, 1_000_000}, Rounds: 9, SliceOps: 50, WALOps: 4_000, Trial: 50_000,
		Expired: 100_000, LoadPerSec: 200, WarmUp: 2 * time.Second, Baseline: 3 * time.Second, Settle: 3 * time.Second,
	}
)

func main() {
	isShort := flag.Bool("short", false, "measure at 0, 100,000 and 1,000,000 records instead of up to 10,000,000")
	dir := flag.String("dir", "", "put the server's data in a directory made here, not in the temporary directory")
	out := flag.String("out", "", "write growth.md and its curves into this directory")
	flag.Parse()
	if *dir != "" {
		if err := os.Setenv("TMPDIR", *dir); err != nil {
			fatal(err)
		}
	}
	p := full
	if *isShort {
		p = short
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	command := strings.TrimSpace("go run ./integration/growth " + shownFlags())
	if err := run(ctx, p, command, *out, os.Stdout); err != nil {
		stop()
		fatal(err)
	}
}

// shownFlags are the flags that change what is measured, as the page shows
// them.
func shownFlags() string {
	var shown []string
	flag.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "dir":
		case "short":
			shown = append(shown, "-short")
		default:
			shown = append(shown, "-"+f.Name, f.Value.String())
		}
	})
	return strings.Join(shown, " ")
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "growth:", err)
	os.Exit(1)
}

// progress tells on standard error what the program is at.
func progress(format string, arguments ...any) {
	fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), fmt.Sprintf(format, arguments...))
}

func run(ctx context.Context, p plan, command, out string, terminal io.Writer) (err error) {
	start := time.Now()
	l, err := newLab(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()

	r := &report{Plan: p, Command: command, Date: start, Lab: l.facts}
	for _, size := range p.Sizes {
		point, err := l.measureSize(ctx, p, size)
		if err != nil {
			return err
		}
		r.Points = append(r.Points, point)
	}
	if r.Written, err = l.empty.bytesPerRecord(ctx); err != nil {
		return err
	}
	if r.Designs, err = l.measureDesigns(ctx, p.Trial); err != nil {
		return err
	}
	for _, manner := range manners {
		sweep, err := l.measureSweep(ctx, p, manner)
		if err != nil {
			return err
		}
		r.Sweeps = append(r.Sweeps, sweep)
	}
	r.Duration = time.Since(start).Round(time.Second)
	if err := r.print(terminal); err != nil {
		return err
	}
	if out == "" {
		return nil
	}
	return r.write(out)
}
