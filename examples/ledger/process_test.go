package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/idempg/idempg/examples/ledger/book"
)

// process is the service as a program of its own.
type process struct {
	t       *testing.T
	command *exec.Cmd
	url     string
	stdout  chan string // lines
	stderr  bytes.Buffer
	ended   chan error
}

// startProcess returns when the service says where it listens.
func startProcess(t *testing.T, environment ...string) *process {
	t.Helper()
	return startCommand(t, "serve", environment...)
}

// startCommand does so for any command of the program.
func startCommand(t *testing.T, name string, environment ...string) *process {
	t.Helper()
	p := &process{t: t, command: exec.Command(program, name), stdout: make(chan string, 100), ended: make(chan error, 1)}
	p.command.Env = append(cleanEnvironment(), environment...)
	p.command.Stderr = &p.stderr
	output, err := p.command.StdoutPipe()
	must(t, err)
	must(t, p.command.Start())
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.stdout <- lines.Text()
		}
		close(p.stdout)
		p.ended <- p.command.Wait()
	}()
	t.Cleanup(func() {
		_ = p.command.Process.Kill() // it may have ended
		_ = p.wait()
	})
	for line := range p.stdout {
		if _, url, found := strings.Cut(line, "listening on "); found {
			p.url = url
			return p
		}
	}
	err = <-p.ended
	p.ended <- err
	t.Fatalf("the service ended: %v\n%s", err, p.stderr.String())
	return nil
}

func cleanEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "LEDGER_") || strings.HasPrefix(variable, "OTEL_") || strings.HasPrefix(variable, "DATABASE_URL=")
	})
}

func (p *process) signal(signal os.Signal) {
	p.t.Helper()
	must(p.t, p.command.Process.Signal(signal))
}

// wait returns how the process ended.
func (p *process) wait() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		p.ended <- err
		return err
	case <-time.After(stateWaitMax):
		p.t.Fatalf("the process did not end within %v", stateWaitMax)
		return nil
	}
}

// Goal: a crash in the middle of a transfer costs nothing and moves nothing
// twice. Method: hold the transfer, kill the process, and send the same request
// to the next one, first while the old backend lives.
func TestATransferSurvivesKillOfTheService(t *testing.T) {
	t.Parallel()
	for name, hold := range holdTransfers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, pool := newDatabase(t)
			first := startProcess(t, "DATABASE_URL="+url, "LEDGER_ADDR=127.0.0.1:0")
			service := newClient(t, first.url)
			service.open("bank", "EUR", "null")
			service.open("alice", "EUR", "0")
			key := newKey()
			release := hold(t, pool)
			running := service.background("/v1/transfers", key, transferBody("bank", "alice", 700))
			awaitHeldTransfer(t, pool)
			first.signal(syscall.SIGKILL)
			if a := <-running; a.status != 0 {
				t.Fatalf("a killed service answered %d: %s", a.status, a.body)
			}

			second := startProcess(t, "DATABASE_URL="+url, "LEDGER_ADDR=127.0.0.1:0")
			service.url = second.url
			early := service.post("/v1/transfers", key, transferBody("bank", "alice", 700))
			wantProblem(t, early, http.StatusConflict, "request-in-flight")
			release()
			await(t, pool, "the old backend goes on", "select not exists ("+heldBackends+")")
			wantOneEffect(t, service, key)
		})
	}
}

// The same, but it is the backend that dies. Before COMMIT was sent the client
// is told to try again; afterwards the library finds out what happened.
func TestATransferSurvivesTheEndOfItsBackend(t *testing.T) {
	t.Parallel()
	for name, hold := range holdTransfers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service, pool := newService(t)
			service.open("bank", "EUR", "null")
			service.open("alice", "EUR", "0")
			key := newKey()
			release := hold(t, pool)
			running := service.background("/v1/transfers", key, transferBody("bank", "alice", 700))
			awaitHeldTransfer(t, pool)
			if !one[bool](t, pool, "select pg_terminate_backend(pid) from ("+heldBackends+") as held") {
				t.Fatal("the backend was not terminated")
			}
			if name == "in COMMIT" {
				release()
				want(t, <-running, http.StatusCreated)
			} else {
				a := <-running
				wantProblem(t, a, http.StatusServiceUnavailable, "database-unavailable")
				if a.header.Get("Retry-After") == "" {
					t.Error("503 without Retry-After")
				}
				release()
			}
			wantOneEffect(t, service, key)
		})
	}
}

// wantOneEffect sends the transfer of 700 until it is answered, and checks that
// it happened once and replays.
func wantOneEffect(t *testing.T, service client, key string) {
	t.Helper()
	body := transferBody("bank", "alice", 700)
	a := service.post("/v1/transfers", key, body)
	for deadline := time.Now().Add(stateWaitMax); a.status == http.StatusConflict && time.Now().Before(deadline); {
		a = service.post("/v1/transfers", key, body)
	}
	want(t, a, http.StatusCreated)
	if again := service.post("/v1/transfers", key, body); !again.replayed() || again.body != a.body {
		t.Errorf("replayed %v as\n%s\nwas answered as\n%s", again.replayed(), again.body, a.body)
	}
	if balance := service.balance("alice"); balance != 700 {
		t.Errorf("balance %d, want 700", balance)
	}
	audit := decode[book.Audit](t, service.get("/v1/audit"))
	if !audit.OK || audit.Transfers != 1 {
		t.Errorf("audit %+v, want one transfer", audit)
	}
}

// Goal: SIGTERM lets a transfer in flight finish. Method: hold it, send the
// signal, wait until nobody can connect any more, let go.
func TestSIGTERMDrains(t *testing.T) {
	t.Parallel()
	for name, hold := range holdTransfers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, pool := newDatabase(t)
			p := startProcess(t, "DATABASE_URL="+url, "LEDGER_ADDR=127.0.0.1:0")
			service := newClient(t, p.url)
			service.open("bank", "EUR", "null")
			service.open("alice", "EUR", "0")
			release := hold(t, pool)
			running := service.background("/v1/transfers", newKey(), transferBody("bank", "alice", 700))
			awaitHeldTransfer(t, pool)

			p.signal(syscall.SIGTERM)
			awaitRefusal(t, strings.TrimPrefix(p.url, "http://"))
			release()
			want(t, <-running, http.StatusCreated)
			if err := p.wait(); err != nil {
				t.Errorf("the process ended with %v\n%s", err, p.stderr.String())
			}
			if balance := one[int64](t, pool, "select balance from ledger.accounts where id = 'alice'"); balance != 700 {
				t.Errorf("balance %d, want 700", balance)
			}
		})
	}
}

// Goal: from SIGTERM on the service is not ready, so that no more requests are
// sent to it, and serves all the same those that come before that is known.
// Method: a delay that does not end.
func TestADrainingServiceIsNotReady(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	p := startProcess(t, "DATABASE_URL="+url, "LEDGER_ADDR=127.0.0.1:0", "LEDGER_DRAIN_DELAY=1h")
	service := newClient(t, p.url)
	want(t, service.get("/readyz"), http.StatusOK)
	p.signal(syscall.SIGTERM)
	a := service.get("/readyz")
	for deadline := time.Now().Add(stateWaitMax); a.status == http.StatusOK && time.Now().Before(deadline); {
		a = service.get("/readyz")
	}
	if want(t, a, http.StatusServiceUnavailable); !strings.Contains(a.body, "draining") {
		t.Errorf("got %s", a.body)
	}
	service.open("bank", "EUR", "null")
	want(t, service.get("/healthz"), http.StatusOK)
	p.signal(syscall.SIGTERM)
	if err := p.wait(); err == nil {
		t.Error("a second signal did not end the process")
	}
}

func TestTheDelayOfADrainEnds(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	p := startProcess(t, "DATABASE_URL="+url, "LEDGER_ADDR=127.0.0.1:0", "LEDGER_DRAIN_DELAY=50ms")
	p.signal(syscall.SIGTERM)
	if err := p.wait(); err != nil {
		t.Errorf("the process ended with %v\n%s", err, p.stderr.String())
	}
}

// awaitRefusal returns when nothing listens at addr.
func awaitRefusal(t *testing.T, addr string) {
	t.Helper()
	for deadline := time.Now().Add(stateWaitMax); time.Now().Before(deadline); {
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

// Goal: what the service prints works when it is pasted. Method: paste it.
func TestThePrintedLinesWork(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	t.Run("on its own Postgres", func(t *testing.T) {
		t.Parallel()
		dir := newSharedDir(t)
		p := startProcess(t, "LEDGER_ADDR=:0", "TMPDIR="+dir)
		paste(t, p, 0)
		p.signal(os.Interrupt)
		if err := p.wait(); err != nil {
			t.Errorf("the process ended with %v\n%s", err, p.stderr.String())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("its Postgres left %v %v", left, err)
		}
	})
	t.Run("on a database that is given", func(t *testing.T) {
		t.Parallel()
		url, _ := newDatabase(t)
		paste(t, startProcess(t, "LEDGER_ADDR=localhost:0", "DATABASE_URL="+url), 2)
	})
	t.Run("with API keys that are given", func(t *testing.T) {
		t.Parallel()
		url, _ := newDatabase(t)
		p := startProcess(t, "LEDGER_ADDR=127.0.0.1:0", "DATABASE_URL="+url, "LEDGER_API_KEYS=s3cret:globex")
		paste(t, p, 2, "LEDGER_API_KEY=s3cret")
	})
}

// newSharedDir makes a temporary directory that every user can reach: Postgres
// refuses root.
func newSharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ledger-test-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o1777))
	return dir
}

// paste runs the printed lines as they are: some that open accounts, then a
// transfer, its replay, and a mismatch.
func paste(t *testing.T, p *process, opening int, environment ...string) {
	t.Helper()
	var outputs []string
	for line := range p.stdout {
		if !strings.HasPrefix(line, "curl ") {
			continue
		}
		if strings.Contains(line, "s3cret") {
			t.Errorf("a secret was printed: %s", line)
		}
		shell := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", line)
		shell.Env = append(cleanEnvironment(), environment...)
		output, err := shell.CombinedOutput()
		if err != nil {
			t.Fatalf("%s\n%v: %s", line, err, output)
		}
		if outputs = append(outputs, string(output)); len(outputs) == opening+3 {
			break
		}
	}
	if len(outputs) < opening+3 {
		t.Fatalf("%d lines were printed, want %d", len(outputs), opening+3)
	}
	for _, output := range outputs[:opening] {
		wantOutput(t, output, "^HTTP/1.1 201 Created\r\n")
	}
	transfer, replay, mismatch := outputs[opening], outputs[opening+1], outputs[opening+2]
	wantOutput(t, transfer, "^HTTP/1.1 201 Created\r\n")
	wantOutput(t, replay, "^HTTP/1.1 201 Created\r\n")
	wantOutput(t, replay, "\nIdempotency-Replayed: true\r\n")
	wantOutput(t, mismatch, "^HTTP/1.1 422 Unprocessable Entity\r\n")
	wantOutput(t, mismatch, "idempotency-key-reused")
	_, first, _ := strings.Cut(transfer, "\r\n\r\n")
	if _, again, _ := strings.Cut(replay, "\r\n\r\n"); again != first || strings.Contains(transfer, "Replayed") {
		t.Errorf("the replay differs:\n%s\n%s", transfer, replay)
	}
}

func wantOutput(t *testing.T, output, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(output) {
		t.Errorf("no %q in:\n%s", pattern, output)
	}
}
