package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/idem/idemtest"
)

const (
	duplicates = 500
	poolConns  = 4
	roundTime  = 3 * time.Second
	interval   = 20 * time.Millisecond // between two requests with other keys
	retryAfter = time.Second           // what fibermw advises
)

// BenchmarkOthersBesideASlowKey measures what 500 duplicates of a slow key cost
// the other keys on a pool of 4 connections. One iteration is a pair of rounds,
// one without the duplicates and one with them, in turns first; in both the slow
// key's mutation holds its connection. The other keys come at fixed times, and a
// late start counts as latency. Figures are medians over the iterations:
//
//	go test -run '^$' -bench SlowKey -benchtime 5x ./integration/bench
//
// Duplicates that "wait" have Config.ClaimWait; the others ask again a second
// after each 409. The other keys begin when the duplicates do ("arriving"), or
// when those that wait have come to rest ("waiting").
func BenchmarkOthersBesideASlowKey(b *testing.B) {
	for _, c := range []struct {
		name string
		wait time.Duration
		rest bool
	}{
		{"waiting", 5 * time.Minute, true},
		{"arriving, then waiting", 5 * time.Minute, false},
		{"arriving, then 409", 0, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			pool := newPool(b)
			rest := func() {}
			if c.rest {
				rest = func() { awaitRest(pool) }
			}
			store, err := idem.New(pool, idem.Config{ClaimWait: c.wait, AcquireTimeout: time.Minute, IdleInTransactionTimeout: 5 * time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			round(b, store, "warm-up", 0, func() {})
			figures := map[string][]float64{}
			for i := range b.N {
				counts := []int{0, duplicates}
				if i%2 == 1 {
					slices.Reverse(counts)
				}
				for _, n := range counts {
					latencies := round(b, store, fmt.Sprint("round ", i, " of ", n), n, rest)
					for _, q := range []int{50, 99} {
						unit := fmt.Sprintf("p%d-ms/%d-dup", q, n)
						figures[unit] = append(figures[unit], quantile(latencies, q))
					}
				}
			}
			b.ReportMetric(0, "ns/op") // means nothing here
			for unit, values := range figures {
				slices.Sort(values)
				b.ReportMetric(values[len(values)/2], unit)
			}
		})
	}
}

func newPool(b *testing.B) *pgxpool.Pool {
	b.Helper()
	pool := idemtest.NewDatabase(b, func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, "create table effects (name text not null)")
		return err
	})
	config := pool.Config()
	config.MaxConns = poolConns
	small, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(small.Close)
	return small
}

// round returns the latencies of the other keys, sorted.
func round(b *testing.B, store *idem.Store, name string, duplicates int, rest func()) []time.Duration {
	b.Helper()
	entered, leave := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		_ = do(b, store, name, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			close(entered)
			<-leave
			return write(ctx, tx)
		})
	})
	<-entered
	for range duplicates {
		group.Go(func() {
			for errors.Is(do(b, store, name, write), idem.ErrInFlight) {
				select {
				case <-leave:
				case <-time.After(retryAfter):
				}
			}
		})
	}

	if duplicates > 0 {
		rest()
	}

	latencies := make([]time.Duration, roundTime/interval)
	start := time.Now()
	for i := range latencies {
		planned := start.Add(time.Duration(i) * interval)
		time.Sleep(time.Until(planned))
		group.Go(func() {
			_ = do(b, store, fmt.Sprint(name, " other ", i), write)
			latencies[i] = time.Since(planned)
			if i == len(latencies)-1 {
				close(leave)
			}
		})
	}
	group.Wait()
	slices.Sort(latencies)
	return latencies
}

// awaitRest returns when at most two connections are taken: the owner of the slow
// key has one. A queue for the pool would show as a pool that is taken whole.
func awaitRest(pool *pgxpool.Pool) {
	for still := 0; still < 20; time.Sleep(5 * time.Millisecond) {
		still++
		if pool.Stat().AcquiredConns() > 2 {
			still = 0
		}
	}
}

// do reports all errors but ErrInFlight itself.
func do(b *testing.B, store *idem.Store, key string, mutation idem.Mutation) error {
	_, err := store.Do(context.Background(), idem.Request{
		Scope: "bench", Key: key, Fingerprint: idem.NewFingerprint([]byte(key)),
	}, mutation)
	if err != nil && !errors.Is(err, idem.ErrInFlight) {
		b.Error(err)
	}
	return err
}

func write(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
	_, err := tx.Exec(ctx, "insert into effects (name) values ('effect')")
	return idem.Response{Status: 201, Body: []byte("made")}, err
}
