//go:build unix

package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/internal/failpoint"
)

// crashSteps are the steps at which the owner of a key is lost, and whether
// COMMIT has happened there.
var crashSteps = []struct {
	step      failpoint.Step
	committed bool
}{
	{failpoint.BeforeClaim, false},
	{failpoint.AfterClaim, false},
	{failpoint.AfterMutation, false},
	{failpoint.BeforeCommit, false},
	{failpoint.AfterCommit, true},
}

// once makes a hook that acts the first time the step is reached.
func once(step failpoint.Step, act func(failpoint.Event)) failpoint.Hook {
	done := false
	return func(_ context.Context, event failpoint.Event) error {
		if event.Step != step || done {
			return nil
		}
		done = true
		act(event)
		if step == failpoint.AfterCommit {
			return errors.New("the acknowledgement of COMMIT was lost")
		}
		return nil
	}
}

// Goal: the server may lose the owner's backend at any step, or everything it
// runs. Method: a hook ends the backend, or kills the server's first process and
// starts it again, at each step; then the caller goes on and another one retries.
func TestTheServerLosesTheOwner(t *testing.T) {
	t.Parallel()
	cluster, server := newClusterServer(t)
	for _, loss := range []string{"pg_terminate_backend", "the server is killed"} {
		for _, at := range crashSteps {
			b := newBenchOn(t, newDatabaseOn(t, server), idem.Config{})
			store := newStore(t, b.Pool(t), idem.Config{AttemptsMax: 1})
			failpoint.Open(store).SetHook(once(at.step, func(event failpoint.Event) {
				if loss != "pg_terminate_backend" {
					cluster.kill(t)
					cluster.start(t)
					return
				}
				pid := event.Conn.PgConn().PID()
				b.exec(t, "select pg_terminate_backend($1)", pid)
				await(t, b.pool, "the backend is gone", "select not exists (select from pg_stat_activity where pid = $1)", pid)
			}))
			result, err := store.Do(t.Context(), request("k"), created("k"))
			b.pool.Reset() // its connections may be dead, too
			server.admin.Reset()
			if !isClassified(err) || at.committed && err != nil || !at.committed && err == nil {
				t.Errorf("%s, %s: got %+v, %v", loss, at.step, result, err)
			}
			again, err := b.store.Do(t.Context(), request("k"), created("k"))
			if err != nil || again.Replayed != at.committed {
				t.Errorf("%s, %s: the retry got %+v, %v", loss, at.step, again, err)
			}
			b.wantEffects(t, "k", 1)
		}
	}
}

// Goal: a timeout that fires inside COMMIT leaves nothing. Method: a deferred
// trigger makes COMMIT wait for a lock that the test holds. PostgreSQL has ended
// statement_timeout by then, so CommitTimeout alone bounds COMMIT.
func TestTimeoutsInsideCommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config idem.Config
		code   string
	}{
		"CommitTimeout": {idem.Config{CommitTimeout: time.Second, StatementTimeout: 500 * time.Millisecond, AttemptsMax: 1}, ""},
		"LockTimeout":   {idem.Config{LockTimeout: 300 * time.Millisecond}, "55P03"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, idem.Config{})
			b.exec(t, `create function stall() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(42); return null; end $$`)
			b.exec(t, `create constraint trigger stall after insert on effects deferrable initially deferred for each row execute function stall()`)
			lock, err := b.pool.Begin(t.Context())
			if err == nil {
				_, err = lock.Exec(t.Context(), "select pg_advisory_xact_lock(42)")
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = newStore(t, b.Pool(t), c.config).Do(t.Context(), request("k"), created("k"))
			if err == nil || sqlstate(err) != c.code || c.code == "" && !idem.Retryable(err) {
				t.Errorf("error is %v, want SQLSTATE %q", err, c.code)
			}
			if err := lock.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if again := mustDo(t, b.store, request("k"), created("k")); again.Replayed {
				t.Errorf("the retry got %+v", again)
			}
			b.wantEffects(t, "k", 1)
		})
	}
}

// Goal: a process that dies while it owns a key leaves it free at once. Method:
// a second process is killed at each step in a way that it cannot notice.
func TestTheOwningProcessIsKilled(t *testing.T) {
	t.Parallel()
	for _, at := range crashSteps {
		b := newBench(t, idem.Config{})
		owner := startOwner(t, b, at.step)
		owner.signal(t, syscall.SIGKILL)
		again, err := retryUntilFree(t, b)
		if err != nil || again.Replayed != at.committed {
			t.Errorf("%s: the retry got %+v, %v", at.step, again, err)
		}
		b.wantEffects(t, "k", 1)
	}
}

// Goal: a process that is frozen while it owns a key loses the key in time, and
// cannot use it when it wakes up. Method: a second process is stopped at each
// step of its transaction, and continued after another one has used the key.
func TestTheOwningProcessIsFrozen(t *testing.T) {
	t.Parallel()
	for _, step := range []failpoint.Step{failpoint.AfterClaim, failpoint.AfterMutation, failpoint.BeforeCommit} {
		b := newBench(t, idem.Config{})
		owner := startOwner(t, b, step)
		owner.signal(t, syscall.SIGSTOP)
		again, err := retryUntilFree(t, b)
		if err != nil || again.Replayed {
			t.Errorf("%s: the retry got %+v, %v", step, again, err)
		}
		owner.signal(t, syscall.SIGCONT)
		if line := owner.goOn(t); !strings.HasPrefix(line, "replayed") && !strings.HasPrefix(line, "retryable") {
			t.Errorf("%s: the owner woke up to %q, want a replay or a retryable error", step, line)
		}
		b.wantEffects(t, "k", 1)
	}
}

// retryUntilFree calls as long as the key is in flight, which must not be longer
// than the owner's IdleInTransactionTimeout and a second, by the server's clock.
func retryUntilFree(t *testing.T, b *bench) (idem.Result, error) {
	t.Helper()
	for {
		result, err := b.store.Do(t.Context(), request("k"), created("k"))
		if !errors.Is(err, idem.ErrInFlight) {
			return result, err
		}
		if scalar[bool](t, b.pool, `select exists (select from pg_stat_activity where application_name = 'owner'
				and datname = current_database() and state like 'idle in transaction%'
				and clock_timestamp() - state_change > $1::bigint * interval '1 ms')`, (ownerIdleMax + time.Second).Milliseconds()) {
			return result, fmt.Errorf("blocked for too long: %w", err)
		}
	}
}

const (
	ownerURLVariable  = "IDEM_TEST_OWNER_URL"
	ownerStepVariable = "IDEM_TEST_OWNER_STEP"
	ownerIdleMax      = time.Second
)

// This program is also the second process.
func init() {
	if url := os.Getenv(ownerURLVariable); url != "" {
		if err := ownerMain(url, failpoint.Step(os.Getenv(ownerStepVariable))); err != nil {
			fmt.Println("failed:", err)
		}
		os.Exit(0)
	}
}

// ownerMain runs one mutation, stops at a step until it is told to go on, and
// says how it ended.
func ownerMain(url string, step failpoint.Step) error {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["application_name"] = "owner"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	store, err := idem.New(pool, idem.Config{IdleInTransactionTimeout: ownerIdleMax, AttemptsMax: 1})
	if err != nil {
		return err
	}
	failpoint.Open(store).SetHook(once(step, func(failpoint.Event) {
		fmt.Println("at the step")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	}))
	result, err := store.Do(ctx, request("k"), created("k"))
	switch {
	case err == nil && result.Replayed:
		fmt.Println("replayed")
	case err == nil:
		fmt.Println("first")
	case idem.Retryable(err):
		fmt.Println("retryable:", err)
	default:
		return err
	}
	return nil
}

// ownerProcess is a process that owns the key "k" of a bench, or is about to.
type ownerProcess struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Scanner
}

// startOwner returns when the process is at the step.
func startOwner(t *testing.T, b *bench, step failpoint.Step) *ownerProcess {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), ownerURLVariable+"="+b.URL, ownerStepVariable+"="+string(step))
	command.Stderr = os.Stderr
	input, errIn := command.StdinPipe()
	output, errOut := command.StdoutPipe()
	if err := errors.Join(errIn, errOut, command.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	p := &ownerProcess{command, input, bufio.NewScanner(output)}
	if line := p.line(); line != "at the step" {
		t.Fatalf("the owner said %q before the step %s", line, step)
	}
	return p
}

func (p *ownerProcess) line() string {
	p.output.Scan()
	return p.output.Text()
}

func (p *ownerProcess) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// goOn lets the process go on and returns what it says in the end.
func (p *ownerProcess) goOn(t *testing.T) string {
	t.Helper()
	if _, err := io.WriteString(p.input, "\n"); err != nil {
		t.Fatal(err)
	}
	return p.line()
}
