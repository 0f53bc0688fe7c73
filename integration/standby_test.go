//go:build unix

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
)

// Goal: what was answered survives a failover to a synchronous standby, and
// what did not reach the standby was never answered as a success. Method: a
// primary and a standby of their own; the standby is gone for one mutation,
// whose wait an operator cancels, and promoted after the primary is killed.
func TestFailoverToASynchronousStandby(t *testing.T) {
	t.Parallel()
	primary, server := newClusterServer(t)
	b := newBenchOn(t, newDatabaseOn(t, server), idem.Config{CommitTimeout: 3 * time.Second, SettleTimeout: time.Second})
	standby := newStandby(t, primary)
	setStandby(t, server.admin, "*")
	await(t, server.admin, "the standby is synchronous", "select exists (select from pg_stat_replication where sync_state = 'sync')")
	first := mustDo(t, b.store, request("replicated"), created("replicated"))
	refused := mustDo(t, b.store, request("refused"), rejecting("refused"))

	standby.kill(t)
	// What had not noticed yet that its postmaster is dead would confirm the COMMIT.
	await(t, server.admin, "the standby is gone", "select not exists (select from pg_stat_replication)")
	done := goDo(t.Context(), b.store, request("cut off"), created("cut off"))
	await(t, server.admin, "COMMIT waits for the standby", "select exists (select from pg_stat_activity where wait_event = 'SyncRep')")
	for answered := false; !answered; { // the operator cancels every wait
		if _, err := server.admin.Exec(t.Context(), "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"); err != nil {
			t.Fatal(err)
		}
		select {
		case o := <-done:
			answered = true
			if !isUnknown(o.err) {
				t.Errorf("the mutation that the standby did not get ended with %+v, %v, want OutcomeUnknownError", o.result, o.err)
			}
		case <-time.After(10 * time.Millisecond):
		}
	}
	setStandby(t, server.admin, "") // for the clean-up
	primary.kill(t)
	standby.start(t)
	checkPromoted(t, standby, b, first, refused)
	primary.start(t)
	server.admin.Reset() // its connections died with the primary
}

// checkPromoted promotes the standby and calls again there.
func checkPromoted(t *testing.T, standby *cluster, b *bench, first, refused idem.Result) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), strings.Replace(standby.url(), "/postgres?", "/"+b.name+"?", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store := newStore(t, pool, idem.Config{})
	_, err = store.Do(t.Context(), request("too early"), created("too early"))
	if !idem.Retryable(err) {
		t.Errorf("a standby that was not promoted answered %v, want a retryable error", err)
	}
	if !scalar[bool](t, pool, "select pg_promote()") {
		t.Fatal("the standby was not promoted")
	}
	for key, want := range map[string]idem.Result{"replicated": first, "refused": refused} {
		got := mustDo(t, store, request(key), created(key))
		if !got.Replayed || got.State != want.State || string(got.Body) != string(want.Body) || !got.RecordedAt.Equal(want.RecordedAt) {
			t.Errorf("%s: the new primary answered %+v, want the replay of %+v", key, got, want)
		}
	}
	if got := mustDo(t, store, request("cut off"), created("cut off")); got.Replayed {
		t.Errorf("what never reached the standby was replayed: %+v", got)
	}
	for key, want := range map[string]int{"replicated": 1, "refused": 0, "cut off": 1, "too early": 0} {
		if n := scalar[int](t, pool, "select count(*) from effects where name = $1", key); n != want {
			t.Errorf("%s: %d effects on the new primary, want %d", key, n, want)
		}
	}
}

// newStandby starts a standby of a cluster.
func newStandby(t *testing.T, primary *cluster) *cluster {
	t.Helper()
	c := newCluster(t)
	c.mustRun(t, "pg_basebackup", "--dbname="+fmt.Sprintf("host=127.0.0.1 port=%d user=postgres", primary.port),
		"--pgdata="+c.data(), "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	t.Cleanup(c.stop)
	c.start(t)
	return c
}
