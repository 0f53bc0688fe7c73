// Package replaycache answers hot retries from memory: it is an
// [idem.ReplayCache] bounded in bytes.
//
//	cache, err := replaycache.New(replaycache.Config{BytesMax: 64 << 20})
//	...
//	store, err := idem.New(pool, idem.Config{ReplayCache: cache})
//
// A finished record never changes before it expires, so a copy of it answers as
// the database would. What differs is what happens to a record that is removed
// earlier, by an asynchronous failover or by hand: a process that has a copy
// answers from it until the record would have expired, or until [Cache.Clear].
// Leave the cache out if that must not be.
//
// What is kept is chosen by how often and how recently it was asked for
// (W-TinyLFU), so that the many keys that are never retried do not displace the
// few that are. The cache has no goroutine and needs no closing.
package replaycache

import (
	"fmt"

	"github.com/maypok86/otter/v2"

	"github.com/idempg/idempg/idem"
)

const (
	// entryBytes is what the cache takes for an entry beside the replay itself:
	// the key, the node, its place in the hash table.
	entryBytes = 256

	// entryFraction of the whole is the most that one entry may take.
	entryFraction = 16

	// At bytesMin a short answer is still less than its fraction; at bytesMax
	// the weight of an entry still fits otter's 32 bits.
	bytesMin = 64 << 10
	bytesMax = 16 << 30
)

// Config sets the limit of a [Cache].
type Config struct {
	// BytesMax bounds the memory of all entries: headers and bodies as they
	// are, plus 512 bytes for each entry and up to 56 for each header. The
	// allocator's rounding comes on top, about a tenth. An answer that would
	// take more than a sixteenth is not kept. 64 KiB to 16 GiB. Defaults to
	// 32 MiB.
	BytesMax int
}

// Cache keeps answers in memory. Make one with [New].
type Cache struct {
	entries       *otter.Cache[idem.ReplayKey, *idem.CachedReplay]
	entryBytesMax int
}

var _ idem.ReplayCache = (*Cache)(nil)

// New makes an empty Cache. It returns an error that names the field when config
// is out of its limits.
func New(config Config) (*Cache, error) {
	if config.BytesMax == 0 {
		config.BytesMax = 32 << 20
	}
	if config.BytesMax < bytesMin || int64(config.BytesMax) > bytesMax {
		return nil, fmt.Errorf("replaycache: Config.BytesMax is %d: %d to %d, or 0 for the default", config.BytesMax, bytesMin, int64(bytesMax))
	}
	entries, err := otter.New(&otter.Options[idem.ReplayKey, *idem.CachedReplay]{
		MaximumWeight: uint64(config.BytesMax),
		Weigher: func(_ idem.ReplayKey, replay *idem.CachedReplay) uint32 {
			return uint32(weigh(replay)) // at most BytesMax / entryFraction, see Set
		},
		Executor: func(maintain func()) { maintain() }, // where the caller is: no goroutine outlives a call
	})
	if err != nil {
		return nil, fmt.Errorf("replaycache: %w", err)
	}
	return &Cache{entries: entries, entryBytesMax: config.BytesMax / entryFraction}, nil
}

func weigh(replay *idem.CachedReplay) int { return entryBytes + replay.Bytes() }

// Get returns the replay of key, or nil.
func (c *Cache) Get(key idem.ReplayKey) *idem.CachedReplay {
	replay, _ := c.entries.GetIfPresent(key)
	return replay
}

// Set keeps replay for key, unless it is too large.
func (c *Cache) Set(key idem.ReplayKey, replay *idem.CachedReplay) {
	if weigh(replay) <= c.entryBytesMax {
		c.entries.Set(key, replay)
	}
}

// Clear forgets everything: for after a failover that lost commits, or when
// records were removed by hand. A call that has already read its record may
// still put it back; clear again when such calls have ended.
func (c *Cache) Clear() { c.entries.InvalidateAll() }

// Bytes is how much of Config.BytesMax is taken, and Entries by how many answers.
func (c *Cache) Bytes() int { return int(c.entries.WeightedSize()) }

// Entries is about how many answers are kept, those that have expired included.
func (c *Cache) Entries() int { return c.entries.EstimatedSize() }
