package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/internal/localpg"
	"github.com/idempg/idempg/migrations"
)

// urlVariable and imageVariable choose the server: see startServer.
const (
	urlVariable   = "IDEM_TEST_DATABASE_URL"
	imageVariable = "IDEM_TEST_IMAGE"
)

// serverSettings leave room for parallel tests with large pools. Losing the
// data in a crash of the machine is fine.
var serverSettings = map[string]string{
	"fsync": "off", "full_page_writes": "off", "max_connections": "300",
}

// server is the Postgres of one run.
type server struct {
	url        string // its maintenance database, as a superuser
	source     string
	version    string
	admin      *pgxpool.Pool
	template   string // the migrated database that tests clone
	stopSource func() error
}

// startServer takes the first of these sources that applies:
//
//  1. IDEM_TEST_DATABASE_URL: a server that runs already, with room for some
//     200 connections, as a user who may create databases and is superuser;
//  2. IDEM_TEST_IMAGE: a container of that image, pulled if it is not there,
//     or no container if it is "none";
//  3. a container of one of localImages, if a docker engine has it;
//  4. what localpg finds on this machine.
//
// A source that applies and fails fails the run, and so does finding none:
// nothing is skipped. With CI=true nothing is pulled from a registry.
func startServer(ctx context.Context) (*server, error) {
	s, err := chooseServer(ctx, urlVariable)
	if err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// newServer starts a server for one test that changes server-wide settings or
// kills it: from the run's source, but never the one that runs already.
func newServer(t *testing.T) *server {
	t.Helper()
	s, err := chooseServer(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("stop the test's own server: %v", err)
		}
	})
	if err := s.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func chooseServer(ctx context.Context, urlVariable string) (*server, error) {
	inCI, _ := strconv.ParseBool(os.Getenv("CI")) // unset is false
	if wanted := os.Getenv(imageVariable); (urlVariable == "" || os.Getenv(urlVariable) == "") && wanted != "none" {
		image, err := findImage(ctx, wanted, !inCI)
		if err != nil {
			return nil, err
		}
		if image != "" {
			return startContainer(ctx, image, serverSettings)
		}
	}
	local, err := localpg.Start(ctx, localpg.Options{
		URLVariable: urlVariable, Settings: serverSettings, NoDocker: inCI,
	})
	if err != nil {
		return nil, err
	}
	return &server{url: local.URL, source: local.Source, stopSource: local.Stop}, nil
}

// prepare connects to the server and makes the template of this run.
func (s *server) prepare(ctx context.Context) (err error) {
	if s.admin, err = pgxpool.New(ctx, s.url); err != nil {
		return err
	}
	if err := s.admin.QueryRow(ctx, "select current_setting('server_version')").Scan(&s.version); err != nil {
		return err
	}
	if s.template, err = s.createDatabase(ctx, "template0"); err != nil {
		return err
	}
	// Nothing may be connected to a template that is being cloned.
	pool, err := pgxpool.New(ctx, s.urlOf(s.template))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil {
		return fmt.Errorf("migrate the template: %w", err)
	}
	return nil
}

func (s *server) stop() error {
	var dropped error
	if s.template != "" {
		dropped = s.dropDatabase(context.Background(), s.template)
	}
	if s.admin != nil {
		s.admin.Close()
	}
	return errors.Join(dropped, s.stopSource())
}

// createDatabase returns the name of a new database, unique on a server that
// several runs share.
func (s *server) createDatabase(ctx context.Context, template string) (string, error) {
	name := "idem_test_" + strings.ToLower(rand.Text())
	if _, err := s.admin.Exec(ctx, "create database "+name+" template "+template); err != nil {
		return "", fmt.Errorf("create a database: %w", err)
	}
	return name, nil
}

func (s *server) dropDatabase(ctx context.Context, name string) error {
	_, err := s.admin.Exec(ctx, "drop database "+name+" with (force)")
	return err
}

// urlOf is the server's URL with another database.
func (s *server) urlOf(database string) string {
	parsed, err := url.Parse(s.url)
	if err != nil {
		panic(err) // it connected before
	}
	parsed.Path = "/" + database
	return parsed.String()
}
