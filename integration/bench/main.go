// Command bench compares ways to make a mutation happen once: idempg, a bare
// transaction, and what else teams use. All run in one process on one machine,
// against one Postgres and one Redis, in turns. It writes what it measured, and how,
// to benchmarks.md:
//
//	go run ./integration/bench -out docs
//
// It needs the server programs of PostgreSQL and Redis (Debian, Ubuntu: apt-get
// install postgresql redis-server), and starts its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"time"
)

func main() {
	short := flag.Bool("short", false, "measure fewer cells, more briefly: about two minutes instead of eleven")
	out := flag.String("out", "", "the directory to write benchmarks.md and its plots to; without it the page goes to standard output")
	only := flag.String("run", "", "measure only the cells that match this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *short, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// plan is how long things take.
type plan struct {
	short  bool
	cells  []cell
	rounds int
	slice  time.Duration
	start  time.Time
	done   int
}

func newPlan(short bool) *plan {
	if short {
		return &plan{short: true, cells: chooseCells(true), rounds: 3, slice: 200 * time.Millisecond, start: time.Now()}
	}
	return &plan{cells: chooseCells(false), rounds: 5, slice: 300 * time.Millisecond, start: time.Now()}
}

// progress tells who waits.
func (p *plan) progress(what string) {
	fmt.Fprintf(os.Stderr, "%6.0f s  %s\n", time.Since(p.start).Seconds(), what)
}

func run(ctx context.Context, short bool, only, out string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	p := newPlan(short)
	p.cells = slices.DeleteFunc(p.cells, func(c cell) bool { return !pattern.MatchString(c.String()) })
	r := &report{plan: p, date: p.start}
	for _, durable := range []bool{false, true} {
		if err := r.measureOn(ctx, durable); err != nil {
			return err
		}
	}
	return r.write(out)
}

// measureOn starts the servers and measures all that is to be measured on them.
func (r *report) measureOn(ctx context.Context, durable bool) (err error) {
	s, err := startServers(ctx, durable)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	r.postgresVersion, r.redisVersion = s.postgres.version, s.redis.version
	if !durable {
		if r.counted, err = s.count(ctx, r.plan.progress); err != nil {
			return err
		}
	}
	for _, roundTrip := range []time.Duration{0, time.Millisecond} {
		if err := r.measureAt(ctx, s, setting{durable, roundTrip}); err != nil {
			return err
		}
	}
	return nil
}

// measureAt measures the cells of one setting.
func (r *report) measureAt(ctx context.Context, s *servers, at setting) (err error) {
	newPlace := func() *place { return s.direct(systemConns) }
	if at.roundTrip > 0 {
		l, err := s.newLines(at.roundTrip)
		if err != nil {
			return err
		}
		defer l.close()
		newPlace = func() *place { return s.behind(l, systemConns) }
	}
	systems, err := buildAll(ctx, newPlace)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(systems)) }()
	r.know(systems)
	for _, c := range r.plan.cells {
		if c.setting != at {
			continue
		}
		m, err := measure(ctx, c, systems, r.plan.rounds, r.plan.slice)
		if err != nil {
			return err
		}
		r.measured = append(r.measured, m)
		r.plan.done++
		r.plan.progress(fmt.Sprintf("%d of %d: %v", r.plan.done, len(r.plan.cells), c))
	}
	return s.postgres.checkOnce(ctx)
}
