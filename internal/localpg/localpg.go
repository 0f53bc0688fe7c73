// Package localpg yields a Postgres server for programs and tests that should
// run without any set-up.
//
// It takes the first source that is there:
//
//  1. the server named by an environment variable, used as it is;
//  2. the server programs of this machine, started on a throwaway cluster;
//  3. the docker command, with the official image.
//
// A server that localpg starts listens on the loopback interface alone, asks
// for a random password, and goes away with its data at [Server.Stop] or when
// this process dies, however it dies. So it is no place for data to keep.
package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// startTries bounds the starts on a port that another program then takes.
const startTries = 3

// Options say which servers will do. The zero value starts one with durable
// settings.
type Options struct {
	// URLVariable names the environment variable that holds the URL of a
	// server to use as it is, without starting one. Defaults to none.
	URLVariable string

	// Volatile trades durability for speed: a crash of the machine may
	// corrupt the data, a crash of the server does not. Defaults to false,
	// the settings of a production server.
	Volatile bool

	// Settings are further server settings by name, such as
	// "max_connections". They do not apply to a server that runs already.
	// Defaults to none.
	Settings map[string]string

	// NoDocker leaves out the third source, which may download an image.
	// Defaults to false.
	NoDocker bool

	// Image is the image for the third source. Defaults to "postgres:18".
	Image string

	// StartWait bounds the start, the download of an image included.
	// Defaults to 3 minutes.
	StartWait time.Duration
}

// Server is a Postgres server that answers.
type Server struct {
	// URL connects to the server's maintenance database as a superuser, or
	// to whatever the environment variable named.
	URL string

	// Source says in words where the server came from.
	Source string

	process *process // nil if the server was there before
}

// Start returns a server that accepts connections. The caller stops it.
func Start(ctx context.Context, options Options) (*Server, error) {
	if options.StartWait <= 0 {
		options.StartWait = 3 * time.Minute
	}
	if options.Image == "" {
		options.Image = "postgres:18"
	}
	ctx, cancel := context.WithTimeout(ctx, options.StartWait)
	defer cancel()

	if url := os.Getenv(options.URLVariable); options.URLVariable != "" && url != "" {
		server := &Server{URL: url, Source: "environment variable " + options.URLVariable}
		if err := server.await(ctx); err != nil {
			return nil, fmt.Errorf("localpg: the server named by %s does not answer: %w", options.URLVariable, err)
		}
		return server, nil
	}

	start, source := chooseSource(ctx, options)
	if start == nil {
		return nil, errors.New(advice(options))
	}
	server, err := start(ctx, options)
	for try := 1; errors.Is(err, errPortTaken) && try < startTries; try++ {
		server, err = start(ctx, options)
	}
	if err != nil {
		return nil, fmt.Errorf("localpg: start Postgres from %s: %w", source, err)
	}
	server.Source = source
	return server, nil
}

// Stop ends the server and removes its data. It does nothing to a server that
// was there before, and nothing the second time.
func (s *Server) Stop() error {
	if s.process == nil {
		return nil
	}
	return s.process.stop()
}

type startFunc func(context.Context, Options) (*Server, error)

func chooseSource(ctx context.Context, options Options) (startFunc, string) {
	if bin := findBinaries(); bin != "" {
		return func(ctx context.Context, options Options) (*Server, error) {
			return startCluster(ctx, bin, options)
		}, bin
	}
	if !options.NoDocker && dockerAnswers(ctx) {
		return startContainer, "docker image " + options.Image
	}
	return nil, ""
}

// advice is the error when no source is there: it tells what to do.
func advice(options Options) string {
	text := "localpg: found no Postgres; do one of these:\n"
	if options.URLVariable != "" {
		text += "  - set " + options.URLVariable + "=postgres://user:password@host:5432/database\n"
	}
	text += "  - install the server programs (Debian, Ubuntu: apt install postgresql; macOS: brew install postgresql@18)\n" +
		"    or put the directory that holds initdb and postgres on PATH"
	if !options.NoDocker {
		text += "\n  - install docker and start it, so that `docker version` succeeds"
	}
	return text
}

// await returns when the server answers a connection, fails for good, or ctx
// ends. A server of our own fails for good when its process ends.
func (s *Server) await(ctx context.Context) error {
	var exited <-chan struct{}
	if s.process != nil {
		exited = s.process.exited
	}
	for {
		err := connect(ctx, s.URL)
		if err == nil {
			return nil
		}
		if s.process == nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-exited:
			return errors.New("the server ended before it accepted a connection")
		case <-ctx.Done():
			return fmt.Errorf("%w; last answer: %w", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func connect(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}
