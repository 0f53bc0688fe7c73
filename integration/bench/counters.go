package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"time"
)

const (
	countRounds = 3
	countOps    = 200 // in a round
	tripOps     = 21
)

// counts are what one operation costs, apart from time.
type counts struct {
	postgresTrips, redisTrips float64 // before the answer
	afterTrips                float64 // after it
	walBytes, xids, dead      float64
	allocations               float64
}

// counted are the counts of one system.
type counted struct {
	name          string
	first, replay counts
	noop          counts // allocations alone, and of idempg alone
}

// count counts what each system does, alone on quiet servers. Figures of the
// servers are the least of some rounds, for a server also writes by itself.
func (s *servers) count(ctx context.Context, progress func(string)) ([]*counted, error) {
	var all []*counted
	for _, newSystem := range builders {
		c, err := s.countOne(ctx, newSystem)
		if err != nil {
			return nil, fmt.Errorf("count: %w", err)
		}
		progress("count " + c.name)
		all = append(all, c)
	}
	return all, nil
}

func (s *servers) countOne(ctx context.Context, newSystem builder) (*counted, error) {
	c := new(counted)
	var seeds []request
	for _, phase := range []struct {
		what scenario
		into *counts
	}{{firstTime, &c.first}, {replays, &c.replay}, {noops, &c.noop}} {
		if c.name != "" && !phase.what.asks(c.name) {
			continue
		}
		asked, err := s.countPhase(ctx, newSystem, c, phase.what, seeds, phase.into)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", c.name, phase.what, err)
		}
		seeds = asked
	}
	return c, s.countTrips(ctx, newSystem, c)
}

// countPhase counts one scenario, and returns the requests of its last round.
func (s *servers) countPhase(
	ctx context.Context, newSystem builder, c *counted, what scenario, seeds []request, into *counts,
) (asked []request, err error) {
	before, err := s.deadTuples(ctx)
	if err != nil {
		return nil, err
	}
	system, err := build(ctx, s.direct(4), newSystem)
	if err != nil {
		return nil, err
	}
	c.name = system.name
	system.seeds[small] = seeds
	for round := range countRounds + 1 {
		if asked, err = s.countRound(ctx, system, cell{scenario: what, bytes: small}, into, round); err != nil {
			return nil, errors.Join(err, system.place.close())
		}
	}
	if err := system.place.close(); err != nil {
		return nil, err
	}
	after, err := s.deadTuples(ctx)
	into.dead = (after - before) / (countOps * (countRounds + 1))
	return asked, err
}

// countRound carries out countOps requests. Round 0 warms up and counts nothing.
func (s *servers) countRound(ctx context.Context, system *system, c cell, into *counts, round int) ([]request, error) {
	do := system.newClient()
	requests := make([]request, countOps)
	for i := range requests {
		requests[i] = system.next(c)
	}
	system.place.settle()
	walBefore, xidBefore, err := s.written(ctx)
	if err != nil {
		return nil, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, r := range requests {
		if _, err := created(ctx, do, r); err != nil {
			return nil, err
		}
	}
	system.place.settle()
	runtime.ReadMemStats(&after)
	walAfter, xidAfter, err := s.written(ctx)
	if err != nil || round == 0 {
		return requests, err
	}
	least := func(field *float64, total float64) {
		if value := total / countOps; round == 1 || value < *field {
			*field = value
		}
	}
	least(&into.walBytes, walAfter-walBefore)
	least(&into.xids, xidAfter-xidBefore)
	least(&into.allocations, float64(after.Mallocs-before.Mallocs))
	return requests, nil
}

// written is the position of the server's WAL and its next transaction id.
func (s *servers) written(ctx context.Context) (wal, xid float64, err error) {
	err = s.postgres.admin.QueryRow(ctx, `select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8,
		pg_snapshot_xmax(pg_current_snapshot())::text::float8`).Scan(&wal, &xid)
	return wal, xid, err
}

// deadTuples is how many row versions were ever made obsolete. A backend reports
// its statistics at its end, so this waits until the admin's is the only one.
func (s *servers) deadTuples(ctx context.Context) (dead float64, err error) {
	others := 1
	for deadline := time.Now().Add(5 * time.Second); others > 0 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
		err := s.postgres.admin.QueryRow(ctx, `select count(*) from pg_stat_activity
			where backend_type = 'client backend' and pid <> pg_backend_pid()`).Scan(&others)
		if err != nil {
			return 0, err
		}
	}
	if others > 0 {
		return 0, fmt.Errorf("%d connections to the server are left", others)
	}
	err = s.postgres.admin.QueryRow(ctx, "select coalesce(sum(n_tup_upd + n_tup_del), 0)::float8 from pg_stat_user_tables").Scan(&dead)
	return dead, err
}

// countTrips counts round trips on the wire.
func (s *servers) countTrips(ctx context.Context, newSystem builder, c *counted) error {
	l, err := s.newLines(0)
	if err != nil {
		return err
	}
	defer l.close()
	system, err := build(ctx, s.behind(l, 4), newSystem)
	if err != nil {
		return err
	}
	defer system.place.close()
	do := system.newClient()
	requests := make([]request, tripOps)
	for i := range requests {
		requests[i] = newRequest(1+rand.IntN(accounts), small)
	}
	for _, into := range []*counts{&c.first, &c.replay} {
		if into == &c.replay && !replays.asks(c.name) {
			continue
		}
		var postgres, redis, later []float64
		for _, r := range requests {
			system.place.settle()
			onPostgres, onRedis := l.postgres.trips.Load(), l.redis.trips.Load()
			if _, err := created(ctx, do, r); err != nil {
				return err
			}
			answered := l.trips()
			postgres = append(postgres, float64(l.postgres.trips.Load()-onPostgres))
			redis = append(redis, float64(l.redis.trips.Load()-onRedis))
			system.place.settle()
			later = append(later, float64(l.trips()-answered))
		}
		into.postgresTrips, into.redisTrips = usual(postgres), usual(redis)
		into.afterTrips = usual(later)
	}
	return nil
}

// usual is the median: all but the first operations, which prepare statements, cost
// the same.
func usual(values []float64) float64 { return math.Round(spreadOf(values).median) }
