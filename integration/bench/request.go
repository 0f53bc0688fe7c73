package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

const (
	accounts = 10_000 // rows that transfers are spread over
	hotOne   = 1      // the account of the cells with one hot account
	users    = 100    // whose keys they are

	statusCreated  = 201
	statusInFlight = 409
	contentType    = "application/json"
	operation      = "POST /transfers"
)

// The two statements of the mutation that every system makes happen.
const (
	insertTransfer = `insert into bench.transfers (account, cents, key) values ($1, $2, $3) returning id`
	updateAccount  = `update bench.accounts set balance = balance + $2 where id = $1`
)

// request asks for one mutation, as a client would over HTTP.
type request struct {
	user, key string
	transfer  transferBody
	payload   []byte // transfer as JSON: what a fingerprint is made of
	noop      bool   // the mutation does nothing: what is left is the system
}

type transferBody struct {
	Account   int `json:"account"`
	Cents     int `json:"cents"`
	BytesWant int `json:"bytes_want"` // the size of the answer
}

// answer is what the client gets. Its body is valid until the client's next
// request.
type answer struct {
	status int
	body   []byte
}

func newRequest(account, bytesWant int) request {
	transfer := transferBody{Account: account, Cents: 1 + rand.IntN(10_000), BytesWant: bytesWant}
	payload, err := json.Marshal(transfer)
	if err != nil {
		panic(err) // three numbers
	}
	return request{user: "user-" + strconv.Itoa(rand.IntN(users)), key: newKey(), transfer: transfer, payload: payload}
}

// newKey is a random UUID, so that an index on it gets its entries all over, as
// it does from real clients.
func newKey() string {
	a, b := rand.Uint64(), rand.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffffffffffff)
}

// mutate carries the request out on tx and renders the answer, which names the
// row that was made: an answer tells which execution it is from.
func (r request) mutate(ctx context.Context, tx pgx.Tx) ([]byte, error) {
	if r.noop {
		return render(0, r.transfer.BytesWant), nil
	}
	var id int64
	if err := tx.QueryRow(ctx, insertTransfer, r.transfer.Account, r.transfer.Cents, r.key).Scan(&id); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, updateAccount, r.transfer.Account, r.transfer.Cents); err != nil {
		return nil, err
	}
	return render(id, r.transfer.BytesWant), nil
}

// render makes an answer of about the wanted size.
func render(id int64, bytesWant int) []byte {
	rest := renderRest(bytesWant)
	body := append(make([]byte, 0, bytesWant+40), answerHead...)
	return append(strconv.AppendInt(body, id, 10), rest...)
}

// answerHead precedes the ID in an answer.
const answerHead = `{"id":`

// renderRest is what follows it.
func renderRest(bytesWant int) string {
	const head, tail = `,"lines":[`, `"end"]}`
	return head + filling[:max(0, bytesWant-len(answerHead)-len(head)-len(tail))] + tail
}

// filling is a page of JSON with random identifiers, like a statement of account.
// lz4 makes about half of it.
var filling = func() string {
	const bytesMax = 64 << 10
	random := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for text.Len() < bytesMax {
		fmt.Fprintf(&text, `"%016x: %d cents, booked",`, random.Uint64(), random.IntN(100_000))
	}
	return text.String()[:bytesMax]
}()
