// Package storm attacks the service and then audits it.
//
// It runs a few instances of the service on one throwaway Postgres, and clients
// that behave as badly as real ones: they send one request many times at once
// and to every instance, go away in the middle, ask again where no answer came,
// and use a key for something else. Meanwhile it kills instances and backends at
// random. Each key is pursued until it has its answer.
//
// The audit compares what the clients were told with what the book holds: see
// [Report]. The plan of the requests depends on the seed alone; what meets what
// depends on the machine.
package storm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/examples/ledger/supervisor"
	"github.com/idempg/idempg/internal/localpg"
)

const (
	tenant          = "storm"
	applicationName = "ledger-storm" // by which its backends are known
	readyTimeout    = time.Minute
	clientsMax      = 64
	instancesMax    = 4    // have fewer connections together than Postgres permits
	askAgainMax     = 1000 // keys that are asked for once more in the end
)

// Config says how long the storm is and how hard it blows.
type Config struct {
	// For is how long the clients begin new tasks. Required.
	For time.Duration

	// Seed decides what the clients do.
	Seed uint64

	// Clients is how many there are, 1 to 64. One sends up to 20 requests at
	// once. Required.
	Clients int

	// Instances is how many instances of the service there are, 1 to 4.
	// Required.
	Instances int

	// DatabaseURL names an empty database to use. Defaults to a throwaway
	// Postgres.
	DatabaseURL string

	// Program is the path of the service. Defaults to the program that runs.
	Program string

	// LogFile is the path of a file for what the instances log. Defaults to
	// none.
	LogFile string

	// Progress is where to show how far it is. Defaults to nowhere.
	Progress io.Writer
}

// Storm is a running set of instances, and the clients' memory.
type Storm struct {
	config    Config
	server    *localpg.Server // nil if the database is another's
	pool      *pgxpool.Pool
	log       *os.File // of all instances
	instances []*supervisor.Supervisor
	client    client
	memory    memory
	time      time.Duration
	requests  atomic.Int64
	kills     atomic.Int64
	restarts  atomic.Int64
	backends  atomic.Int64
}

// Tally is what has happened so far.
type Tally struct {
	Requests int64 // that clients sent
	Kills    int64 // of instances, by SIGKILL
	Restarts int64 // of instances, by SIGTERM
	Backends int64 // that were terminated
}

func (c Config) validate() error {
	switch {
	case c.For <= 0:
		return errors.New("storm: Config.For must be above 0")
	case c.Clients < 1 || c.Clients > clientsMax:
		return fmt.Errorf("storm: Config.Clients must be 1 to %d", clientsMax)
	case c.Instances < 1 || c.Instances > instancesMax:
		return fmt.Errorf("storm: Config.Instances must be 1 to %d", instancesMax)
	}
	return nil
}

// Start starts the database and the instances, and opens the accounts. The
// caller calls Stop in the end.
func Start(ctx context.Context, config Config) (_ *Storm, err error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Storm{config: config, memory: memory{owned: map[string]bool{}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	url := config.DatabaseURL
	if url == "" {
		if s.server, err = localpg.Start(ctx, localpg.Options{}); err != nil {
			return nil, err
		}
		url = s.server.URL
	}
	if s.pool, err = pgxpool.New(ctx, url); err != nil {
		return nil, err
	}
	s.client = client{
		http:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: burstMax}},
		memory: &s.memory, requests: &s.requests,
	}
	if s.log, err = os.Create(cmp.Or(config.LogFile, os.DevNull)); err != nil {
		return nil, err
	}
	for range config.Instances {
		instance, err := supervisor.Start(supervisor.Config{
			Addr: "127.0.0.1:0", Program: config.Program, Stderr: s.log,
			Env: []string{"DATABASE_URL=" + url, "LEDGER_API_KEYS=" + apiKey + ":" + tenant, "PGAPPNAME=" + applicationName},
		})
		if err != nil {
			return nil, err
		}
		s.instances = append(s.instances, instance)
		s.client.urls = append(s.client.urls, "http://"+instance.Addr().String())
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s, s.client.openAccounts(ctx)
}

// ready returns when every instance is.
func (s *Storm) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, instance := range s.instances {
		if err := instance.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the instances and the Postgres.
func (s *Storm) Stop() error {
	var errs []error
	for _, instance := range s.instances {
		errs = append(errs, instance.Stop())
	}
	if s.client.http != nil {
		s.client.http.CloseIdleConnections()
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	if s.pool != nil {
		s.pool.Close()
	}
	if s.server != nil {
		errs = append(errs, s.server.Stop())
	}
	return errors.Join(errs...)
}

// Tally returns what has happened so far.
func (s *Storm) Tally() Tally {
	return Tally{s.requests.Load(), s.kills.Load(), s.restarts.Load(), s.backends.Load()}
}

// Blow lets the clients and the havoc loose until the time is over or ctx ends,
// and returns when every key has its answer or was pursued for too long.
func (s *Storm) Blow(ctx context.Context) error {
	start := time.Now()
	storm, cancel := context.WithTimeout(ctx, s.config.For)
	defer cancel()
	// An interrupted storm is shorter, and its audit as strict.
	ctx = context.WithoutCancel(ctx)
	var clients, others sync.WaitGroup
	answered := make(chan struct{})
	others.Go(func() { s.wreak(storm) })
	others.Go(func() { s.show(storm, answered) })
	for i := range s.config.Clients {
		plan := newPlan(s.config.Seed, i+1, s.config.Instances)
		clients.Go(func() {
			for storm.Err() == nil {
				t := plan.next()
				s.client.carryOut(ctx, t)
				pause(storm, t.pause)
			}
		})
	}
	<-storm.Done()
	s.time = time.Since(start)
	clients.Wait()
	close(answered)
	others.Wait()
	if err := s.ready(ctx); err != nil {
		return fmt.Errorf("after the storm: %w", err)
	}
	s.askAgain(ctx)
	return nil
}

// askAgain asks once more for some of the orders, now that all is quiet.
func (s *Storm) askAgain(ctx context.Context) {
	orders := s.memory.all()
	step := 1 + len(orders)/askAgainMax
	for i := 0; i < len(orders); i += step {
		s.client.ask(ctx, orders[i:i+1], i%len(s.instances))
	}
}
