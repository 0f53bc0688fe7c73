package integration

import (
	"context"
	"fmt"
	"os"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
)

func TestZZPerf(t *testing.T) {
	if os.Getenv("ZZ") == "" {
		t.Skip()
	}
	b := newBench(t, idem.Config{}, maxConns(16), func(c *pgxpool.Config) { c.MinConns = 16 })
	b.exec(t, "create table acct (id int primary key, balance bigint) with (fillfactor=50); insert into acct select i, 0 from generate_series(1,1000) i; alter table acct set (autovacuum_enabled=false)")
	ctx := context.Background()
	var n int64
	var mu sync.Mutex
	next := func() int64 { mu.Lock(); defer mu.Unlock(); n++; return n }
	body := []byte(`{"ok":true,"id":12345}`)
	work := func(ctx context.Context, tx pgx.Tx, i int64) error {
		if _, err := tx.Exec(ctx, "update acct set balance = balance + 1 where id = $1", int(i%1000)+1); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into effects (name) values ($1)", "x")
		return err
	}
	bare := func() {
		i := next()
		if err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return work(ctx, tx, i) }); err != nil {
			panic(err)
		}
	}
	do := func() {
		i := next()
		_, err := b.store.Do(ctx, request(fmt.Sprint("p", i)), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			return idem.Response{Status: 201, Body: body}, work(ctx, tx, i)
		})
		if err != nil {
			panic(err)
		}
	}
	batch := func() {
		i := next()
		q := &idem.Batch{}
		q.Queue("update acct set balance = balance + 1 where id = $1", int(i%1000)+1)
		q.Queue("insert into effects (name) values ($1)", "x")
		q.Respond(nil, "select 201, $1::bytea", body)
		if _, err := b.store.DoBatch(ctx, request(fmt.Sprint("p", i)), q); err != nil {
			panic(err)
		}
	}
	replay := func() {
		if _, err := b.store.Do(ctx, request("p1"), nil); err != nil {
			panic(err)
		}
	}
	mustDo(t, b.store, request("p1"), created("z"))
	n = 1
	sel := func() {
		var s string
		if err := b.pool.QueryRow(ctx, "select key from idem.records where id = $1::uuid", "00000000-0000-0000-0000-000000000000").Scan(&s); err != pgx.ErrNoRows {
			panic(err)
		}
	}
	type sys struct {
		name string
		f    func()
	}
	systems := []sys{{"bare", bare}, {"do", do}, {"batch", batch}, {"select", sel}, {"replay", replay}}
	if only := os.Getenv("ZZ"); only != "all" {
		var s2 []sys
		for _, s := range systems {
			if s.name == only {
				s2 = append(s2, s)
			}
		}
		systems = s2
	}
	for _, clients := range []int{1, 8} {
		res := map[string][]float64{}
		p50 := map[string][]float64{}
		for round := 0; round < 7; round++ {
			for k := range systems {
				s := systems[(k+round)%len(systems)]
				var wg sync.WaitGroup
				stop := time.Now().Add(700 * time.Millisecond)
				var lat []float64
				var lm sync.Mutex
				for range clients {
					wg.Go(func() {
						var mine []float64
						for time.Now().Before(stop) {
							t0 := time.Now()
							s.f()
							mine = append(mine, float64(time.Since(t0).Microseconds()))
						}
						lm.Lock()
						lat = append(lat, mine...)
						lm.Unlock()
					})
				}
				wg.Wait()
				sort.Float64s(lat)
				res[s.name] = append(res[s.name], float64(len(lat))/0.7)
				p50[s.name] = append(p50[s.name], lat[len(lat)/2])
			}
		}
		med := func(v []float64) float64 { sort.Float64s(v); return v[len(v)/2] }
		for _, s := range systems {
			fmt.Printf("clients %d %-7s %8.0f/s p50 %6.0f us\n", clients, s.name, med(res[s.name]), med(p50[s.name]))
		}
	}
}
