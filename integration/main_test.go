// Package integration tests idempg as its users meet it: on a real Postgres.
//
// One server serves a run; [startServer] says where it comes from. Each test
// owns a database, see [newDatabase], and runs in parallel with the others.
package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// testServer is the server of this run.
var testServer *server

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx := context.Background()
	testServer, err = startServer(ctx)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, testServer.stop()) }()
	fmt.Println("integration: PostgreSQL", testServer.version, "from", testServer.source)

	// What the server needs to run was there before the tests. Tests are
	// parallel, so only the whole run can be asked what it left behind; a
	// failed one may leave anything.
	before := goleak.IgnoreCurrent()
	if code = m.Run(); code != 0 {
		return code, nil
	}
	return 0, goleak.Find(before)
}
