package main

import (
	"context"
	"errors"
	"time"
)

// servers are a Postgres and a Redis that keep their data in the same way, and
// the lines to them.
type servers struct {
	durable  bool
	postgres *postgresServer
	redis    *redisServer
}

func startServers(ctx context.Context, durable bool) (*servers, error) {
	redis, err := startRedis(ctx, durable)
	if err != nil {
		return nil, err
	}
	postgres, err := startPostgres(ctx, durable)
	if err != nil {
		return nil, errors.Join(err, redis.stop())
	}
	return &servers{durable: durable, postgres: postgres, redis: redis}, nil
}

func (s *servers) stop() error { return errors.Join(s.postgres.stop(), s.redis.stop()) }

// lines are the lines to both servers.
type lines struct{ postgres, redis *line }

// newLines starts a line to each server.
func (s *servers) newLines(roundTrip time.Duration) (*lines, error) {
	postgres, err := newLine(hostOf(s.postgres.URL), roundTrip)
	if err != nil {
		return nil, err
	}
	redis, err := newLine(s.redis.address, roundTrip)
	if err != nil {
		return nil, errors.Join(err, postgres.close())
	}
	return &lines{postgres, redis}, nil
}

func (l *lines) close() error { return errors.Join(l.postgres.close(), l.redis.close()) }

func (l *lines) trips() int64 { return l.postgres.trips.Load() + l.redis.trips.Load() }

// direct is a place beside the servers.
func (s *servers) direct(conns int) *place {
	return &place{postgresURL: s.postgres.URL, redisAddress: s.redis.address, conns: conns}
}

// behind is a place at the other end of the lines.
func (s *servers) behind(l *lines, conns int) *place {
	return &place{
		postgresURL:  throughLine(s.postgres.URL, l.postgres.address()),
		redisAddress: l.redis.address(), conns: conns,
	}
}
