package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// client sends requests to a system, one after the other.
type client func(ctx context.Context, r request) (answer, error)

// system is one way to carry requests out.
type system struct {
	name string

	role role

	// floor names the system that does the same without a key, on the same side
	// of Fiber; it is its own floor.
	floor string

	// newClient makes a client for one goroutine.
	newClient func() client

	place *place            // its own
	seeds map[int][]request // of answers that have a record, by size
}

// role is what a system is compared for.
type role string

const (
	ours  role = "ours"
	peer  role = "peer"
	floor role = "floor" // protects nothing
)

// The names of the systems that others are compared with.
const (
	bare         = "bare transaction"
	core         = "idempg"
	coreWaiting  = "idempg, ClaimWait"
	redisOnce    = "Redis SETNX"
	primaryKey   = "primary-key SELECT"
	bareFiber    = "bare transaction, Fiber"
	coreFiber    = "idempg, Fiber"
	redisOnFiber = "Redis SETNX, Fiber"
	bareBatch    = "bare batch"
	coreCache    = "idempg, replay cache"
	cacheFiber   = "idempg, replay cache, Fiber"
)

// place is where a system runs: the servers as it sees them, and what it opened
// there. Every system has a place of its own, and pools of one size.
type place struct {
	postgresURL  string
	redisAddress string
	conns        int

	pools   []*pgxpool.Pool
	held    int32 // connections that the system keeps all the time
	closers []func() error
}

// builder makes a system at a place.
type builder = func(context.Context, *place) (*system, error)

// builders make the systems, in the order of the page.
var builders = []builder{
	newBare,
	newBareBatch,
	newCore,
	newWaiting,
	newCached,
	newDoBatch,
	newSeparate,
	newTransactions,
	newRedis,
	newDBOS,
	newPrimaryKey,
	newBareFiber,
	newCoreFiber,
	newCachedFiber,
	newDoBatchFiber,
	newRedisFiber,
	newFiberIdempotency,
}

// build makes the system of one builder at a place.
func build(ctx context.Context, p *place, newSystem builder) (*system, error) {
	s, err := newSystem(ctx, p)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	s.place, s.seeds = p, map[int][]request{}
	return s, nil
}

// buildAll makes all systems, each at a place that newPlace gives.
func buildAll(ctx context.Context, newPlace func() *place) (systems []*system, err error) {
	for _, newSystem := range builders {
		s, err := build(ctx, newPlace(), newSystem)
		if err != nil {
			return nil, errors.Join(err, closeAll(systems))
		}
		systems = append(systems, s)
	}
	return systems, nil
}

func closeAll(systems []*system) error {
	var failed []error
	for _, s := range systems {
		failed = append(failed, s.place.close())
	}
	return errors.Join(failed...)
}

// pool opens a pool that ends with the place.
func (p *place) pool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(p.postgresURL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(p.conns)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	p.pools = append(p.pools, pool)
	p.closers = append(p.closers, func() error { pool.Close(); return nil })
	return pool, nil
}

// redis opens a Redis client that ends with the place.
func (p *place) redis() *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: p.redisAddress, PoolSize: p.conns, DisableIdentity: true})
	p.closers = append(p.closers, rdb.Close)
	return rdb
}

// settle waits until no transaction is under way: idempg rolls a replay back after
// it has answered.
func (p *place) settle() {
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
		acquired := int32(0)
		for _, pool := range p.pools {
			acquired += pool.Stat().AcquiredConns()
		}
		if acquired <= p.held {
			return
		}
	}
}

// close ends what the place's systems opened, the last first.
func (p *place) close() error {
	var failed []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		failed = append(failed, p.closers[i]())
	}
	return errors.Join(failed...)
}
