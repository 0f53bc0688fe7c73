package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	redisProgram   = "redis-server"
	redisStartWait = 20 * time.Second
)

// errNoRedis says what to do.
var errNoRedis = errors.New("no " + redisProgram + " here: install it " +
	"(Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis)")

// redisScript runs a server until standard input ends, which it does when this
// process does, however it ends. Then it removes the directory, its first argument.
const redisScript = `dir=$1; shift; "$@" </dev/null & cat >/dev/null; kill $!; wait $!; cd /; rm -rf "$dir"`

// redisServer is a Redis of our own.
type redisServer struct {
	address, version string

	dir      string
	command  *exec.Cmd
	lifeline io.Closer
	log      bytes.Buffer
}

// startRedis starts a server that appends to a file and syncs it every second, as
// Redis is mostly run when it has to keep something; or one that keeps nothing.
func startRedis(ctx context.Context, durable bool) (_ *redisServer, err error) {
	program, err := exec.LookPath(redisProgram)
	if err != nil {
		return nil, errNoRedis
	}
	dir, err := os.MkdirTemp("", "idempg-redis-")
	if err != nil {
		return nil, err
	}
	s := &redisServer{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start Redis: %w", err), s.stop())
		}
	}()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s.address = net.JoinHostPort("127.0.0.1", port)
	appendOnly := "no"
	if durable {
		appendOnly = "yes"
	}
	s.command = exec.Command("/bin/sh", "-c", redisScript, "sh", dir, program, "--bind", "127.0.0.1", "--port", port,
		"--dir", dir, "--save", "", "--appendonly", appendOnly, "--appendfsync", "everysec", "--daemonize", "no")
	s.command.Stdout, s.command.Stderr = &s.log, &s.log
	if s.lifeline, err = s.command.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	return s, s.await(ctx)
}

var redisVersion = regexp.MustCompile(`redis_version:(\S+)`)

func (s *redisServer) await(ctx context.Context) error {
	rdb := redis.NewClient(&redis.Options{Addr: s.address, DisableIdentity: true})
	defer rdb.Close()
	for deadline := time.Now().Add(redisStartWait); ; time.Sleep(20 * time.Millisecond) {
		info, err := rdb.Info(ctx, "server").Result()
		if err == nil {
			if found := redisVersion.FindStringSubmatch(info); found != nil {
				s.version = found[1]
			}
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
	}
}

func (s *redisServer) stop() error {
	if s.lifeline != nil {
		_ = s.lifeline.Close()
		if s.command.Process != nil {
			_ = s.command.Wait() // the code of a terminated program says nothing
		}
	}
	return os.RemoveAll(s.dir)
}

func freePort() (string, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, errors.Join(err, listener.Close())
}
