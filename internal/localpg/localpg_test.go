//go:build unix

package localpg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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

// parentVariable makes this test program start a server, print its URL and
// directory, and wait to be killed.
const parentVariable = "LOCALPG_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		server, err := Start(context.Background(), Options{Volatile: true, NoDocker: true})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(server.URL)
		fmt.Println(server.process.dir)
		select {}
	}
	os.Exit(m.Run())
}

func start(t *testing.T, options Options) *Server {
	t.Helper()
	server, err := Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func setting(t *testing.T, server *Server, name string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var value string
	if err := conn.QueryRow(t.Context(), "select current_setting($1)", name).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// awaitGone returns when the server refuses connections and its directory is
// removed.
func awaitGone(t *testing.T, url, dir string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, errDir := os.Stat(dir)
		errServer := connect(t.Context(), url)
		if errors.Is(errServer, syscall.ECONNREFUSED) && os.IsNotExist(errDir) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there: server: %v, directory: %v", errServer, errDir)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestStartYieldsAServerThatStopRemoves(t *testing.T) {
	t.Parallel()
	server := start(t, Options{Volatile: true, NoDocker: true, Settings: map[string]string{"max_connections": "37"}})
	for name, want := range map[string]string{
		"max_connections": "37", "fsync": "off", "full_page_writes": "off", "listen_addresses": "127.0.0.1",
	} {
		if got := setting(t, server, name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, server.URL, server.process.dir)
	if err := server.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestDefaultsAreDurable(t *testing.T) {
	t.Parallel()
	server := start(t, Options{NoDocker: true})
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		if got := setting(t, server, name); got != "on" {
			t.Errorf("%s = %q, want on", name, got)
		}
	}
}

func TestThePasswordIsAskedFor(t *testing.T) {
	t.Parallel()
	server := start(t, Options{Volatile: true, NoDocker: true})
	config, err := pgx.ParseConfig(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.Password = "guess"
	if conn, err := pgx.ConnectConfig(t.Context(), config); err == nil {
		_ = conn.Close(t.Context())
		t.Error("a wrong password was let in")
	}
}

func TestAServerOfTheEnvironmentIsUsedAsItIs(t *testing.T) {
	server := start(t, Options{Volatile: true, NoDocker: true})
	t.Setenv("LOCALPG_TEST_URL", server.URL)
	external := start(t, Options{URLVariable: "LOCALPG_TEST_URL"})
	if external.URL != server.URL {
		t.Errorf("URL = %q, want that of the variable", external.URL)
	}
	if err := external.Stop(); err != nil {
		t.Error(err)
	}
	if err := connect(t.Context(), server.URL); err != nil {
		t.Errorf("Stop reached a server that was there before: %v", err)
	}
}

func TestAServerOfTheEnvironmentThatDoesNotAnswerIsAnError(t *testing.T) {
	port, err := freePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOCALPG_TEST_URL", "postgres://postgres@127.0.0.1:"+port+"/?sslmode=disable")
	_, err = Start(t.Context(), Options{URLVariable: "LOCALPG_TEST_URL"})
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "LOCALPG_TEST_URL") {
		t.Errorf("error = %v, want one that names the variable and the cause", err)
	}
}

func TestWithoutAnySourceTheErrorTellsWhatToDo(t *testing.T) {
	defer func(dirs []string) { packageDirs = dirs }(packageDirs)
	packageDirs = nil
	t.Setenv("PATH", t.TempDir())
	_, err := Start(t.Context(), Options{URLVariable: "LOCALPG_TEST_UNSET"})
	if err == nil {
		t.Fatal("started a server from nothing")
	}
	for _, want := range []string{"set LOCALPG_TEST_UNSET=postgres://", "apt install postgresql", "docker"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
}

func TestAServerThatDiesShowsItsLog(t *testing.T) {
	t.Setenv("TMPDIR", openTempDir(t))
	_, err := Start(t.Context(), Options{NoDocker: true, Settings: map[string]string{"shared_buffers": "plenty"}})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers"`) {
		t.Errorf("error = %v, want the server's own words", err)
	}
	expectEmpty(t, os.TempDir())
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", openTempDir(t))
	for _, wait := range []time.Duration{1, 100 * time.Millisecond, 500 * time.Millisecond} {
		server, err := Start(t.Context(), Options{Volatile: true, NoDocker: true, StartWait: wait})
		if err == nil {
			err = server.Stop()
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		if err != nil {
			t.Errorf("StartWait %v: %v", wait, err)
		}
		expectEmpty(t, os.TempDir())
	}
}

// Goal: a server does not outlive the process that started it. Method: a
// second process starts one and is killed in a way that it cannot notice.
func TestTheServerGoesWithAKilledParent(t *testing.T) {
	t.Parallel()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"=1")
	parent.Stderr = os.Stderr
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = parent.Wait() }()
	defer func() { _ = parent.Process.Kill() }()
	lines := bufio.NewScanner(output)
	lines.Scan()
	url := lines.Text()
	lines.Scan()
	dir := lines.Text()
	if err := connect(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, url, dir)
}

// Goal: it works without privileges too. Method: root runs a copy of this test
// program as nobody; anybody else runs all the tests that way already.
func TestAnOrdinaryUserCanStart(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("all tests run as an ordinary user")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(openTempDir(t), "localpg.test")
	if err := os.WriteFile(copied, program, 0o755); err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	command := exec.Command(copied, "-test.run=^TestStartYieldsAServerThatStopRemoves$", "-test.v")
	command.Dir = "/"
	command.Env = []string{"PATH=" + os.Getenv("PATH")}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS") {
		t.Errorf("%v\n%s", err, output)
	}
}

func TestTheContainerGoesWithStop(t *testing.T) {
	t.Parallel()
	image := os.Getenv("IDEM_TEST_IMAGE")
	if image == "" || image == "none" {
		t.Skip("IDEM_TEST_IMAGE names no image")
	}
	server, err := startContainer(t.Context(), Options{Image: image, Settings: map[string]string{"max_connections": "37"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := setting(t, server, "max_connections"); got != "37" {
		t.Errorf("max_connections = %q, want 37", got)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, server.URL, server.process.dir)
}

func TestTheNewestVersionComesFirst(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, version := range []string{"9.6", "15", "101", "18"} {
		if err := os.MkdirAll(filepath.Join(root, version, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, dir := range newestFirst(filepath.Join(root, "*", "bin")) {
		got = append(got, filepath.Base(filepath.Dir(dir)))
	}
	if want := "101 18 15 9.6"; strings.Join(got, " ") != want {
		t.Errorf("order %v, want %s", got, want)
	}
}

// openTempDir is a temporary directory that other users reach: the testing
// package's own is closed to them.
func openTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "localpg-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o1777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func expectEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v %v", left, err)
	}
}
