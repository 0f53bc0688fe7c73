package idemtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/idem/idemtest"
)

// notes is the app: it keeps notes.
type notes struct{ store *idem.Store }

func (n notes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	result, err := n.store.Do(r.Context(), idem.Request{
		Scope: "everyone", Operation: "POST /notes", Key: r.Header.Get("Idempotency-Key"),
		Fingerprint: idem.NewFingerprint(body),
	}, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "insert into notes (content) values ($1::text)", string(body))
		return idem.Response{Status: http.StatusCreated, Body: []byte("noted")}, err
	})
	switch {
	case err == nil:
		w.WriteHeader(result.Status)
		_, _ = w.Write(result.Body)
	case errors.Is(err, idem.ErrKeyReused):
		w.WriteHeader(http.StatusUnprocessableEntity)
	case errors.Is(err, idem.ErrInFlight):
		w.WriteHeader(http.StatusConflict)
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// proveNotes is what goes into the test of the app.
func proveNotes(t *testing.T) {
	pool := idemtest.NewDatabase(t, func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, "create table notes (content text not null)")
		return err
	})
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	idemtest.Run(t, idemtest.App{
		Store: store,
		Send: idemtest.Handler(notes{store}, func(r idemtest.Request) *http.Request {
			return httptest.NewRequest("POST", "/notes", strings.NewReader("a note of the variant "+r.Variant.String()))
		}),
		Effect: idemtest.Query(pool, "select count(*) from notes"),
	})
}

func ExampleRun() {
	// In a file *_test.go:
	tests := []testing.InternalTest{{Name: "TestNotesAreExactlyOnce", F: proveNotes}}
	_ = tests
}
