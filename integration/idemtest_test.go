package integration

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/idem/idemtest"
	"github.com/idempg/idempg/internal/failpoint"
)

var errStep = errors.New("failed at the step")

// failAt has calls of the store fail at the steps, each once.
func failAt(store *idem.Store, at func(context.Context, failpoint.Event) error, steps ...failpoint.Step) {
	passed := map[failpoint.Step]*atomic.Bool{}
	for _, step := range steps {
		passed[step] = &atomic.Bool{}
	}
	failpoint.Open(store).SetHook(func(ctx context.Context, event failpoint.Event) error {
		if p := passed[event.Step]; p != nil && p.CompareAndSwap(false, true) {
			return at(ctx, event)
		}
		return nil
	})
}

// Goal: the table of endings at each step of a call. Method: fail there, on a
// healthy connection and on one that is cut, and look at the error, at how often
// the mutation ran, at what is in the database and at what a retry gets.
func TestACallThatFailsAtAStep(t *testing.T) {
	t.Parallel()
	afterCommit := func(t *testing.T, err error) {
		if err != nil {
			t.Errorf("error is %v, want the answer: COMMIT happened, and the library found out", err)
		}
	}
	undone := func(t *testing.T, err error) { wantError(t, err, errStep) }
	unknown := func(t *testing.T, err error) {
		var outcomeUnknown *idem.OutcomeUnknownError
		if !errors.As(err, &outcomeUnknown) {
			t.Errorf("error is %v, want OutcomeUnknownError", err)
		}
	}
	for name, c := range map[string]struct {
		steps   []failpoint.Step
		runs    int64
		durable bool
		check   func(*testing.T, error)
	}{
		"before claim":   {[]failpoint.Step{failpoint.BeforeClaim}, 0, false, undone},
		"after claim":    {[]failpoint.Step{failpoint.AfterClaim}, 0, false, undone},
		"after mutation": {[]failpoint.Step{failpoint.AfterMutation}, 1, false, undone},
		"before commit":  {[]failpoint.Step{failpoint.BeforeCommit}, 1, false, undone},
		"after commit":   {[]failpoint.Step{failpoint.AfterCommit}, 1, true, afterCommit},
		"before settle":  {[]failpoint.Step{failpoint.AfterCommit, failpoint.BeforeSettle}, 1, true, unknown},
	} {
		for ending, m := range map[string]func(string) idem.Mutation{"complete": created, "reject": rejecting} {
			for _, cut := range []bool{false, true} {
				t.Run(name+"/"+ending+map[bool]string{true: "/cut"}[cut], func(t *testing.T) {
					t.Parallel()
					b := newBench(t, idem.Config{})
					failAt(b.store, func(ctx context.Context, event failpoint.Event) error {
						if cut && event.Conn != nil {
							_ = event.Conn.PgConn().Conn().Close()
							_ = event.Conn.Close(ctx)
						}
						return errStep
					}, c.steps...)
					var runs atomic.Int64
					mutation := counting(&runs, m("k"))
					_, err := b.store.Do(t.Context(), request("k"), mutation)
					c.check(t, err)
					if runs.Load() != c.runs {
						t.Errorf("the mutation ran %d times, want %d", runs.Load(), c.runs)
					}
					whole := map[string]int{"complete": 1}[ending]
					if c.durable {
						b.wantEffects(t, "k", whole)
					} else {
						b.wantEffects(t, "k", 0)
						_, err := b.store.Lookup(t.Context(), "acme", "k")
						wantError(t, err, idem.ErrNotFound)
					}
					b.awaitFreeKeys(t)
					if again := mustDo(t, b.store, request("k"), mutation); again.Replayed != c.durable {
						t.Errorf("a retry has Replayed %v, want %v", again.Replayed, c.durable)
					}
					b.wantEffects(t, "k", whole)
				})
			}
		}
	}
}

// Goal: who takes the key between the rollback and the new claim of a rejection
// settles it. Method: let a rival run to its end in that very moment.
func TestARivalBetweenRollbackAndRejection(t *testing.T) {
	t.Parallel()
	other := otherPayload("k")
	for name, c := range map[string]struct {
		rival    idem.Request
		mutation idem.Mutation
		effects  int
		check    func(*testing.T, idem.Result, error)
	}{
		"completes": {request("k"), created("k"), 1, func(t *testing.T, result idem.Result, err error) {
			if err != nil || !result.Replayed || result.State != idem.StateCompleted {
				t.Errorf("got %+v, %v, want the rival's answer", result, err)
			}
		}},
		"is rejected": {request("k"), rejecting("k"), 0, func(t *testing.T, result idem.Result, err error) {
			if err != nil || !result.Replayed || result.State != idem.StateRejected {
				t.Errorf("got %+v, %v, want the rival's refusal", result, err)
			}
		}},
		"aborts": {request("k"), aborting("k"), 0, func(t *testing.T, result idem.Result, err error) {
			if err != nil || result.Replayed || result.State != idem.StateRejected {
				t.Errorf("got %+v, %v, want its own refusal", result, err)
			}
		}},
		"asks for something else": {other, created("k"), 1, func(t *testing.T, _ idem.Result, err error) {
			wantError(t, err, idem.ErrKeyReused)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, idem.Config{})
			failAt(b.store, func(ctx context.Context, _ failpoint.Event) error {
				_, err := b.elsewhere.Do(ctx, c.rival, c.mutation)
				if err != nil && !errors.Is(err, errDecline) {
					t.Errorf("the rival got %v", err)
				}
				return nil
			}, failpoint.BeforeCommit)
			result, err := b.store.Do(t.Context(), request("k"), rejecting("k"))
			c.check(t, result, err)
			b.wantEffects(t, "k", c.effects)
		})
	}
}

// The kit passes for the middleware in both of its forms, with and without a
// wait for the request in flight.
func TestFiberHandlersPassTheKit(t *testing.T) {
	t.Parallel()
	forms := map[string]func(fibermw.Config, func(*fiber.Ctx, pgx.Tx) error) []fiber.Handler{
		"New": func(config fibermw.Config, h func(*fiber.Ctx, pgx.Tx) error) []fiber.Handler {
			return []fiber.Handler{fibermw.New(config), func(c *fiber.Ctx) error { return h(c, fibermw.Tx(c)) }}
		},
		"Handle": func(config fibermw.Config, h func(*fiber.Ctx, pgx.Tx) error) []fiber.Handler {
			return []fiber.Handler{fibermw.Handle(config, h)}
		},
	}
	for form, mount := range forms {
		for wait, config := range map[string]idem.Config{"": {}, "/wait": {ClaimWait: 20 * time.Second}} {
			t.Run(form+wait, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, config, maxConns(8))
				app := quietApp()
				app.Post("/effects", mount(fibermw.Config{Store: b.store, Scope: fibermw.GlobalScope}, func(c *fiber.Ctx, tx pgx.Tx) error {
					err := write(c.UserContext(), tx, "effect")
					switch {
					case err != nil:
						return err
					case string(c.Body()) == idemtest.Refused.String():
						return fiber.NewError(http.StatusPaymentRequired, "no money")
					}
					return c.Status(http.StatusCreated).SendString("made")
				})...)
				idemtest.Run(t, idemtest.App{
					Store: b.store,
					Send: idemtest.HTTP(func(r *http.Request) (*http.Response, error) { return app.Test(r, -1) }, func(r idemtest.Request) *http.Request {
						return post("/effects", "", r.Variant.String())
					}),
					Effect:   idemtest.Query(b.Pool(t), "select count(*) from effects"),
					Refusals: true,
				})
			})
		}
	}
}
