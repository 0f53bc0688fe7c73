package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Goal: the schema itself refuses what would break the book, whoever writes.
// Method: write it by hand, in a transaction that is then committed.
func TestTheSchemaGuardsTheBook(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	service.open("bob", "EUR", "0")
	service.open("dollars", "USD", "null")
	service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 100))

	const (
		transfer = `insert into ledger.transfers (tenant, id, from_account, to_account, amount, currency, created_at)
			values ('acme', '00000000-0000-7000-8000-000000000001', 'bank', 'alice', 7, 'EUR', now());`
		debit  = `insert into ledger.entries values ('acme', 'bank', 2, '00000000-0000-7000-8000-000000000001', -7, -107);`
		credit = `insert into ledger.entries values ('acme', 'alice', 2, '00000000-0000-7000-8000-000000000001', 7, 107);`
	)
	for name, test := range map[string]struct{ sql, constraint string }{
		"a transfer without entries":           {transfer, "transfers_balanced"},
		"a transfer with one entry":            {transfer + debit, "transfers_balanced"},
		"entries that do not sum to zero":      {transfer + debit + strings.ReplaceAll(credit, "7,", "8,"), "transfers_balanced"},
		"entries of another amount":            {transfer + strings.ReplaceAll(debit, "-7,", "-8,") + strings.ReplaceAll(credit, "7,", "8,"), "transfers_balanced"},
		"entries the wrong way round":          {transfer + strings.ReplaceAll(debit, "-7,", "7,") + strings.ReplaceAll(credit, "7,", "-7,"), "transfers_balanced"},
		"an entry of a third account":          {transfer + debit + strings.ReplaceAll(credit, "'alice', 2", "'bob', 1"), "transfers_balanced"},
		"an entry added to an old transfer":    {`insert into ledger.entries select tenant, 'bob', 1, transfer_id, 7, 7 from ledger.entries where version = 1 and account_id = 'bank'`, "transfers_balanced"},
		"an entry of no transfer":              {debit, "entries_tenant_transfer_id_fkey"},
		"a second entry of an account":         {transfer + debit + strings.ReplaceAll(debit, "'bank', 2", "'bank', 3"), "entries_tenant_transfer_id_account_id_key"},
		"a version that is taken":              {transfer + strings.ReplaceAll(debit, "'bank', 2", "'bank', 1"), "entries_pkey"},
		"a transfer to another tenant":         {strings.ReplaceAll(transfer, "'alice'", "'globexs'"), "transfers_tenant_to_account_currency_fkey"},
		"a transfer in another currency":       {strings.ReplaceAll(transfer, "'alice'", "'dollars'"), "transfers_tenant_to_account_currency_fkey"},
		"a transfer to the same account":       {strings.ReplaceAll(transfer, "'alice'", "'bank'"), "transfers_accounts"},
		"an amount of zero":                    {strings.ReplaceAll(transfer, "7,", "0,"), "transfers_amount"},
		"an amount above 2^53":                 {strings.ReplaceAll(transfer, "7,", "9007199254740993,"), "transfers_amount"},
		"a balance below min_balance":          {`update ledger.accounts set balance = -1 where id = 'bob'`, "accounts_funds"},
		"a balance above 2^53":                 {`update ledger.accounts set balance = 9007199254740993 where id = 'bank'`, "accounts_balance_range"},
		"a positive min_balance":               {`update ledger.accounts set min_balance = 1, balance = 1 where id = 'bob'`, "accounts_min_balance_range"},
		"a currency in small letters":          {`insert into ledger.accounts (tenant, id, currency) values ('acme', 'x', 'eur')`, "accounts_currency"},
		"a currency with a line feed":          {`insert into ledger.accounts (tenant, id, currency) values ('acme', 'x', E'EUR\n')`, "accounts_currency"},
		"an account id that no URL can hold":   {`insert into ledger.accounts (tenant, id, currency) values ('acme', '..', 'EUR')`, "accounts_id"},
		"another currency for an old account":  {`update ledger.accounts set currency = 'USD' where id = 'alice'`, "transfers_tenant_to_account_currency_fkey"},
		"the end of an account with transfers": {`delete from ledger.accounts where id = 'alice'`, "transfers_tenant_to_account_currency_fkey"},
		"a changed entry":                      {`update ledger.entries set amount = amount + 1`, "append-only"},
		"a deleted entry":                      {`delete from ledger.entries`, "append-only"},
		"a changed transfer":                   {`update ledger.transfers set amount = amount + 1`, "append-only"},
		"truncated tables":                     {`truncate ledger.accounts cascade`, "append-only"},
	} {
		if got := refusal(t, pool, test.sql); got != test.constraint {
			t.Errorf("%s: refused by %q, want %q", name, got, test.constraint)
		}
	}
	// By hand it works too when it is right, or the test above shows nothing.
	const balances = `update ledger.accounts set version = version + 1,
		balance = balance + case id when 'bank' then -7 else 7 end where id in ('bank', 'alice');`
	if got := refusal(t, pool, transfer+debit+credit+balances); got != "" {
		t.Errorf("a balanced transfer was refused by %q", got)
	}
}

// refusal returns which guard refuses sql, or "" when it is committed.
func refusal(t *testing.T, pool *pgxpool.Pool, sql string) string {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(context.WithoutCancel(t.Context()), sql)
		return err
	})
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &pgErr) && pgErr.Code == "23001": // restrict_violation
		return "append-only"
	case pgErr == nil:
		t.Fatal(err)
	}
	return pgErr.ConstraintName
}

// Goal: the audit is no rubber stamp. Method: break the book behind the
// triggers' back, look, and repair it.
func TestTheAuditFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 100))
	const sound = `{"ok":true,"accounts":2,"transfers":1,"sum_by_currency":{"EUR":0},"balance_mismatches":0,"held_mismatches":0,"unbalanced_transfers":0}`
	for name, test := range map[string]struct{ breaks, repairs, audit string }{
		"a balance": {
			`update ledger.accounts set balance = 101 where id = 'alice'`,
			`update ledger.accounts set balance = 100 where id = 'alice'`,
			`{"ok":false,"accounts":2,"transfers":1,"sum_by_currency":{"EUR":0},"balance_mismatches":1,"held_mismatches":0,"unbalanced_transfers":0}`,
		},
		"a version": {
			`update ledger.accounts set version = 2 where id = 'alice'`,
			`update ledger.accounts set version = 1 where id = 'alice'`,
			`{"ok":false,"accounts":2,"transfers":1,"sum_by_currency":{"EUR":0},"balance_mismatches":1,"held_mismatches":0,"unbalanced_transfers":0}`,
		},
		"what is held": {
			`update ledger.accounts set held = 1 where id = 'bank'`,
			`update ledger.accounts set held = 0 where id = 'bank'`,
			`{"ok":false,"accounts":2,"transfers":1,"sum_by_currency":{"EUR":0},"balance_mismatches":0,"held_mismatches":1,"unbalanced_transfers":0}`,
		},
		"an entry": {
			`set session_replication_role = replica; update ledger.entries set amount = 101 where account_id = 'alice'; reset session_replication_role`,
			`set session_replication_role = replica; update ledger.entries set amount = 100 where account_id = 'alice'; reset session_replication_role`,
			`{"ok":false,"accounts":2,"transfers":1,"sum_by_currency":{"EUR":1},"balance_mismatches":1,"held_mismatches":0,"unbalanced_transfers":1}`,
		},
	} {
		for _, step := range []struct{ sql, audit string }{{test.breaks, test.audit}, {test.repairs, sound}} {
			if got := refusal(t, pool, step.sql); got != "" {
				t.Fatalf("%s: refused by %q", name, got)
			}
			if got := service.get("/v1/audit").body; got != step.audit {
				t.Errorf("%s: got %s, want %s", name, got, step.audit)
			}
		}
	}
}

// The migration can be undone and done again.
func TestDownAndUp(t *testing.T) {
	t.Parallel()
	_, pool := newDatabase(t)
	provider, done, err := ledgerTables.newProvider(pool)
	must(t, err)
	defer done()
	_, err = provider.DownTo(t.Context(), 0)
	must(t, err)
	if one[bool](t, pool, "select to_regnamespace('ledger') is not null") {
		t.Error("the schema is still there")
	}
	must(t, migrate(t.Context(), pool))
}

// A role that is called like the schema finds it first in its search_path once
// it is there. Migrating again must find the version table all the same.
func TestMigratingAgainAsARoleCalledLedger(t *testing.T) {
	t.Parallel()
	name := strings.ToLower("ledger_" + newKey())
	must(t, onServer(t.Context(), "create database "+name))
	t.Cleanup(func() {
		must(t, onServer(context.WithoutCancel(t.Context()), "drop database "+name+" with (force)"))
	})
	for range 2 {
		pool, err := connect(t.Context(), databaseURL(name)+" search_path=ledger,public", nil)
		must(t, err)
		err = migrate(t.Context(), pool)
		pool.Close()
		must(t, err)
	}
}
