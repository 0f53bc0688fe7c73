package main

import (
	"context"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/idem/replaycache"
)

// The two benchmarks measure one replay of an answer of 1 KiB with three
// headers, from one caller at a time, as the database gives it and as
// Config.ReplayCache does:
//
//	go test -run '^$' -bench Replay -benchmem ./integration/bench
func BenchmarkReplayDatabase(b *testing.B) { benchmarkReplay(b, idem.Config{}) }

func BenchmarkReplayCache(b *testing.B) {
	cache, err := replaycache.New(replaycache.Config{})
	if err != nil {
		b.Fatal(err)
	}
	benchmarkReplay(b, idem.Config{ReplayCache: cache})
}

func benchmarkReplay(b *testing.B, config idem.Config) {
	store, err := idem.New(newPool(b), config)
	if err != nil {
		b.Fatal(err)
	}
	request := idem.Request{Scope: "acme", Operation: "POST /replays", Key: "k", Fingerprint: idem.NewFingerprint([]byte("body"))}
	answer := idem.Response{
		Status: http.StatusCreated,
		Header: http.Header{"Content-Type": {"application/json"}, "Location": {"/replays/1"}, "Etag": {`"1"`}},
		Body:   make([]byte, 1<<10),
	}
	mutation := func(context.Context, pgx.Tx) (idem.Response, error) { return answer, nil }
	if _, err := store.Do(b.Context(), request, mutation); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if result, err := store.Do(b.Context(), request, mutation); err != nil || !result.Replayed {
			b.Fatal(result, err)
		}
	}
}
