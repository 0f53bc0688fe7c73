package integration

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
)

// pgbouncerScript runs a program until standard input ends, which it does when
// the test process does, however that ends.
const pgbouncerScript = `"$@" </dev/null & cat >/dev/null; kill $!; wait $!`

// Goal: the library keeps no session state. Method: PgBouncer in transaction
// mode gives every transaction whatever server connection is free, of fewer than
// there are clients; every behaviour of the core goes through it, in every mode
// of pgx that it allows.
func TestThroughPgBouncer(t *testing.T) {
	t.Parallel()
	through := startPgBouncer(t)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeSimpleProtocol,
	} {
		change := func(c *pgxpool.Config) {
			through(c)
			c.MaxConns = 20
			c.ConnConfig.DefaultQueryExecMode = mode
		}
		for name, behaviour := range map[string]func(*testing.T, *bench, func(*pgxpool.Config)){
			"endings": pgbouncerEndings, "in flight": pgbouncerInFlight, "wait": pgbouncerWait,
			"expiry": pgbouncerExpiry, "DoTx": pgbouncerDoTx, "burst": pgbouncerBurst,
		} {
			t.Run(mode.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, idem.Config{StatementTimeout: time.Minute, LockTimeout: time.Minute}, change)
				behaviour(t, b, change)
			})
		}
	}
}

func pgbouncerEndings(t *testing.T, b *bench, _ func(*pgxpool.Config)) {
	for i := range 2 {
		done := mustDo(t, b.store, request("done"), created("done"))
		if done.Replayed != (i == 1) || string(done.Body) != string(receipt("done").Body) || done.Header.Values("X-Many")[2] != "caf\xe9" {
			t.Errorf("call %d got %+v", i, done)
		}
		for name, batch := range map[string]*idem.Batch{"batch": createdBatch("batch"), "rejecting batch": rejectingBatch("rejecting batch")} {
			if result := mustDoBatch(t, b.store, request(name), batch); result.Replayed != (i == 1) {
				t.Errorf("%s: call %d got %+v", name, i, result)
			}
		}
		rejected := mustDo(t, b.store, request("rejected"), rejecting("rejected"))
		if rejected.Replayed != (i == 1) || rejected.State != idem.StateRejected {
			t.Errorf("call %d got %+v", i, rejected)
		}
	}
	_, err := b.store.Do(t.Context(), request("aborted"), aborting("aborted"))
	wantError(t, err, errDecline)
	_, err = b.store.Do(t.Context(), otherPayload("done"), created("done"))
	wantError(t, err, idem.ErrKeyReused)
	if _, err := b.store.DoWithoutKey(t.Context(), idem.Request{}, created("keyless")); err != nil {
		t.Error(err)
	}
	if record, err := b.store.Lookup(t.Context(), "acme", "done"); err != nil || record.State != idem.StateCompleted {
		t.Errorf("lookup: %+v, %v", record, err)
	}
	for name, want := range map[string]int{"done": 1, "batch": 1, "rejecting batch": 0, "rejected": 0, "aborted": 0, "keyless": 1} {
		b.wantEffects(t, name, want)
	}
}

func pgbouncerInFlight(t *testing.T, b *bench, _ func(*pgxpool.Config)) {
	owner := hold()
	done := goDo(t.Context(), b.store, request("k"), owner.mutation(created("k")))
	<-owner.entered
	for range 5 {
		_, err := b.elsewhere.Do(t.Context(), request("k"), created("k"))
		wantError(t, err, idem.ErrInFlight)
		_, err = b.elsewhere.DoBatch(t.Context(), request("k"), createdBatch("k"))
		wantError(t, err, idem.ErrInFlight)
		_, err = b.elsewhere.Do(t.Context(), otherPayload("k"), created("k"))
		wantError(t, err, idem.ErrKeyReused)
	}
	close(owner.leave)
	if o := <-done; o.err != nil || o.result.Replayed {
		t.Errorf("the owner got %+v, %v", o.result, o.err)
	}
	b.wantEffects(t, "k", 1)
}

func pgbouncerWait(t *testing.T, b *bench, change func(*pgxpool.Config)) {
	waiting := newStore(t, b.Pool(t, change), idem.Config{ClaimWait: 30 * time.Second})
	owner := hold()
	done := goDo(t.Context(), b.store, request("k"), owner.mutation(created("k")))
	<-owner.entered
	duplicate := goDo(t.Context(), waiting, request("k"), created("k"))
	await(t, b.pool, "the duplicate waits", waitsForPayloadLock)
	close(owner.leave)
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
	if o := <-duplicate; o.err != nil || !o.result.Replayed {
		t.Errorf("the duplicate got %+v, %v", o.result, o.err)
	}
	// The wait's lock_timeout was that of its transaction alone.
	if n := scalar[int](t, b.pool, "select count(*) from pg_settings where name = 'lock_timeout' and source = 'session'"); n != 0 {
		t.Error("lock_timeout stayed with the session")
	}
}

func pgbouncerExpiry(t *testing.T, b *bench, _ func(*pgxpool.Config)) {
	for _, key := range []string{"taken over", "swept"} {
		mustDo(t, b.store, request(key), created(key))
	}
	b.expire(t)
	if result := mustDo(t, b.store, request("taken over"), created("taken over")); result.Replayed {
		t.Error("an expired record answered")
	}
	if swept, err := b.store.Sweep(t.Context(), idem.SweepOptions{}); err != nil || swept.Records != 1 {
		t.Errorf("sweep: %+v, %v", swept, err)
	}
	if result := mustDo(t, b.store, request("taken over"), created("taken over")); !result.Replayed {
		t.Error("the record taken over is gone")
	}
}

func pgbouncerDoTx(t *testing.T, b *bench, _ func(*pgxpool.Config)) {
	for i := range 2 {
		b.inTx(t, func(tx pgx.Tx) error {
			done, err := b.store.DoTx(t.Context(), tx, request("done"), created("done"))
			if err != nil || done.Replayed != (i == 1) {
				t.Errorf("call %d got %+v, %v", i, done, err)
			}
			rejected, err := b.store.DoTx(t.Context(), tx, request("rejected"), rejecting("rejected"))
			if err != nil || rejected.Replayed != (i == 1) || rejected.State != idem.StateRejected {
				t.Errorf("call %d got %+v, %v", i, rejected, err)
			}
			return err
		})
	}
	b.wantEffects(t, "done", 1)
	b.wantEffects(t, "rejected", 0)
}

func pgbouncerBurst(t *testing.T, b *bench, change func(*pgxpool.Config)) {
	for _, wait := range []time.Duration{0, 30 * time.Second} {
		key := fmt.Sprint("wait=", wait)
		config := idem.Config{ClaimWait: wait, AcquireTimeout: time.Minute}
		stores := []*idem.Store{newStore(t, b.pool, config), newStore(t, b.Pool(t, change), config)}
		first := 0
		for _, o := range burst(stores, 60, request(key), created(key)) {
			switch {
			case errors.Is(o.err, idem.ErrInFlight) && wait == 0:
			case o.err != nil:
				t.Errorf("%s: a duplicate got %v", key, o.err)
			case !o.result.Replayed:
				first++
			}
		}
		if first != 1 {
			t.Errorf("%s: %d first answers", key, first)
		}
		b.wantEffects(t, key, 1)
	}
}

// startPgBouncer returns what makes a pool of the run's server go through
// PgBouncer in transaction mode.
func startPgBouncer(t *testing.T) func(*pgxpool.Config) {
	t.Helper()
	program := findPgBouncer(t)
	upstream, err := url.Parse(testServer.url)
	if err != nil {
		t.Fatal(err)
	}
	target := fmt.Sprintf("host=%s port=%s user=%s", upstream.Hostname(), cmp.Or(upstream.Port(), "5432"), upstream.User.Username())
	if password, _ := upstream.User.Password(); password != "" {
		target += " password='" + password + "'"
	}
	port := freePort(t)
	config := filepath.Join(t.TempDir(), "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 12
max_client_conn = 500
`, target, port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	arguments := []string{"-c", pgbouncerScript, "sh", program}
	if os.Geteuid() == 0 { // it refuses to run as root
		arguments = append(arguments, "-u", "nobody")
	}
	command := exec.Command("/bin/sh", append(arguments, config)...)
	var log strings.Builder
	command.Stdout, command.Stderr = &log, &log
	lifeline, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = lifeline.Close()
		_ = command.Wait() // the code of a terminated program says nothing
		if t.Failed() {
			t.Logf("PgBouncer's log:\n%s", log.String())
		}
	})
	through := func(c *pgxpool.Config) {
		c.ConnConfig.Host, c.ConnConfig.Port = "127.0.0.1", port
		c.ConnConfig.TLSConfig, c.ConnConfig.Fallbacks = nil, nil
		c.ConnConfig.Password = "" // PgBouncer has it
	}
	awaitPgBouncer(t, port)
	return through
}

func findPgBouncer(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} { // Debian's place is not on everybody's PATH
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if inCI, _ := strconv.ParseBool(os.Getenv("CI")); inCI { // unset is false
		t.Fatal("no pgbouncer program here")
	}
	t.Skip("no pgbouncer program here: install it (Debian, Ubuntu: apt-get install pgbouncer) to run this test")
	return ""
}

func awaitPgBouncer(t *testing.T, port uint16) {
	t.Helper()
	err := eventually(30*time.Second, func() error {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		t.Fatalf("PgBouncer does not answer: %v", err)
	}
}

// freePort is a port of the loopback interface that nobody uses.
func freePort(t *testing.T) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address, _ := listener.Addr().(*net.TCPAddr)
	return uint16(address.Port)
}
