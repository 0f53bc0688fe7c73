package idemtest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/idem/idemtest"
)

// shop is an app that is right, made of parts that a test replaces by wrong ones.
type shop struct {
	pool  *pgxpool.Pool
	store *idem.Store

	scope    func(*http.Request) string
	key      func(*http.Request) string
	print    func(body []byte) idem.Fingerprint
	early    func(context.Context) // before the library is called
	sell     idem.Mutation
	answered func(http.ResponseWriter, *idem.Result, error) error // after it has returned
}

func newShop(t *testing.T, config idem.Config) *shop {
	t.Helper()
	pool := idemtest.NewDatabase(t, func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, "create table sales (item bigint generated always as identity)")
		return err
	})
	store, err := idem.New(pool, config)
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{pool: pool, store: store}
	s.scope = func(*http.Request) string { return "alice" }
	s.key = func(r *http.Request) string { return r.Header.Get("Idempotency-Key") }
	s.print = func(body []byte) idem.Fingerprint { return idem.NewFingerprint(body) }
	s.early = func(context.Context) {}
	s.answered = func(_ http.ResponseWriter, _ *idem.Result, err error) error { return err }
	s.sell = func(ctx context.Context, tx pgx.Tx) (idem.Response, error) { return s.receipt(s.insert(ctx, tx)) }
	return s
}

func (s *shop) insert(ctx context.Context, tx interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
},
) error {
	_, err := tx.Exec(ctx, "insert into sales default values")
	return err
}

func (s *shop) receipt(err error) (idem.Response, error) {
	return idem.Response{Status: http.StatusCreated, Header: http.Header{"Location": {"/sales/1"}}, Body: []byte("sold")}, err
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.early(r.Context())
	sell := s.sell
	if bytes.Equal(body, []byte("refuse")) {
		sell = func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
			return idem.Response{}, idem.Reject(idem.Response{Status: http.StatusPaymentRequired, Body: []byte("no money")}, s.insert(ctx, tx))
		}
	}
	result, err := s.store.Do(r.Context(), idem.Request{
		Scope: s.scope(r), Operation: "POST /sales", Key: s.key(r), Fingerprint: s.print(body),
	}, sell)
	err = s.answered(w, &result, err)
	switch {
	case err == nil:
		for name, values := range result.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(result.Status)
		_, _ = w.Write(result.Body)
	case strings.Contains(err.Error(), "different request"):
		w.WriteHeader(http.StatusUnprocessableEntity)
	case strings.Contains(err.Error(), "in flight"):
		w.WriteHeader(http.StatusConflict)
	case idem.Retryable(err):
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func (s *shop) app() idemtest.App {
	return idemtest.App{
		Store: s.store,
		Send: idemtest.Handler(s, func(r idemtest.Request) *http.Request {
			body := []string{"buy", "buy another", "refuse"}[r.Variant]
			request := httptest.NewRequest(http.MethodPost, "/sales", strings.NewReader(body))
			request.Header.Set("Authorization", "Bearer "+rand.Text()) // a client that renews its token for each try
			return request
		}),
		Effect:   idemtest.Query(s.pool, "select count(*) from sales"),
		Refusals: true,
	}
}

// recorder is a testing.TB that keeps what is reported.
type recorder struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, arguments ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf(format, arguments...))
}

func (r *recorder) Fatalf(format string, arguments ...any) {
	r.Errorf(format, arguments...)
	runtime.Goexit()
}

// reports runs the kit and returns what it reports.
func reports(t *testing.T, app idemtest.App) []string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		idemtest.Run(r, app)
	}()
	<-done
	return r.said
}

func TestAnAppThatIsRightPasses(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]idem.Config{
		"409":          {},
		"wait":         {ClaimWait: 20 * time.Second},
		"serializable": {IsolationLevel: pgx.Serializable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			idemtest.Run(t, newShop(t, config).app())
		})
	}
}

// Goal: each way to be wrong is found, and named. Method: break one part of an
// app that is right.
func TestAnAppThatIsWrongIsToldHow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*shop)
		check string // which check finds it first
		words string // and what it says
	}{
		"writes through the pool": {func(s *shop) {
			s.sell = func(ctx context.Context, _ pgx.Tx) (idem.Response, error) { return s.receipt(s.insert(ctx, s.pool)) }
		}, "in flight", "writes past the transaction lent to it"},
		"effect before the library": {func(s *shop) {
			s.early = func(ctx context.Context) { _ = s.insert(ctx, s.pool) }
			s.sell = func(context.Context, pgx.Tx) (idem.Response, error) { return s.receipt(nil) }
		}, "replay", "an effect that is made outside the mutation"},
		"effect before the library, once per key": {func(s *shop) {
			var seen sync.Map
			key := s.key
			s.key = func(r *http.Request) string {
				if _, again := seen.LoadOrStore(key(r), nil); !again {
					_ = s.insert(r.Context(), s.pool)
				}
				return key(r)
			}
			s.sell = func(context.Context, pgx.Tx) (idem.Response, error) { return s.receipt(nil) }
		}, "replay", "an effect that is made outside the mutation"}, // the refusal has one, too
		"ignores the key": {func(s *shop) {
			s.key = func(*http.Request) string { return rand.Text() }
		}, "replay", "No record has the key that was sent"},
		"answer by the clock": {func(s *shop) {
			s.answered = func(_ http.ResponseWriter, result *idem.Result, err error) error {
				result.Body = append(result.Body, time.Now().String()...)
				return err
			}
		}, "replay", "did not get the recorded answer: the body was"},
		"header by the clock": {func(s *shop) {
			s.answered = func(w http.ResponseWriter, _ *idem.Result, err error) error {
				w.Header().Set("X-Served", rand.Text())
				return err
			}
		}, "replay", "the header X-Served was"},
		"swallows SQL errors": {func(s *shop) {
			s.sell = func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
				_ = s.insert(ctx, tx)
				return s.receipt(nil)
			}
		}, "SQL error", "swallows the errors of its statements"},
		"refuses for SQL errors": {func(s *shop) {
			s.sell = func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
				if err := s.insert(ctx, tx); err != nil {
					return idem.Response{}, idem.Reject(idem.Response{Status: http.StatusUnprocessableEntity}, err)
				}
				return s.receipt(nil)
			}
		}, "SQL error", "turns errors of the database into a refusal"},
		"scope from a token that rotates": {func(s *shop) {
			s.scope = func(r *http.Request) string { return r.Header.Get("Authorization") }
		}, "replay", "A token that rotates is not a scope"},
		"fingerprint of nothing": {func(s *shop) {
			s.print = func([]byte) idem.Fingerprint { return idem.NewFingerprint([]byte("sale")) }
		}, "other payload", "Is everything that the request asks for in the fingerprint"},
		"success whatever the library says": {func(s *shop) {
			s.answered = func(_ http.ResponseWriter, result *idem.Result, err error) error {
				if err != nil && !idem.Retryable(err) && !strings.Contains(err.Error(), "different request") {
					result.Response, err = s.receipt(nil)
				}
				return err
			}
		}, "abort", "answer what Do returns"},
		"two effects for one key in a burst": {func(s *shop) {
			sell := s.sell
			var mu sync.Mutex
			s.answered = func(_ http.ResponseWriter, result *idem.Result, err error) error {
				mu.Lock()
				defer mu.Unlock()
				if err != nil && strings.Contains(err.Error(), "in flight") {
					result.Response, err = sell(context.Background(), poolTx{s.pool})
				}
				return err
			}
		}, "in flight", "sent while the first is in flight, got 201"},
		"another Store": {func(s *shop) {
			s.store, _ = idem.New(s.pool, idem.Config{})
		}, "first", "never reached App.Store"},
		"always fails": {func(s *shop) {
			s.sell = func(context.Context, pgx.Tx) (idem.Response, error) { return idem.Response{}, fmt.Errorf("broken") }
		}, "first", "must be able to make the variant Original succeed"},
		"no effect": {func(s *shop) {
			s.sell = func(context.Context, pgx.Tx) (idem.Response, error) { return s.receipt(nil) }
		}, "first", "measures something else"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, idem.Config{})
			app := s.app()
			c.spoil(s)
			said := reports(t, app)
			if len(said) == 0 || !strings.HasPrefix(said[0], "idemtest: "+c.check+": ") || !strings.Contains(said[0], c.words) {
				t.Errorf("the reports are\n%s\nwant the first from %q, with %q", strings.Join(said, "\n"), c.check, c.words)
			}
		})
	}
}

// poolTx passes a pool for a transaction, which it is not.
type poolTx struct{ *pgxpool.Pool }

func (poolTx) Commit(context.Context) error   { return nil }
func (poolTx) Rollback(context.Context) error { return nil }
func (poolTx) Conn() *pgx.Conn                { return nil }
func (poolTx) LargeObjects() pgx.LargeObjects { return pgx.LargeObjects{} }
func (poolTx) Prepare(context.Context, string, string) (*pgconn.StatementDescription, error) {
	return nil, nil
}

func TestRunNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	for field, remove := range map[string]func(*idemtest.App){
		"App.Store":  func(a *idemtest.App) { a.Store = nil },
		"App.Send":   func(a *idemtest.App) { a.Send = nil },
		"App.Effect": func(a *idemtest.App) { a.Effect = nil },
	} {
		app := s.app()
		remove(&app)
		if said := reports(t, app); len(said) != 1 || !strings.Contains(said[0], field) {
			t.Errorf("without %s the reports are %q", field, said)
		}
	}
}

// A run leaves the Store as it was.
func TestNothingStaysSwitchedOn(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	s.store, _ = idem.New(s.pool, idem.Config{})
	app := s.app()
	for range 2 {
		idemtest.Run(t, app)
	}
}

func TestTheExampleIsRight(t *testing.T) {
	t.Parallel()
	proveNotes(t)
}
