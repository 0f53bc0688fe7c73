package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
)

const chunkItems = 100

// BenchmarkMany measures how many messages of a queue one consumer handles on a
// disk that COMMIT waits for: one by one with Do, one by one with DoBatch, and
// with DoMany in chunks of 100. One iteration is a slice of each, in turns first;
// the figures are medians, and ratios of the slices of one iteration:
//
//	go test -run '^$' -bench Many -benchtime 7x ./integration/bench
func BenchmarkMany(b *testing.B) {
	server, err := startPostgres(b.Context(), true)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := server.stop(); err != nil {
			b.Error(err)
		}
	}()
	pool, err := pgxpool.New(b.Context(), server.URL)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		b.Fatal(err)
	}
	ways := []struct {
		name   string
		handle func(context.Context, *idem.Store, []request) error
	}{{"do", handleEach}, {"batch", handleEachBatch}, {"many", handleMany}}
	rates := map[string][]float64{}
	for i := range b.N + 1 { // the first is the warm-up
		rate := map[string]float64{}
		for turn := range ways {
			way := ways[(i+turn)%len(ways)]
			rate[way.name] = messageRate(b, func(rs []request) error { return way.handle(b.Context(), store, rs) })
		}
		if i == 0 {
			continue
		}
		for _, way := range ways {
			rates[way.name+"-items/s"] = append(rates[way.name+"-items/s"], rate[way.name])
		}
		rates["many/batch"] = append(rates["many/batch"], rate["many"]/rate["batch"])
		rates["many/do"] = append(rates["many/do"], rate["many"]/rate["do"])
	}
	b.ReportMetric(0, "ns/op") // means nothing here
	for unit, values := range rates {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], unit)
	}
}

// messageRate is how many new messages a second handle gets through.
func messageRate(b *testing.B, handle func([]request) error) float64 {
	b.Helper()
	start, handled := time.Now(), 0
	for time.Since(start) < time.Second {
		messages := make([]request, chunkItems)
		for i := range messages {
			messages[i] = newRequest(1+rand.IntN(accounts), 200)
		}
		if err := handle(messages); err != nil {
			b.Fatal(err)
		}
		handled += len(messages)
	}
	return float64(handled) / time.Since(start).Seconds()
}

func handleEach(ctx context.Context, store *idem.Store, messages []request) error {
	for _, m := range messages {
		if _, err := m.do(ctx, store); err != nil {
			return err
		}
	}
	return nil
}

func handleEachBatch(ctx context.Context, store *idem.Store, messages []request) error {
	for _, m := range messages {
		if _, err := store.DoBatch(ctx, m.keyed(), m.batch()); err != nil {
			return err
		}
	}
	return nil
}

func handleMany(ctx context.Context, store *idem.Store, messages []request) error {
	items := make([]idem.Item, len(messages))
	for i, m := range messages {
		items[i] = idem.Item{Request: m.keyed(), Batch: m.batch()}
	}
	results, err := store.DoMany(ctx, items, idem.ManyOptions{ChunkItemsMax: chunkItems})
	for _, r := range results {
		if r.Err != nil {
			return r.Err
		}
	}
	return err
}
