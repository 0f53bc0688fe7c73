package integration

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
)

// gates stop claims at the one moment that a test cannot reach from outside:
// after the claim's statement took its snapshot, before it tries its locks. A
// pool that goes through a gate finds a function of its own in front of
// PostgreSQL's, which waits until the gate is open.
type gates struct {
	control *pgxpool.Conn // holds the lock of each closed gate
}

const gatesSQL = `
create schema gated;
create function gated.pg_try_advisory_xact_lock(bigint) returns boolean language plpgsql volatile as $$
begin
	perform pg_catalog.pg_advisory_lock_shared(current_setting('gated.number')::bigint);
	perform pg_catalog.pg_advisory_unlock_shared(current_setting('gated.number')::bigint);
	return pg_catalog.pg_try_advisory_xact_lock($1);
end $$`

func newGates(t *testing.T, b *bench) *gates {
	t.Helper()
	b.exec(t, gatesSQL)
	control, err := b.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(control.Release)
	t.Cleanup(func() { _, _ = control.Exec(context.Background(), "select pg_advisory_unlock_all()") })
	return &gates{control}
}

// throughGate sends the claims of a pool through a gate.
func throughGate(number int) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["search_path"] = "gated, pg_catalog, public"
		c.ConnConfig.RuntimeParams["gated.number"] = strconv.Itoa(number)
	}
}

func (g *gates) exec(t *testing.T, sql string, number int64) {
	t.Helper()
	if _, err := g.control.Exec(t.Context(), sql, number); err != nil {
		t.Fatal(err)
	}
}

// kill ends the backends that sql finds and waits until they are gone.
// PostgreSQL's own wait looks only ten times a second.
func (g *gates) kill(t *testing.T, sql string, number int64) {
	t.Helper()
	rows, err := g.control.Query(t.Context(), sql, number)
	if err != nil {
		t.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		g.exec(t, "select pg_terminate_backend($1::bigint::int)", int64(pid))
	}
	err = eventually(settleWait, func() error {
		var left int
		err := g.control.QueryRow(t.Context(), "select count(*) from pg_stat_activity where pid = any ($1)", pids).Scan(&left)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d of the backends %v are still there", left, pids)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (g *gates) query(t *testing.T, condition string, number int) (holds bool) {
	t.Helper()
	if err := g.control.QueryRow(t.Context(), "select "+condition, number).Scan(&holds); err != nil {
		t.Fatal(err)
	}
	return holds
}

func (g *gates) close(t *testing.T, number int) {
	t.Helper()
	g.exec(t, "select pg_advisory_lock($1)", int64(number))
}

func (g *gates) open(t *testing.T, number int) {
	t.Helper()
	g.exec(t, "select pg_advisory_unlock($1)", int64(number))
}

// waiting is true in SQL when a claim waits at gate $1.
const waiting = `exists (select from pg_locks where locktype = 'advisory' and not granted and objid = $1
	and database = (select oid from pg_database where datname = current_database()))`

// lockNumbers makes the advisory locks of a request, by a second
// implementation: a change of the framing must not go unnoticed, for two
// versions of the library may serve one database.
func lockNumbers(r idem.Request) (payload, key int64) {
	frame := func(parts ...string) [32]byte {
		var framed []byte
		for _, p := range parts {
			framed = append(binary.BigEndian.AppendUint64(framed, uint64(len(p))), p...)
		}
		return sha256.Sum256(framed)
	}
	number := func(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }
	id := frame("idempg.key", r.Scope, r.Key)
	p := frame("idempg.payload", string(id[:]), r.Operation, string(r.Fingerprint[:]))
	return number(p[:]), number(id[16:])
}

// Goal: a duplicate whose snapshot is older than the owner's COMMIT gets the
// owner's answer, whatever happens to the key meanwhile. Method: it waits at a
// gate while the owner commits.
func TestAClaimWithAnOldSnapshotFindsTheRecord(t *testing.T) {
	t.Parallel()
	for _, level := range isolationLevels {
		for name, meanwhile := range map[string]func(*testing.T, *bench, *gates, idem.Request){
			"the key is free": func(*testing.T, *bench, *gates, idem.Request) {},
			// So the first look says "reused"; only a second one can know better.
			"another payload is being refused": func(t *testing.T, _ *bench, g *gates, r idem.Request) {
				_, key := lockNumbers(r)
				g.exec(t, "select pg_advisory_lock($1)", key)
			},
			// So the first look says "in flight".
			"another duplicate is being answered": func(t *testing.T, _ *bench, g *gates, r idem.Request) {
				payload, _ := lockNumbers(r)
				g.exec(t, "select pg_advisory_lock($1)", payload)
			},
		} {
			for before, prepare := range map[string]func(*testing.T, *bench){
				"new": func(*testing.T, *bench) {},
				"expired": func(t *testing.T, b *bench) {
					mustDo(t, b.store, request("k"), created("k"))
					b.expire(t)
				},
			} {
				t.Run(fmt.Sprintf("%s/%s/%s", level, before, name), func(t *testing.T) {
					t.Parallel()
					config := idem.Config{IsolationLevel: level}
					b := newBench(t, config)
					g := newGates(t, b)
					late := newStore(t, b.Pool(t, throughGate(1)), config)
					prepare(t, b)
					earlier := b.effects(t, "k")
					g.close(t, 1)
					duplicate := goDo(t.Context(), late, request("k"), created("k"))
					await(t, b.pool, "the duplicate waits", "select "+waiting, 1)
					mustDo(t, b.store, request("k"), created("k"))
					meanwhile(t, b, g, request("k"))
					g.open(t, 1)
					if o := <-duplicate; o.err != nil || !o.result.Replayed {
						t.Errorf("got %+v, %v, want a replay", o.result, o.err)
					}
					b.wantEffects(t, "k", earlier+1)
				})
			}
		}
	}
}

// Goal: a payload that is refused twice at once is "reused" for both, never "in
// flight". Method: the test holds the payload's lock, as the first would.
func TestAPayloadBeingRefusedIsNotInFlight(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	g := newGates(t, b)
	owner := hold()
	done := goDo(t.Context(), b.store, request("k"), owner.mutation(created("k")))
	<-owner.entered
	payload, _ := lockNumbers(otherPayload("k"))
	g.exec(t, "select pg_advisory_lock($1)", payload)
	_, err := b.store.Do(t.Context(), otherPayload("k"), created("k"))
	wantError(t, err, idem.ErrKeyReused)
	_, err = b.store.Do(t.Context(), request("k"), created("k"))
	wantError(t, err, idem.ErrInFlight)
	close(owner.leave)
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
}

// Where no record has to be finished, only the reply to COMMIT tells.
func TestASwallowedSQLErrorWithoutAKeyIsNoSuccess(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	_, err := b.store.DoWithoutKey(t.Context(), idem.Request{}, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		_ = write(ctx, tx, "k")
		_, _ = tx.Exec(ctx, "insert into effects (name) values (null)")
		return receipt("k"), nil
	})
	wantError(t, err, pgx.ErrTxCommitRollback)
	b.wantEffects(t, "k", 0)
}
