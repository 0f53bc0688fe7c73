package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// The longest list with the longest items, written without escapes, is no body
// that is too long.
func TestTheLimitsOfABulkFitTogether(t *testing.T) {
	t.Parallel()
	item := fmt.Sprintf(`{"reference":%q,"metadata":{"a":%q},"key":%q,"from":%q,"to":%q,"amount":%d,"currency":"EUR"}`,
		strings.Repeat("\U0001F4B6", book.ReferenceCharsMax), strings.Repeat("m", book.MetadataBytesMax-8),
		strings.Repeat("~", 255), strings.Repeat("x", 64), strings.Repeat("y", 64), book.MinorUnitsMax)
	list := strings.TrimSuffix(strings.Repeat(item+",", BulkItemsMax), ",")
	items, err := readBulk([]byte(`{"transfers":[` + list + `]}`))
	if err != nil || items[0].err != nil {
		t.Fatal(err, items[0].err)
	}
	if len(items) != BulkItemsMax || len(items[0].transfer.Metadata) != book.MetadataBytesMax || BulkBodyBytesMax >= ReadBytesMax {
		t.Errorf("read %d items, metadata of %d bytes", len(items), len(items[0].transfer.Metadata))
	}
}

// The errors that no test of the service can bring about are answered, too.
func TestTheProblemsOfABulk(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none") // which nothing here connects to
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b := newBulk(store, nil)
	for _, test := range []struct {
		err    error
		status int
		name   string
	}{
		{idem.ErrInFlight, http.StatusConflict, fibermw.CodeInFlight},
		{idem.ErrKeyReused, http.StatusUnprocessableEntity, fibermw.CodeKeyReused},
		{&idem.OutcomeUnknownError{Cause: errors.New("s3cret")}, http.StatusServiceUnavailable, fibermw.CodeOutcomeUnknown},
		{&pgconn.PgError{Code: "40P01", Message: "s3cret"}, http.StatusServiceUnavailable, fibermw.CodeDatabaseUnavailable},
		{context.DeadlineExceeded, http.StatusServiceUnavailable, fibermw.CodeDatabaseUnavailable},
		{errors.New("s3cret"), http.StatusInternalServerError, fibermw.CodeInternal},
	} {
		var r BulkResult
		r.fail(b.problemOf(test.err))
		var p Problem
		if err := json.Unmarshal(r.Body, &p); err != nil {
			t.Fatal(err)
		}
		if r.Status != test.status || p.Status != test.status || p.Title == "" ||
			p.Type != fibermw.ConfigDefault.ProblemTypeBase+test.name || strings.Contains(string(r.Body), "s3cret") {
			t.Errorf("got %s", r.Body)
		}
	}
}
