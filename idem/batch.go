package idem

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Batch is a mutation that is SQL through and through: see [Store.DoBatch]. Its
// statements run in the order in which they were queued, in one transaction,
// and the one given to Respond runs last and makes the response. A failing
// statement undoes all of them.
//
// The statements travel together, so none can be given what an earlier one
// returned: let it read that from the tables, or make ids in Go beforehand. A
// condition that must hold is a constraint, or a function that raises one.
//
// A Batch is data: it may be used again, also for several calls at once, once
// it is no longer added to. The zero Batch is empty and ready.
type Batch struct {
	statements []statement
	respond    *statement
	header     http.Header
	rejections map[string]Response
}

// statement is SQL with its arguments, as pgx takes them.
type statement struct {
	sql       string
	arguments []any
}

// Queue adds a statement. Rows that it returns are discarded. The arguments are
// those of pgx.Batch.Queue: values, or a pgx.QueryRewriter such as
// pgx.NamedArgs first. A statement must not begin or end a transaction.
func (b *Batch) Queue(sql string, arguments ...any) {
	b.statements = append(b.statements, statement{sql, arguments})
}

// Respond sets the last statement, which returns the response as its only row:
// the status (an integer, 200 to 599, null for 200) and the body. A body of type
// bytea is recorded byte for byte; any other type, such as jsonb, as PostgreSQL
// spells it in text, in UTF-8. header is recorded beside it and may be nil.
//
// The statement may be a select, or a single insert, update, delete or merge
// with a returning clause as far as the server takes it in a WITH query; an
// empty result is an error that aborts. The arguments are those of Queue.
func (b *Batch) Respond(header http.Header, sql string, arguments ...any) {
	b.header = header
	b.respond = &statement{sql, arguments}
}

// RejectOn makes the violation of a constraint a rejection: the writes are
// undone and response is recorded as the answer, as with [Reject]. constraint is
// the name that PostgreSQL reports: of a CHECK, unique, exclusion or foreign key
// constraint of any table, deferred ones included, or whatever a function raised
// as constraint.
func (b *Batch) RejectOn(constraint string, response Response) {
	if b.rejections == nil {
		b.rejections = map[string]Response{}
	}
	b.rejections[constraint] = response
}

// validate reports what keeps the batch from being sent at all.
func (b *Batch) validate() error {
	if b == nil || b.respond == nil {
		return &InvalidBatchError{Reason: "has no response: call Respond with a statement that returns status and body"}
	}
	for _, s := range b.statements {
		if word := firstWord(s.sql); endsTransactions[word] {
			return &InvalidBatchError{Reason: fmt.Sprintf("has a statement that begins with %q: only the library begins and ends the transaction", word)}
		}
	}
	return nil
}

var endsTransactions = map[string]bool{
	"begin": true, "start": true, "commit": true, "end": true, "rollback": true, "abort": true, "prepare": true,
}

func firstWord(sql string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(sql), " ")
	return strings.ToLower(strings.TrimRight(word, ";\n\t"))
}

// queue queues the statements but the last.
func (b *Batch) queue(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch) error {
	for _, s := range b.statements {
		sql, arguments, err := s.rewrite(ctx, conn)
		if err != nil {
			return err
		}
		batch.Queue(sql, arguments...)
	}
	return nil
}

// rewrite applies the pgx.QueryRewriter among the arguments. pgx would do the
// same, but with an error that does not tell that nothing was sent.
func (s *statement) rewrite(ctx context.Context, conn *pgx.Conn) (string, []any, error) {
	if len(s.arguments) > 0 {
		if rewriter, ok := s.arguments[0].(pgx.QueryRewriter); ok {
			sql, arguments, err := rewriter.RewriteQuery(ctx, conn, s.sql, s.arguments[1:])
			if err != nil {
				return "", nil, &InvalidBatchError{Reason: "has arguments that cannot be used: " + err.Error()}
			}
			return sql, arguments, nil
		}
	}
	return s.sql, s.arguments, nil
}

// answer is the record as the last statement of a Batch has written it.
type answer struct {
	status                pgtype.Int2
	body                  []byte
	finishedAt, expiresAt pgtype.Timestamptz
}

// result is the answer with the headers that were recorded with it.
func (a *answer) result(header http.Header) Result {
	return Result{
		Response: Response{Status: int(a.status.Int16), Header: header.Clone(), Body: a.body},
		State:    StateCompleted, RecordedAt: a.finishedAt.Time, ExpiresAt: a.expiresAt.Time,
	}
}

// queueRespond queues the last statement, which turns the claim of id into a
// record of what it returns, to be read into a.
func (b *Batch) queueRespond(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch, id [16]byte, limits Config, a *answer) error {
	headers, err := encodeHeaders(b.header, limits.HeaderBytesMax)
	if err != nil {
		return err
	}
	sql, arguments, err := b.respond.rewrite(ctx, conn)
	if err != nil {
		return err
	}
	n := len(arguments)
	arguments = append(arguments[:n:n], pgtype.UUID{Bytes: id, Valid: true}, headers, limits.BodyBytesMax)
	batch.Queue(respondSQL(sql, n), arguments...).QueryRow(func(row pgx.Row) error {
		return row.Scan(&a.finishedAt, &a.expiresAt, &a.status, &a.body)
	})
	return nil
}
