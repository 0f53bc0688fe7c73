package idem_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/internal/localpg"
	"github.com/idempg/idempg/migrations"
)

// store is what the examples run on: a throwaway database with one account.
var store *idem.Store

func TestMain(m *testing.M) {
	flag.Parse()
	if run := flag.Lookup("test.run").Value.String(); run == "^$" || strings.Contains(run, "Fuzz") { // no example needs a server
		os.Exit(m.Run())
	}
	code, err := run(m)
	if err != nil {
		log.Fatal(err)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx := context.Background()
	server, err := localpg.Start(ctx, localpg.Options{Volatile: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	pool, err := pgxpool.New(ctx, server.URL)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil {
		return 0, err
	}
	if _, err := pool.Exec(ctx, `create table accounts (id text primary key, cents bigint not null);
		create table savings (id text primary key, cents bigint not null constraint savings_not_negative check (cents >= 0));
		insert into accounts values ('a', 100); insert into savings values ('s', 100)`); err != nil {
		return 0, err
	}
	if store, err = idem.New(pool, idem.Config{}); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// The same request twice: one withdrawal, one answer.
func ExampleStore_Do() {
	ctx := context.Background()
	request := idem.Request{
		Scope:       "acme",
		Operation:   "withdraw",
		Key:         "withdraw-1",
		Fingerprint: idem.NewFingerprint([]byte(`{"account":"a","cents":30}`)),
	}
	withdraw := func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		var left int64
		err := tx.QueryRow(ctx, "update accounts set cents = cents - 30 where id = 'a' returning cents").Scan(&left)
		if err != nil {
			return idem.Response{}, err
		}
		return idem.Response{Status: http.StatusCreated, Body: fmt.Appendf(nil, "%d left", left)}, nil
	}
	for range 2 {
		result, err := store.Do(ctx, request, withdraw)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d %s, replayed: %v\n", result.Status, result.Body, result.Replayed)
	}

	request.Fingerprint = idem.NewFingerprint([]byte(`{"account":"a","cents":50}`))
	_, err := store.Do(ctx, request, withdraw)
	fmt.Println(errors.Is(err, idem.ErrKeyReused))
	// Output:
	// 201 70 left, replayed: false
	// 201 70 left, replayed: true
	// true
}

// A refusal undoes what was written and is the answer from then on.
func ExampleReject() {
	ctx := context.Background()
	request := idem.Request{Scope: "acme", Key: "withdraw-2", Fingerprint: idem.NewFingerprint([]byte("a million"))}
	withdraw := func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		var left int64
		err := tx.QueryRow(ctx, "update accounts set cents = cents - 1000000 where id = 'a' returning cents").Scan(&left)
		if err != nil {
			return idem.Response{}, err
		}
		if left < 0 {
			no := idem.Response{Status: http.StatusPaymentRequired, Body: []byte("not enough money")}
			return idem.Response{}, idem.Reject(no, nil)
		}
		return idem.Response{Status: http.StatusCreated}, nil
	}
	for range 2 {
		result, err := store.Do(ctx, request, withdraw)
		fmt.Println(result.Status, string(result.Body), result.State, err)
	}
	// Output:
	// 402 not enough money rejected <nil>
	// 402 not enough money rejected <nil>
}

// A mutation that is SQL alone takes one round trip, its record and COMMIT
// included. The constraint of the table refuses what may not be.
func ExampleStore_DoBatch() {
	ctx := context.Background()
	withdraw := func(key string, cents int) (idem.Result, error) {
		batch := &idem.Batch{}
		batch.Queue("update savings set cents = cents - $1 where id = 's'", cents)
		batch.Respond(nil, "select 201, jsonb_build_object('cents', cents) from savings where id = 's'")
		batch.RejectOn("savings_not_negative", idem.Response{Status: http.StatusPaymentRequired, Body: []byte("not enough money")})
		request := idem.Request{Scope: "acme", Key: key, Fingerprint: idem.NewFingerprint(fmt.Append(nil, cents))}
		return store.DoBatch(ctx, request, batch)
	}
	for range 2 {
		some, err := withdraw("some", 30)
		fmt.Println(some.Status, string(some.Body), some.Replayed, err)
		all, err := withdraw("all", 100)
		fmt.Println(all.Status, string(all.Body), all.Replayed, err)
	}
	// Output:
	// 201 {"cents": 70} false <nil>
	// 402 not enough money false <nil>
	// 201 {"cents": 70} true <nil>
	// 402 not enough money true <nil>
}

// Messages of a queue, in one transaction, each with its own key and ending. The
// queue delivers one of them twice.
func ExampleStore_DoMany() {
	deposit := func(message string) idem.Item {
		batch := &idem.Batch{}
		batch.Queue("update savings set cents = cents + 1 where id = 's'")
		batch.Respond(nil, "select 200, $1::text", "handled "+message)
		return idem.Item{Batch: batch, Request: idem.Request{
			Scope: "deposits", Key: message, Fingerprint: idem.NewFingerprint([]byte(message)),
		}}
	}
	results, err := store.DoMany(context.Background(), []idem.Item{deposit("m1"), deposit("m2"), deposit("m1")}, idem.ManyOptions{})
	for _, r := range results {
		fmt.Println(string(r.Result.Body), r.Result.Replayed, r.Err)
	}
	fmt.Println(err)
	// Output:
	// handled m1 false <nil>
	// handled m2 false <nil>
	// handled m1 true <nil>
	// <nil>
}

// A value of one's own type, recorded as JSON.
func ExampleDo() {
	type receipt struct {
		Cents int64 `json:"cents"`
	}
	ctx := context.Background()
	request := idem.Request{Scope: "acme", Key: "deposit-1", Fingerprint: idem.NewFingerprint([]byte("5"))}
	for range 2 {
		value, result, err := idem.Do(ctx, store, request, func(ctx context.Context, tx pgx.Tx) (receipt, error) {
			_, err := tx.Exec(ctx, "update accounts set cents = cents + 5 where id = 'a'")
			return receipt{Cents: 5}, err
		})
		fmt.Println(value.Cents, result.Replayed, err)
	}
	// Output:
	// 5 false <nil>
	// 5 true <nil>
}

// The provider is given a key that is the same in every attempt, so that it can
// tell a retry. Call it from a job that is written in the same transaction.
func ExampleDerivedKey() {
	ctx := context.Background()
	request := idem.Request{Scope: "acme", Key: "order-1", Fingerprint: idem.NewFingerprint([]byte("a book"))}
	order := func(ctx context.Context, _ pgx.Tx) (idem.Response, error) {
		fmt.Println(idem.DerivedKey(ctx, "charge"))
		return idem.Response{}, errors.New("out of paper") // aborted, so it runs again
	}
	for range 2 {
		_, err := store.Do(ctx, request, order)
		fmt.Println(err)
	}
	// Output:
	// a1231583-a1b0-8557-a674-b66fadef137d
	// out of paper
	// a1231583-a1b0-8557-a674-b66fadef137d
	// out of paper
}
