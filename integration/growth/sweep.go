package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

// loadClients bounds how many first requests run at a time beside the sweep.
const loadClients = 8

// manner is a way to sweep.
type manner struct {
	Name string
	idem.SweepOptions
	Pause       time.Duration // between two calls
	OldSnapshot bool          // a transaction from before the sweep stays open
}

var manners = []manner{
	{Name: "again at once while there is more", SweepOptions: idem.SweepOptions{BatchRows: 1000, BatchesMax: 100}}, // the defaults
	{Name: "the same beside a transaction from before it", SweepOptions: idem.SweepOptions{BatchRows: 1000, BatchesMax: 100}, OldSnapshot: true},
	{Name: "a pause after each batch", SweepOptions: idem.SweepOptions{BatchRows: 1000, BatchesMax: 1}, Pause: 20 * time.Millisecond},
}

// sweepCost is what a sweep did and what it did to the requests beside it.
type sweepCost struct {
	Manner         manner
	Swept          idem.SweepResult
	Took           time.Duration
	Slowest        time.Duration // of the calls of Sweep
	WALPerRecord   float64       // of all that was logged meanwhile, the load included
	Before, During []time.Duration
	After          []time.Duration // while vacuum cleans up
	Vacuums        int             // automatic vacuums of the table meanwhile
	Timeline       []second
	From, To       time.Duration // of the sweep, on the timeline
	Bytes          bytesPerRecord
}

// P99Ratio compares the requests during the sweep to those before it.
func (c sweepCost) P99Ratio() float64 {
	return float64(quantile(c.During, 99)) / float64(quantile(c.Before, 99))
}

// second is one second of the load.
type second struct {
	At       time.Duration
	P50, P99 time.Duration
}

// sample is one request of the load.
type sample struct {
	due   time.Duration // after the load began
	delay time.Duration // from due to its answer
}

// load makes first requests at fixed times, however long each takes, and
// counts a late start as delay.
type load struct {
	start   time.Time
	stopped atomic.Bool
	clients sync.WaitGroup
	lock    sync.Mutex
	samples []sample
	err     error
}

func (d *database) startLoad(ctx context.Context, perSecond int) *load {
	l := &load{start: time.Now()}
	var next atomic.Int64
	for range loadClients {
		l.clients.Go(func() {
			for !l.stopped.Load() {
				due := time.Duration(next.Add(1)) * time.Second / time.Duration(perSecond)
				time.Sleep(time.Until(l.start.Add(due)))
				n := int(d.calls.Add(1)) - 1
				err := firstRequest(ctx, d.durable, calledKeys.request(n), n)
				l.lock.Lock()
				l.samples = append(l.samples, sample{due, time.Since(l.start) - due})
				l.err = errors.Join(l.err, err)
				l.lock.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	return l
}

func (l *load) stop() error {
	l.stopped.Store(true)
	l.clients.Wait()
	return l.err
}

// between returns the delays of the requests that were due in an interval.
func (l *load) between(from, to time.Duration) (delays []time.Duration) {
	for _, s := range l.samples {
		if from <= s.due && s.due < to {
			delays = append(delays, s.delay)
		}
	}
	return delays
}

// measureSweep adds expired records and sweeps them in the given manner while
// first requests go on.
func (l *lab) measureSweep(ctx context.Context, p plan, m manner) (sweepCost, error) {
	d := l.grown
	progress("sweep, %s: adding %d expired records", m.Name, p.Expired)
	if err := d.fillExpired(ctx, d.swept, d.swept+p.Expired); err != nil {
		return sweepCost{}, err
	}
	d.swept += p.Expired
	if err := d.exec(ctx, "vacuum (analyze) idem.records", "checkpoint"); err != nil {
		return sweepCost{}, err
	}
	vacuumsBefore, err := d.vacuums(ctx)
	if err != nil {
		return sweepCost{}, err
	}

	progress("sweep, %s: sweeping", m.Name)
	load := d.startLoad(ctx, p.LoadPerSec)
	cost, err := d.sweepUnder(ctx, p, m, load)
	if err := errors.Join(err, load.stop()); err != nil {
		return sweepCost{}, err
	}
	end := time.Since(load.start)
	cost.Before = load.between(p.WarmUp, cost.From)
	cost.During = load.between(cost.From, cost.To)
	cost.After = load.between(cost.To, end)
	for at := p.WarmUp; at+time.Second <= end; at += time.Second {
		delays := load.between(at, at+time.Second)
		cost.Timeline = append(cost.Timeline, second{at, quantile(delays, 50), quantile(delays, 99)})
	}
	vacuumsAfter, err := d.vacuums(ctx)
	if err != nil {
		return sweepCost{}, err
	}
	cost.Vacuums = vacuumsAfter - vacuumsBefore
	cost.Bytes, err = d.bytesPerRecord(ctx)
	return cost, err
}

// sweepUnder sweeps while load goes on, between a time before and a time after.
func (d *database) sweepUnder(ctx context.Context, p plan, m manner, load *load) (sweepCost, error) {
	time.Sleep(p.WarmUp + p.Baseline)
	if m.OldSnapshot {
		end, err := d.openSnapshot(ctx)
		if err != nil {
			return sweepCost{}, err
		}
		defer end()
	}
	cost := sweepCost{Manner: m, From: time.Since(load.start)}
	bytes, _, _, err := d.logged(ctx, func() error { return d.sweep(ctx, m, &cost) })
	if err != nil {
		return cost, err
	}
	cost.To = time.Since(load.start)
	cost.Took = cost.To - cost.From
	cost.WALPerRecord = float64(bytes) / float64(cost.Swept.Records)
	time.Sleep(p.Settle)
	return cost, nil
}

// openSnapshot begins a transaction that keeps seeing what is there now.
func (d *database) openSnapshot(ctx context.Context) (end func(), err error) {
	tx, err := d.async.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	end = func() { _ = tx.Rollback(ctx) }
	if _, err := tx.Exec(ctx, "select from idem.unfinished"); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// sweep calls Sweep until nothing has expired any more.
func (d *database) sweep(ctx context.Context, m manner, cost *sweepCost) error {
	for more := true; more; {
		since := time.Now()
		result, err := d.durable.Sweep(ctx, m.SweepOptions)
		if err != nil {
			return err
		}
		cost.Slowest = max(cost.Slowest, time.Since(since))
		cost.Swept.Records += result.Records
		cost.Swept.Batches += result.Batches
		if more = result.More; more {
			time.Sleep(m.Pause)
		}
	}
	return nil
}

// vacuums counts the automatic vacuums of the table so far.
func (d *database) vacuums(ctx context.Context) (n int, err error) {
	return n, d.pool.QueryRow(ctx, `
		select autovacuum_count from pg_stat_user_tables
		where schemaname = 'idem' and relname = 'records'`).Scan(&n)
}
