package integration

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
)

// execModes are all modes of pgx.
var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// Every statement of the library means the same in each of pgx's modes, among
// them those that PgBouncer in transaction mode allows.
func TestEveryQueryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			setMode := func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }
			b := newBench(t, idem.Config{StatementTimeout: time.Minute, LockTimeout: time.Minute}, setMode)
			for i := range 2 {
				done := mustDo(t, b.store, request("done"), created("done"))
				rejected := mustDo(t, b.store, request("rejected"), rejecting("rejected"))
				if done.Replayed != (i == 1) || rejected.Replayed != (i == 1) || string(done.Body) != string(receipt("done").Body) ||
					done.Header.Values("X-Many")[2] != "caf\xe9" || rejected.State != idem.StateRejected {
					t.Errorf("call %d: %+v, %+v", i, done, rejected)
				}
			}
			_, err := b.store.Do(t.Context(), otherPayload("done"), created("done"))
			wantError(t, err, idem.ErrKeyReused)
			if record, err := b.store.Lookup(t.Context(), "acme", "done"); err != nil || record.State != idem.StateCompleted {
				t.Errorf("lookup: %+v, %v", record, err)
			}

			owner := hold()
			held := goDo(t.Context(), b.store, request("held"), owner.mutation(created("held")))
			<-owner.entered
			_, err = b.elsewhere.Do(t.Context(), request("held"), created("held"))
			wantError(t, err, idem.ErrInFlight)
			_, err = b.elsewhere.Do(t.Context(), otherPayload("held"), created("held"))
			wantError(t, err, idem.ErrKeyReused)
			waiting := newStore(t, b.Pool(t, setMode), idem.Config{ClaimWait: 30 * time.Second})
			duplicate := goDo(t.Context(), waiting, request("held"), created("held"))
			await(t, b.pool, "the duplicate waits", waitsForPayloadLock)
			close(owner.leave)
			<-held
			if o := <-duplicate; o.err != nil || !o.result.Replayed {
				t.Errorf("the duplicate got %+v, %v", o.result, o.err)
			}

			b.exec(t, "update idem.records set created_at = now() - interval '2 days', expires_at = now() - interval '1 day'")
			if again := mustDo(t, b.store, request("done"), created("done")); again.Replayed {
				t.Error("an expired record answered")
			}
			if swept, err := b.store.Sweep(t.Context(), idem.SweepOptions{}); err != nil || swept.Records != 2 {
				t.Errorf("sweep: %+v, %v", swept, err)
			}
			b.inTx(t, func(tx pgx.Tx) error {
				_, err := b.store.DoTx(t.Context(), tx, request("in tx"), rejecting("in tx"))
				return err
			})
		})
	}
}

// The timeouts hold for the mutation's transaction and not for the session.
func TestTimeoutsAreSetForTheTransactionAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{
		IdleInTransactionTimeout: 11 * time.Second, StatementTimeout: 12 * time.Second, LockTimeout: 13 * time.Second,
	}, maxConns(1))
	show := "select concat_ws(' ', current_setting('idle_in_transaction_session_timeout'), current_setting('statement_timeout'), current_setting('lock_timeout'))"
	before := scalar[string](t, b.pool, show)
	inside := ""
	_, err := b.store.Do(t.Context(), request("k"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		return receipt("k"), tx.QueryRow(ctx, show).Scan(&inside)
	})
	if err != nil || inside != "11s 12s 13s" {
		t.Errorf("inside: %q, %v", inside, err)
	}
	if after := scalar[string](t, b.pool, show); after != before || before == inside {
		t.Errorf("the session had %q before and has %q after", before, after)
	}
}
