package integration

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

// Goal: a lent transaction that was kept cannot write into a later unit. Method:
// one connection, so the next unit's transaction is open on the very connection
// that the kept one refers to.
func TestAKeptTransactionCannotWriteIntoTheNextUnit(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{}, maxConns(1))
	var kept pgx.Tx
	mustDo(t, b.store, request("first"), func(_ context.Context, tx pgx.Tx) (idem.Response, error) {
		kept = tx
		return receipt("first"), nil
	})
	mustDo(t, b.store, request("second"), func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		if kept.Conn() != tx.Conn() {
			t.Error("the units have not met on one connection")
		}
		wantError(t, write(ctx, kept, "late"), idem.ErrTxEnded)
		return receipt("second"), write(ctx, tx, "second")
	})
	b.wantEffects(t, "late", 0)
	b.wantEffects(t, "second", 1)
}
