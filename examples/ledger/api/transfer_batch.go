package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/examples/ledger/postgres"
	"github.com/idempg/idempg/idem"
)

// TransferBatch is book.Book.Transfer as SQL alone, so that it can travel with
// others. What it answers is the same, except that a refusal names no account:
// nobody in Go has seen one. locks are those of all transfers that share its
// transaction.
func TransferBatch(ctx context.Context, outboxes Outboxes, tenant string, t book.NewTransfer, locks postgres.LockAccountsOnceParams) (*idem.Batch, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	batch := &idem.Batch{}
	header := http.Header{
		fiber.HeaderContentType: {fiber.MIMEApplicationJSON},
		fiber.HeaderLocation:    {transferPath + id.String()},
	}
	queue := postgres.New(sender(batch.Queue))
	respond := postgres.New(sender(func(sql string, arguments ...any) { batch.Respond(header, sql, arguments...) }))

	lockErr := queue.LockAccountsOnce(ctx, locks)
	_, releaseErr := queue.ReleaseDueHolds(ctx, postgres.ReleaseDueHoldsParams{Tenant: tenant, Accounts: []string{t.From}})
	admitErr := queue.AdmitTransfer(ctx, postgres.AdmitTransferParams{
		Tenant: tenant, FromAccount: t.From, ToAccount: t.To, Amount: t.Amount, Currency: t.Currency,
	})
	_, postErr := queue.PostTransfer(ctx, postgres.PostTransferParams{
		Tenant: tenant, ID: id, FromAccount: t.From, ToAccount: t.To,
		Amount: t.Amount, Currency: t.Currency, Reference: t.Reference, Metadata: t.Metadata,
	})
	emitErr := book.EmitTransferPosted(ctx, outboxes.In(batch), tenant, book.Transfer{
		ID: id, Pair: &book.Pair{From: t.From, To: t.To, Amount: t.Amount, Currency: t.Currency}, Reference: t.Reference,
	})
	respondErr := respond.TransferResponse(ctx, postgres.TransferResponseParams{Tenant: tenant, ID: id})
	err = errors.Join(lockErr, releaseErr, admitErr, postErr, emitErr, respondErr)
	for constraint, response := range transferRefusals {
		batch.RejectOn(constraint, response)
	}
	return batch, err
}

// transferRefusals are the answers to a transfer that breaks a rule, by the
// name that AdmitTransfer raises. The last two are constraints of the accounts.
var transferRefusals = map[string]idem.Response{
	"transfers_accounts_found": recorded(fmt.Errorf("%w: from or to", book.ErrAccountNotFound)),
	"transfers_currency":       recorded(fmt.Errorf("%w: an account holds another one", book.ErrCurrencyMismatch)),
	"accounts_funds":           recorded(fmt.Errorf("%w: the account that pays has less", book.ErrInsufficientFunds)),
	"accounts_balance_range":   recorded(fmt.Errorf("%w: a balance would leave -%d to %d", book.ErrBalanceLimit, book.MinorUnitsMax, book.MinorUnitsMax)),
}

// recorded is the answer to err as renderError gives it.
func recorded(err error) idem.Response {
	p := problemOf(err)
	return idem.Response{
		Status: p.Status,
		Header: http.Header{fiber.HeaderContentType: {mimeProblem}},
		Body:   p.json(),
	}
}

// sender takes down what the functions of package postgres send. There are no
// results yet, and so none are read.
type sender func(sql string, arguments ...any)

func (s sender) Exec(_ context.Context, sql string, arguments ...any) (pgconn.CommandTag, error) {
	s(sql, arguments...)
	return pgconn.CommandTag{}, nil
}

func (s sender) QueryRow(_ context.Context, sql string, arguments ...any) pgx.Row {
	s(sql, arguments...)
	return unread{}
}

func (s sender) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errors.New("a batch has no rows to return")
}

type unread struct{}

func (unread) Scan(...any) error { return nil }
