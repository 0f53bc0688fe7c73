//go:build unix

package integration

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// clusterScript runs a server until it ends or standard input does, which is
// when the test process ends, however that happens.
const clusterScript = `"$@" </dev/null & cat >/dev/null; kill -QUIT $! 2>/dev/null; wait $!`

// cluster is a server of the local programs that a test may kill and start
// again on the same data. Servers from other sources lose their data with the
// process.
type cluster struct {
	bin, dir string
	port     uint16
	account  *syscall.Credential // nil: the caller
	lifeline io.Closer
	command  *exec.Cmd
}

// newCluster makes a cluster that has not been started.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{bin: findServerPrograms(t), port: freePort(t)}
	var err error
	if c.dir, err = os.MkdirTemp("/tmp", "idempg-cluster-"); err != nil { // t.TempDir is closed to other users
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(c.dir) })
	if os.Geteuid() == 0 { // the server refuses to run as root
		c.account = findAccount(t)
		if err := os.Chown(c.dir, int(c.account.Uid), int(c.account.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// findServerPrograms returns the directory of the server programs. A server in
// a container cannot take their place here.
func findServerPrograms(t *testing.T) string {
	t.Helper()
	packaged, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // fails only on a malformed pattern
	for _, dir := range append(packaged, filepath.SplitList(os.Getenv("PATH"))...) {
		if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err == nil {
			if _, err := exec.LookPath(filepath.Join(dir, "pg_basebackup")); err == nil {
				return dir
			}
		}
	}
	if inCI, _ := strconv.ParseBool(os.Getenv("CI")); inCI { // unset is false
		t.Fatal("no PostgreSQL server programs here")
	}
	t.Skip("no PostgreSQL server programs here: install them (Debian, Ubuntu: apt-get install postgresql) to run this test")
	return ""
}

func findAccount(t *testing.T) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.ParseUint(found.Uid, 10, 32)
		gid, _ := strconv.ParseUint(found.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	t.Fatal("neither a user postgres nor nobody to run a server as")
	return nil
}

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }

// program prepares one of the server programs.
func (c *cluster) program(name string, arguments ...string) *exec.Cmd {
	command := exec.Command(name, arguments...)
	command.Dir = c.dir
	command.SysProcAttr = &syscall.SysProcAttr{Credential: c.account, Setpgid: true}
	return command
}

func (c *cluster) mustRun(t *testing.T, name string, arguments ...string) {
	t.Helper()
	if output, err := c.program(filepath.Join(c.bin, name), arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, output)
	}
}

// start runs the server and returns when it answers. After a kill, the old
// server's processes may still be on their way out, and it has to be tried again.
func (c *cluster) start(t *testing.T) {
	t.Helper()
	err := eventually(60*time.Second, func() error {
		if c.command != nil && c.answers() == nil {
			return nil
		}
		c.stop()
		if err := c.launch(); err != nil {
			return err
		}
		return eventually(10*time.Second, c.answers)
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(c.dir, "log"))
		t.Fatalf("the server does not start: %v\n%s", err, log)
	}
}

func (c *cluster) launch() error {
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c.command = c.program("/bin/sh", "-c", clusterScript, "sh", filepath.Join(c.bin, "postgres"), "-D", c.data(),
		"-c", "listen_addresses=127.0.0.1", "-c", fmt.Sprint("port=", c.port), "-c", "unix_socket_directories=", "-c", "fsync=off")
	c.command.Stdout, c.command.Stderr = log, log
	if c.lifeline, err = c.command.StdinPipe(); err != nil {
		return err
	}
	return c.command.Start()
}

func (c *cluster) answers() error {
	config, err := pgx.ParseConfig(c.url())
	if err != nil {
		return err
	}
	config.ConnectTimeout = 5 * time.Second
	conn, err := pgx.ConnectConfig(context.Background(), config)
	if err == nil {
		err = conn.Close(context.Background())
	}
	return err
}

// stop ends the server and its shell, if they run.
func (c *cluster) stop() {
	if c.command != nil {
		_ = c.lifeline.Close()
		_ = c.command.Wait() // the code of an immediate shutdown says nothing
		c.command = nil
	}
}

// kill ends the server's first process in a way that it cannot notice. The
// others end when they see that it is gone.
func (c *cluster) kill(t *testing.T) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(file), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.stop()
}

func (c *cluster) url() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", c.port)
}

// newClusterServer starts a new cluster and returns it as a server for tests.
func newClusterServer(t *testing.T) (*cluster, *server) {
	t.Helper()
	c := newCluster(t)
	c.mustRun(t, "initdb", "--pgdata="+c.data(), "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	c.start(t)
	s := &server{url: c.url(), source: c.bin, stopSource: func() error { c.stop(); return nil }}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("stop the test's own cluster: %v", err)
		}
	})
	if err := s.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, s
}
