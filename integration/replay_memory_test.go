package integration

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/idem/replaycache"
)

// replays records n answers and returns the keys and copies that a cache was
// given, in their order.
func replays(t *testing.T, n int, response func(i int) idem.Response) []kept {
	t.Helper()
	cache := &recordingCache{}
	b := newBench(t, idem.Config{ReplayCache: cache}, maxConns(1))
	for i := range n {
		mustDo(t, b.store, request(fmt.Sprint("k", i)), func(context.Context, pgx.Tx) (idem.Response, error) { return response(i), nil })
	}
	all := make([]kept, n)
	for i, key := range cache.keys {
		all[i] = kept{key, cache.kept[key]}
	}
	return all
}

type kept struct {
	key    idem.ReplayKey
	replay *idem.CachedReplay
}

func present(c *replaycache.Cache, all []kept) (n int) {
	for _, k := range all {
		if got := c.Get(k.key); got == k.replay {
			n++
		}
	}
	return n
}

// Goal: the cache holds what it may hold, in bytes: it fills up, never exceeds
// its limit, refuses what is larger than a sixteenth of it, and keeps what is
// asked for again. Method: answers of 8 KiB for a cache of 256 KiB.
func TestTheCacheIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	const limit = 256 << 10
	all := replays(t, 203, func(i int) idem.Response {
		switch i {
		case 201:
			return idem.Response{Body: make([]byte, limit/16)}
		case 202:
			return idem.Response{Header: http.Header{"X-Long": {strings.Repeat("x", 15<<10)}}, Body: make([]byte, 2<<10)}
		}
		return idem.Response{Body: make([]byte, 8<<10)}
	})
	cache := newCache(t, limit)
	hot, large := all[0], all[201:]
	cache.Set(hot.key, hot.replay)
	for _, k := range all[1:201] {
		for range 3 {
			if cache.Get(hot.key) == nil {
				cache.Set(hot.key, hot.replay)
				t.Error("the answer that is asked for all the time was displaced")
			}
		}
		cache.Set(k.key, k.replay)
		if n := cache.Bytes(); n > limit {
			t.Fatalf("the cache holds %d bytes, its limit is %d", n, limit)
		}
	}
	if n := present(cache, all); n != cache.Entries() || n < 25 || n > 31 {
		t.Errorf("%d answers of 8 KiB and a half are in %d bytes, and Entries is %d", n, limit, cache.Entries())
	}
	for _, k := range large {
		cache.Set(k.key, k.replay)
		if cache.Get(k.key) != nil {
			t.Errorf("an answer of %d bytes was kept", k.replay.Bytes())
		}
	}
	cache.Clear()
	if cache.Bytes() != 0 || cache.Entries() != 0 || present(cache, all) != 0 {
		t.Errorf("after Clear there are %d bytes of %d answers", cache.Bytes(), cache.Entries())
	}
}

// Goal: the bytes that are counted are the bytes that are taken. Method: the heap
// before and after a cache is filled, for answers of several shapes; not
// parallel, so that nothing else allocates.
func TestTheCacheCountsWhatItTakes(t *testing.T) {
	for name, response := range map[string]func(i int) idem.Response{
		"bare":    func(int) idem.Response { return idem.Response{} },
		"body":    func(i int) idem.Response { return idem.Response{Body: make([]byte, 100+i%1000)} },
		"headers": func(int) idem.Response { return receipt("k") },
		"many headers": func(i int) idem.Response {
			header := http.Header{}
			for j := range 20 {
				header[fmt.Sprint("X-Header-", j)] = []string{fmt.Sprint(i), "two"}
			}
			return idem.Response{Header: header}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cache := filled(t, 1000, response)
			full, counted := heap(), cache.Bytes()
			cache.Clear()
			taken := full - heap()
			runtime.KeepAlive(cache)
			t.Logf("%d bytes counted, %d taken", counted, taken)
			if taken > counted*11/10 || taken < counted/2 {
				t.Errorf("%d bytes are taken and %d counted", taken, counted)
			}
		})
	}
}

// filled is a cache with n answers, and nothing else of them.
func filled(t *testing.T, n int, response func(i int) idem.Response) *replaycache.Cache {
	t.Helper()
	cache := newCache(t, 64<<20)
	for _, k := range replays(t, n, response) {
		cache.Set(k.key, k.replay)
	}
	if cache.Entries() != n {
		t.Fatalf("%d of %d answers were kept", cache.Entries(), n)
	}
	return cache
}

// heap is how many bytes are in use.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A replay from memory allocates the answer that it gives away and little else.
func TestACachedReplayAllocatesLittle(t *testing.T) {
	b := newBench(t, idem.Config{ReplayCache: newCache(t, 0)})
	r, mutation, ctx := request("k"), created("k"), t.Context()
	mustDo(t, b.store, r, mutation)
	allocations := testing.AllocsPerRun(1000, func() {
		if result, err := b.store.Do(ctx, r, mutation); err != nil || !result.Replayed {
			t.Errorf("got %+v, %v", result, err)
		}
	})
	t.Logf("%v allocations", allocations)
	if allocations > 16 {
		t.Errorf("a replay from memory takes %v allocations, want at most 16", allocations)
	}
}
