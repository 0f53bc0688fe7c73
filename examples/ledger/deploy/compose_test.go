//go:build compose

// Package deploy tests what is in its folder, in containers. "make test-compose"
// runs it, with images that GO_IMAGE and POSTGRES_IMAGE name.
package deploy

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const stateWaitMax = 2 * time.Minute

// stack is compose.yaml, running under a name of its own, at ports that are free.
type stack struct {
	t       *testing.T
	project string
	command []string
}

func newStack(t *testing.T) *stack {
	t.Helper()
	s := &stack{t: t, project: fmt.Sprintf("ledger-test-%d", os.Getpid()), command: []string{"docker", "compose"}}
	if exec.Command("docker", "compose", "version").Run() != nil {
		s.command = []string{"docker-compose"} // a program of its own, before version 2
	}
	t.Setenv("LEDGER_IMAGE", s.project)
	t.Setenv("LEDGER_1_PORT", "")
	t.Setenv("LEDGER_2_PORT", "")
	t.Setenv("LEDGER_DRAIN_DELAY", "1s")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.compose("logs", "--no-color"))
		}
		s.compose("--profile", "monitoring", "down", "--volumes", "--rmi", "local")
		s.run("docker", "rmi", "--force", s.project)
	})
	return s
}

// run returns what a program prints. It goes on when the test has ended.
func (s *stack) run(name string, arguments ...string) string {
	s.t.Helper()
	command := exec.CommandContext(context.WithoutCancel(s.t.Context()), name, arguments...)
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		s.t.Fatalf("%s %q: %v\n%s%s", name, arguments, err, output, stderr.String())
	}
	return strings.TrimSpace(string(output))
}

func (s *stack) compose(arguments ...string) string {
	s.t.Helper()
	all := slices.Concat(s.command, []string{"--project-name", s.project, "--file", "compose.yaml"}, arguments)
	return s.run(all[0], all[1:]...)
}

// inspect reads one property of a service's container.
func (s *stack) inspect(service, property string) string {
	s.t.Helper()
	return s.run("docker", "inspect", "--format", property, s.compose("ps", "--quiet", service))
}

// await returns when state is want.
func await(t *testing.T, what, want string, state func() string) {
	t.Helper()
	got := state()
	for deadline := time.Now().Add(stateWaitMax); got != want; got = state() {
		if time.Now().After(deadline) {
			t.Fatalf("%s is %q after %v, want %q", what, got, stateWaitMax, want)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// call sends a request to an instance.
func call(t *testing.T, method, url, key, body string) (status int, replayed bool, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer acme-demo-key")
	request.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return 0, false, ""
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, response.Header.Get("Idempotency-Replayed") == "true", string(content)
}

// Goal: the image and compose.yaml do what they say: two instances without root
// and without a file system to write to, one effect for a key that both get, and
// an orderly end.
func TestTwoInstancesOnOnePostgres(t *testing.T) {
	s := newStack(t)
	s.compose("--profile", "monitoring", "config", "--quiet")
	s.compose("up", "--detach", "--build")
	services := []string{"ledger-1", "ledger-2"}
	urls := make([]string, len(services))
	for i, service := range services {
		urls[i] = "http://" + s.compose("port", service, "8080")
		await(t, "the health of "+service, "healthy", func() string { return s.inspect(service, "{{.State.Health.Status}}") })
		if got := s.inspect(service, "{{.RestartCount}} {{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}}"); got != "0 65532:65532 true [ALL]" {
			t.Errorf("%s runs as %s", service, got)
		}
		// Nothing is in it that could run as somebody else.
		exported := s.run("sh", "-c", "docker export "+s.compose("ps", "--quiet", service)+" | tar -t | grep -v -E '^(dev|proc|sys|etc)/|/$|^.dockerenv$'")
		if exported != "ledger" {
			t.Errorf("the image of %s has %s", service, exported)
		}
		if status, _, _ := call(t, http.MethodGet, urls[i]+"/metrics", "", ""); status != http.StatusNotFound {
			t.Errorf("%s answers clients' /metrics with %d", service, status)
		}
	}
	for _, account := range []string{`{"id":"bank","currency":"EUR","min_balance":null}`, `{"id":"alice","currency":"EUR"}`} {
		if status, _, answer := call(t, http.MethodPost, urls[0]+"/v1/accounts", rand.Text(), account); status != http.StatusCreated {
			t.Fatalf("%d %s", status, answer)
		}
	}
	wantOneEffect(t, urls)

	s.compose("stop")
	for _, service := range services {
		if code := s.inspect(service, "{{.State.ExitCode}}"); code != "0" {
			t.Errorf("%s ended with code %s", service, code)
		}
	}
}

// wantOneEffect sends one transfer many times to all instances at once.
func wantOneEffect(t *testing.T, urls []string) {
	t.Helper()
	key := rand.Text()
	const transfer = `{"from":"bank","to":"alice","amount":700,"currency":"EUR"}`
	var mutex sync.Mutex
	var group sync.WaitGroup
	first, answers := 0, map[string]int{}
	for i := range 20 {
		group.Go(func() {
			status, replayed, answer := call(t, http.MethodPost, urls[i%len(urls)]+"/v1/transfers", key, transfer)
			mutex.Lock()
			defer mutex.Unlock()
			switch {
			case status == http.StatusConflict: // the first is in flight
			case status != http.StatusCreated:
				t.Errorf("answered with %d %s", status, answer)
			default:
				answers[answer]++
				if !replayed {
					first++
				}
			}
		})
	}
	group.Wait()
	if first != 1 || len(answers) != 1 {
		t.Errorf("%d first answers, different ones: %v", first, answers)
	}
	for _, url := range urls {
		var account struct{ Balance int64 }
		_, _, answer := call(t, http.MethodGet, url+"/v1/accounts/alice", "", "")
		if err := json.Unmarshal([]byte(answer), &account); err != nil || account.Balance != 700 {
			t.Errorf("the balance is %s, %v, want 700", answer, err)
		}
	}
}
