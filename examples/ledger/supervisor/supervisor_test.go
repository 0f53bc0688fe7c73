package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	roleVariable = "SUPERVISOR_TEST_ROLE" // what this program is to be instead of a test
	waitMax      = 30 * time.Second
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		roles[role]()
		return
	}
	os.Exit(m.Run())
}

var roles = map[string]func(){
	// A service that answers with the number of its process. It dies by itself
	// where it is told to.
	"service": func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		serve(ctx)
	},
	"stubborn": func() {
		signal.Ignore(syscall.SIGTERM)
		serve(context.Background())
	},
	"broken": func() { os.Exit(3) },
	// A program with a supervisor in it.
	"parent": func() {
		s, err := Start(Config{Addr: "127.0.0.1:0", Env: []string{roleVariable + "=service"}})
		if err == nil {
			err = s.Ready(context.Background())
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(s.Addr())
		select {}
	},
}

func serve(ctx context.Context) {
	ctx, listener, err := Inherit(ctx, os.LookupEnv)
	if err != nil {
		panic(err)
	}
	http.HandleFunc("/pid", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, os.Getpid()) })
	http.HandleFunc("/die", func(http.ResponseWriter, *http.Request) { os.Exit(1) })
	http.HandleFunc(readyPath, func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{}
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.Background()) })
	_ = server.Serve(listener)
	fmt.Println("served")
}

func start(t *testing.T, role string, stopWait time.Duration) *Supervisor {
	t.Helper()
	s, err := Start(Config{Addr: "127.0.0.1:0", Env: []string{roleVariable + "=" + role}, StopWait: stopWait})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

func ready(t *testing.T, s *Supervisor) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	if err := s.Ready(ctx); err != nil {
		t.Fatal(err)
	}
}

var client = http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: waitMax}

func get(s *Supervisor, path string) (string, error) {
	response, err := client.Get("http://" + s.Addr().String() + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func pid(t *testing.T, s *Supervisor) int {
	t.Helper()
	body, err := get(s, "/pid")
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(body)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// Goal: a child that dies is replaced, however it dies, and a connection made
// meanwhile is not refused. Method: end it in each way, and ask at once who
// answers.
func TestAChildThatDiesIsReplaced(t *testing.T) {
	t.Parallel()
	s := start(t, "service", waitMax)
	ways := []struct {
		name string
		end  func()
	}{
		{"killed by the supervisor", func() { s.Kill() }},
		{"restarted by the supervisor", func() { s.Restart() }},
		{"by itself", func() {
			if body, err := get(s, "/die"); err == nil {
				t.Errorf("a dead child answered %q", body)
			}
		}},
	}
	before := pid(t, s)
	for i, way := range ways {
		way.end()
		after := pid(t, s)
		if after == before {
			t.Errorf("%s: the child lives", way.name)
		}
		if got := s.Restarts(); got != i+1 {
			t.Errorf("%s: %d restarts, want %d", way.name, got, i+1)
		}
		ready(t, s)
		before = after
	}
}

// Goal: Stop lets a child end by itself, passes on its last words, and leaves
// nothing behind.
func TestStop(t *testing.T) {
	t.Parallel()
	var output strings.Builder
	s, err := Start(Config{Addr: "127.0.0.1:0", Env: []string{roleVariable + "=service"}, Stdout: &output})
	if err != nil {
		t.Fatal(err)
	}
	ready(t, s)
	child := pid(t, s)
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if output.String() != "served\n" {
		t.Errorf("the child said %q", output.String())
	}
	wantGone(t, s.Addr().String())
	if err := syscall.Kill(child, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the child is there: %v", err)
	}
	if s.Restarts() != 0 {
		t.Errorf("%d restarts, want none", s.Restarts())
	}
	if err := s.Ready(t.Context()); err == nil {
		t.Error("ready after Stop")
	}
	if s.Kill() || s.Restart() {
		t.Error("a child was ended after Stop")
	}
}

// A child that does not mind SIGTERM is killed.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	s := start(t, "stubborn", 10*time.Millisecond)
	ready(t, s)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	wantGone(t, s.Addr().String())
}

func TestGivesUpOnAServiceThatNeverGetsReady(t *testing.T) {
	t.Parallel()
	s := start(t, "broken", waitMax)
	select {
	case <-s.Done():
	case <-time.After(waitMax):
		t.Fatal("it goes on")
	}
	err := s.Stop()
	if err == nil || !strings.Contains(err.Error(), "5 times in a row") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v", err)
	}
	if s.Restarts() != failuresMax-1 {
		t.Errorf("%d restarts, want %d", s.Restarts(), failuresMax-1)
	}
	if readyErr := s.Ready(t.Context()); !errors.Is(readyErr, err) {
		t.Errorf("Ready says %v", readyErr)
	}
	wantGone(t, s.Addr().String())
}

// However often a child is killed, that is not its fault.
func TestKilledChildrenAreNoReasonToGiveUp(t *testing.T) {
	t.Parallel()
	s := start(t, "service", waitMax)
	for s.Restarts() < 2*failuresMax {
		s.Kill() // before it is ready, as a rule
	}
	ready(t, s)
}

// Goal: a supervisor that is killed leaves no child behind. Method: kill one,
// and wait until its socket, which the child has too, is closed.
func TestAChildEndsWithItsSupervisor(t *testing.T) {
	t.Parallel()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), roleVariable+"=parent")
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = parent.Wait() })
	var addr string
	_, err = fmt.Fscanln(output, &addr)
	if err := errors.Join(err, parent.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	wantGone(t, addr)
}

// wantGone waits until nobody listens at addr.
func wantGone(t *testing.T, addr string) {
	t.Helper()
	for deadline := time.Now().Add(waitMax); time.Now().Before(deadline); {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			_ = conn.Close()
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("%s still accepts connections", addr)
}

func TestInheritRefusesWhatIsNoDescriptor(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", "-1", "1048000"} {
		_, listener, err := Inherit(t.Context(), func(name string) (string, bool) { return text, name == listenVariable })
		if listener != nil || err == nil || !strings.HasPrefix(err.Error(), listenVariable) {
			t.Errorf("%q: %v, %v", text, listener, err)
		}
	}
	if _, listener, err := Inherit(t.Context(), func(string) (string, bool) { return "", false }); listener != nil || err != nil {
		t.Errorf("nothing to inherit: %v, %v", listener, err)
	}
}
