package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// newDBOS is a DBOS workflow with one transactional step; the workflow's ID is the
// idempotency key. Application and DBOS share a pool and so a database: then the
// step and its checkpoint commit in one transaction, DBOS's fastest form. Around
// it DBOS keeps a row for the workflow, in transactions of its own, for it can do
// far more than one transaction. A duplicate asks for the result as often as the clients
// of other systems ask again. Inputs are not compared.
func newDBOS(ctx context.Context, p *place) (*system, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	d, err := dbos.NewContext(ctx, dbos.Config{
		AppName: "bench", SystemDBPool: pool, Logger: slog.New(slog.DiscardHandler),
		ApplicationVersion: "1", ExecutorID: "bench",
	})
	if err != nil {
		return nil, err
	}
	source, err := dbos.NewDataSource(d, pool)
	if err != nil {
		return nil, err
	}
	workflow := func(ctx dbos.Context, input dbosInput) (string, error) {
		return dbos.RunAsTransaction(ctx, source, input.mutate)
	}
	dbos.RegisterWorkflow(d, workflow, dbos.WithWorkflowName("transfer"))
	if err := d.Launch(); err != nil {
		return nil, err
	}
	p.held = 1 // DBOS listens for notifications
	p.closers = append(p.closers, func() error { return dbos.Shutdown(d, 10*time.Second) })

	do := func(_ context.Context, r request) (answer, error) {
		handle, err := dbos.RunWorkflow(d, workflow, dbosInput{r.key, r.transfer}, dbos.WithWorkflowID(r.user+":"+r.key))
		if err != nil {
			return answer{}, err
		}
		body, err := handle.GetResult(dbos.WithHandlePollingInterval(retryPause))
		return answer{status: statusCreated, body: []byte(body)}, err
	}
	return &system{name: "DBOS Transact", role: peer, floor: bare, newClient: func() client { return do }}, nil
}

// dbosInput is a request as DBOS records it.
type dbosInput struct {
	Key      string
	Transfer transferBody
}

// mutate is request.mutate on DBOS's own kind of transaction.
func (in dbosInput) mutate(ctx context.Context, tx dbos.Tx) (string, error) {
	var id int64
	if err := tx.QueryRow(ctx, insertTransfer, in.Transfer.Account, in.Transfer.Cents, in.Key).Scan(&id); err != nil {
		return "", err
	}
	if _, err := tx.Exec(ctx, updateAccount, in.Transfer.Account, in.Transfer.Cents); err != nil {
		return "", err
	}
	return string(render(id, in.Transfer.BytesWant)), nil
}
