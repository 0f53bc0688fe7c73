package idem

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lentTx is the transaction as a mutation sees it: everything works but the
// endings, which belong to the library. It refuses all use once the mutation
// has returned, and once the mutation has ended the transaction behind its
// back.
type lentTx struct {
	pgx.Tx // the transaction or savepoint that is lent
	loan   *loan
	nested bool // a savepoint the mutation made itself: it may end that
}

// loan is what all handles of one lent transaction share. Its mutex makes the
// end of the loan wait for a statement that a leaked goroutine still runs, so
// the connection is never used by two at once.
type loan struct {
	mu         sync.Mutex
	returned   bool // the mutation has returned
	committed  bool // the mutation called Commit: the unit cannot succeed
	rolledBack bool // the mutation called Rollback: it can end with an error or Reject
}

func lend(tx pgx.Tx) *lentTx { return &lentTx{Tx: tx, loan: &loan{}} }

// takeBack ends the loan.
func (l *loan) takeBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.returned = true
}

// use locks the loan for one call, or refuses it.
func (t *lentTx) use() error {
	t.loan.mu.Lock()
	if t.loan.returned || t.loan.committed || t.loan.rolledBack || t.Tx.Conn().PgConn().TxStatus() == 'I' {
		t.loan.mu.Unlock()
		return ErrTxEnded
	}
	return nil
}

func (t *lentTx) done() { t.loan.mu.Unlock() }

// Begin makes a savepoint.
func (t *lentTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.use(); err != nil {
		return nil, err
	}
	defer t.done()
	savepoint, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &lentTx{Tx: savepoint, loan: t.loan, nested: true}, nil
}

// Commit releases a savepoint. On the lent transaction itself it refuses and
// dooms the unit: whoever believes the work is committed must not answer so.
func (t *lentTx) Commit(ctx context.Context) error {
	if err := t.use(); err != nil {
		return err
	}
	defer t.done()
	if t.nested {
		return t.Tx.Commit(ctx)
	}
	t.loan.committed = true
	return ErrTxEnded
}

// Rollback undoes a savepoint. On the lent transaction itself it makes the
// library roll back once the mutation has returned.
func (t *lentTx) Rollback(ctx context.Context) error {
	if err := t.use(); err != nil {
		if t.loan.isRolledBack() {
			return pgx.ErrTxClosed // what pgx says to a second Rollback
		}
		return err
	}
	defer t.done()
	if t.nested {
		return t.Tx.Rollback(ctx)
	}
	t.loan.rolledBack = true
	return nil
}

func (l *loan) isRolledBack() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rolledBack && !l.returned
}

func (t *lentTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.use(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer t.done()
	return t.Tx.Exec(ctx, sql, args...)
}

func (t *lentTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.use(); err != nil {
		rows, _ := pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
		return rows, err
	}
	defer t.done()
	return t.Tx.Query(ctx, sql, args...)
}

func (t *lentTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.use(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	defer t.done()
	return t.Tx.QueryRow(ctx, sql, args...)
}

func (t *lentTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.use(); err != nil {
		return nil, err
	}
	defer t.done()
	return t.Tx.Prepare(ctx, name, sql)
}

func (t *lentTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := t.use(); err != nil {
		return 0, err
	}
	defer t.done()
	return t.Tx.CopyFrom(ctx, table, columns, rows)
}

func (t *lentTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.use(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	defer t.done()
	return t.Tx.SendBatch(ctx, b)
}
