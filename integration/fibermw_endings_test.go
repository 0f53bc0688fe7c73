package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// Goal: no text of a database error reaches a client, even with Fiber's default
// ErrorHandler, which sends err.Error(). Method: errors of every kind, as
// returned by pgx, wrapped, and joined with a *fiber.Error.
func TestFiberDatabaseErrorsStayInside(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	mustExec(t, s.pool, "create table secret_table (secret_column text constraint secret_constraint check (secret_column <> 'secret'), n int)")
	mustExec(t, s.pool, "insert into secret_table (n) values (null)")
	failures := map[string]func(ctx context.Context, tx pgx.Tx) error{
		"constraint": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into secret_table values ('secret')")
			return err
		},
		"syntax": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "secret")
			return err
		},
		"scan": func(ctx context.Context, tx pgx.Tx) error {
			var secret int
			return tx.QueryRow(ctx, "select n as secret from secret_table").Scan(&secret)
		},
		"connect": func(ctx context.Context, _ pgx.Tx) error {
			_, err := pgx.Connect(ctx, "postgres://secret:secret@127.0.0.1:1/secret")
			return err
		},
		"config": func(ctx context.Context, _ pgx.Tx) error {
			_, err := pgx.Connect(ctx, "postgres://secret@secret:port/")
			return err
		},
	}
	app := quietApp()
	app.Use(fibermw.New(s.config))
	app.Post("/:failure/:way", func(c *fiber.Ctx) error {
		if err := s.sell(c, fibermw.Tx(c), c.Path()); err != nil {
			return err
		}
		err := failures[c.Params("failure")](c.UserContext(), fibermw.Tx(c))
		if err == nil {
			return errors.New("it did not fail")
		}
		c.Set("X-Rendered", "by the handler")
		switch c.Params("way") {
		case "wrapped":
			return fmt.Errorf("wrapped: %w", err)
		case "joined":
			return errors.Join(fiber.NewError(fiber.StatusConflict, "exists"), err)
		}
		return err
	})
	runs := 0
	for failure := range failures {
		for _, way := range []string{"raw", "wrapped", "joined"} {
			target := "/" + failure + "/" + way
			got := direct(app)(t, post(target, target, ""))
			runs++
			if strings.Contains(fmt.Sprint(got), "secret") || strings.Contains(got.body, "SQLSTATE") {
				t.Errorf("%s: the client sees %v", target, got)
			}
			switch {
			case way == "joined" && (got.status != fiber.StatusConflict || got.body != "exists"):
				t.Errorf("%s: %v", target, got)
			case way == "joined":
			case failure == "connect":
				got.mustProblem(t, 503, fibermw.CodeDatabaseUnavailable)
			default:
				got.mustProblem(t, 500, fibermw.CodeInternal)
			}
			if way != "joined" && got.header.Get("X-Rendered") != "" {
				t.Errorf("%s: the wiped answer left %v", target, got.header)
			}
		}
	}
	s.expect(t, runs, 0)
}

func TestFiberDatabaseAway(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://secret:secret@127.0.0.1:1/secret")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	app := quietApp()
	app.Use(fibermw.New(fibermw.Config{Store: store, Scope: fibermw.GlobalScope, AllowMissingKey: true}))
	for _, key := range []string{"", "key"} {
		got := direct(app)(t, post("/", key, ""))
		got.mustProblem(t, 503, fibermw.CodeDatabaseUnavailable)
		if strings.Contains(got.body, "secret") || strings.Contains(got.body, "127.0.0.1") {
			t.Errorf("the client sees %s", got.body)
		}
	}
}

// Goal: whatever the handler answers, a connection that it lost is a 503.
func TestFiberConnectionLostInTheHandler(t *testing.T) {
	t.Parallel()
	for _, swallow := range []bool{false, true} {
		s := newShop(t, idem.Config{AttemptsMax: 1})
		app := quietApp()
		app.Post("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
			if err := s.sell(c, tx, "item"); err != nil {
				return err
			}
			_, err := tx.Exec(c.UserContext(), "select pg_terminate_backend(pg_backend_pid())")
			if swallow {
				return c.Status(fiber.StatusCreated).SendString("made")
			}
			return err
		}))
		direct(app)(t, post("/", "key", "")).mustProblem(t, 503, fibermw.CodeDatabaseUnavailable)
		s.expect(t, 1, 0)
	}
}

// Goal: no 2xx for what was not committed. Method: each handler renders a 201
// and leaves the transaction in a state that cannot be committed.
func TestFiberARendered201IsWipedWhenNothingWasCommitted(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(s *shop, c *fiber.Ctx, tx pgx.Tx) error{
		"a deferred constraint fails at COMMIT": func(s *shop, c *fiber.Ctx, tx pgx.Tx) error { return s.sell(c, tx, "item") },
		"a statement failed and was ignored": func(_ *shop, c *fiber.Ctx, tx pgx.Tx) error {
			_, _ = tx.Exec(c.UserContext(), "select 1/0")
			return nil
		},
		"the handler committed": func(_ *shop, c *fiber.Ctx, tx pgx.Tx) error {
			_ = tx.Commit(c.UserContext())
			return nil
		},
		"the handler rolled back": func(_ *shop, c *fiber.Ctx, tx pgx.Tx) error { return tx.Rollback(c.UserContext()) },
		"the handler sent a COMMIT": func(_ *shop, c *fiber.Ctx, tx pgx.Tx) error {
			_, _ = tx.Exec(c.UserContext(), "commit")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, idem.Config{})
			app := quietApp()
			app.Use(func(c *fiber.Ctx) error {
				c.Set("X-Outer", "kept")
				return c.Next()
			}, fibermw.New(s.config))
			app.Post("/", func(c *fiber.Ctx) error {
				if err := errors.Join(s.sell(c, fibermw.Tx(c), "item"), spoil(s, c, fibermw.Tx(c))); err != nil {
					return err
				}
				c.Location("/sales/1")
				c.Cookie(&fiber.Cookie{Name: "sold", Value: "1"})
				return c.Status(fiber.StatusCreated).JSON(fiber.Map{"item": "item"})
			})
			for range 2 { // the key is free again
				got := connect(t, app)(t, post("/", "key", ""))
				got.mustProblem(t, 500, fibermw.CodeInternal)
				if got.header.Get("Location") != "" || got.header.Get("Set-Cookie") != "" || got.header.Get("X-Outer") != "kept" {
					t.Errorf("the rendered answer was not wiped: %v", got.header)
				}
			}
			if state := s.recorded(t, "key"); state != "" {
				t.Errorf("a record says %q", state)
			}
			var rows int
			if err := s.pool.QueryRow(t.Context(), "select count(*) from sales").Scan(&rows); err != nil || rows != 0 {
				t.Errorf("%d rows stay: %v", rows, err)
			}
		})
	}
}

// Goal: a COMMIT without an answer is settled when there is a key, and without
// one the client is not invited to send the request again. Method: the backend
// ends itself in the middle of COMMIT.
func TestFiberCommitWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	s.config.AllowMissingKey = true
	mustExec(t, s.pool, `
		create function die() returns trigger language plpgsql as
			$$ begin perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(60); end $$;
		create constraint trigger die after insert on sales deferrable initially deferred
			for each row execute function die()`)
	app := quietApp()
	app.Use(fibermw.New(s.config))
	app.Post("/", func(c *fiber.Ctx) error {
		c.Status(fiber.StatusCreated)
		return s.sell(c, fibermw.Tx(c), "item")
	})
	direct(app)(t, post("/", "key", "")).mustProblem(t, 503, fibermw.CodeDatabaseUnavailable)
	got := direct(app)(t, post("/", "", ""))
	if got.status != 503 || got.problem() != fibermw.CodeOutcomeUnknown || got.header.Get("Retry-After") != "" || strings.Contains(got.body, "same key") {
		t.Errorf("without a key: %v", got)
	}
	s.expect(t, 2, 0)
}

// Goal: an override decides, but not for an answer that nobody decided.
func TestFiberEndOverridesTheJudge(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	app := quietApp()
	app.Post("/:what", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		if err := s.sell(c, tx, c.Path()); err != nil {
			return err
		}
		switch c.Params("what") {
		case "declined":
			fibermw.End(c, fibermw.Commit)
			return fiber.NewError(fiber.StatusPaymentRequired, "declined")
		case "broken":
			fibermw.End(c, fibermw.Commit)
			return errors.New("broken")
		case "dry":
			fibermw.End(c, fibermw.Reject)
			return c.SendString("would work")
		}
		fibermw.End(c, fibermw.Abort)
		return c.SendStatus(fiber.StatusNotFound)
	}))
	send := direct(app)
	for _, tc := range []struct {
		what   string
		status int
		state  idem.State
	}{
		{"declined", 402, idem.StateCompleted},
		{"broken", 500, ""},
		{"dry", 200, idem.StateRejected},
		{"notyet", 404, ""},
	} {
		first := send(t, post("/"+tc.what, tc.what, ""))
		if got := s.recorded(t, tc.what); first.status != tc.status || got != tc.state {
			t.Errorf("%s: status %d, record %q, want %d, %q", tc.what, first.status, got, tc.status, tc.state)
		}
		if tc.state != "" {
			expectReplay(t, first, send(t, post("/"+tc.what, tc.what, "")))
		}
	}
	s.expect(t, 4, 1)
}

// An app that speaks the library's language: idem.Reject as the handler's error.
func TestFiberAHandlerMayReturnAReject(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	app := quietApp()
	app.Post("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		refusal := idem.Response{Status: 409, Header: http.Header{"X-Why": {"sold out"}}, Body: []byte("sold out")}
		return idem.Reject(refusal, s.sell(c, tx, "item"))
	}))
	first, second := direct(app)(t, post("/", "key", "")), direct(app)(t, post("/", "key", ""))
	if first.status != 409 || first.body != "sold out" || first.header.Get("X-Why") != "sold out" {
		t.Errorf("answer %v", first)
	}
	expectReplay(t, first, second)
	s.expect(t, 1, 0)
}

// Goal: outer middleware sees the handler's own error when the unit is aborted,
// and Fiber renders it as it would alone.
func TestFiberAnAbortHandsTheErrorOn(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	own := uncomparableError{"own"}
	var seen error
	app := quietApp(fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error {
		c.Append("X-Rendered", "once")
		c.Response().Header.Add("X-Count", "1")
		return c.Status(fiber.StatusUnauthorized).SendString(err.Error())
	}})
	app.Use(func(c *fiber.Ctx) error {
		seen = c.Next()
		return seen
	}, fibermw.New(s.config))
	app.Post("/", func(c *fiber.Ctx) error {
		c.Set("WWW-Authenticate", "Bearer")
		return errors.Join(s.sell(c, fibermw.Tx(c), "item"), own)
	})
	got := direct(app)(t, post("/", "key", ""))
	var found uncomparableError
	if !errors.As(seen, &found) || got.status != 401 || got.body != "own" || got.header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("outer middleware saw %v, the client %v", seen, got)
	}
	if counts := got.header["X-Count"]; len(counts) != 1 {
		t.Errorf("the header of the ErrorHandler is there %d times", len(counts))
	}
	s.expect(t, 1, 0)
}

// uncomparableError is like those of validators: a slice, as a value.
type uncomparableError []string

func (e uncomparableError) Error() string { return e[0] }

// Goal: the ErrorHandler gets every problem with its cause, and may pass it on.
func TestFiberErrorHandler(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	var code string
	var cause error
	s.config.ErrorHandler = func(_ *fiber.Ctx, problem *fibermw.Problem) error {
		code, cause = problem.Code, errors.Unwrap(problem)
		return problem
	}
	app := quietApp(fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error {
		return c.Status(fiber.StatusTeapot).SendString(err.Error())
	}})
	app.Post("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		_, err := tx.Exec(c.UserContext(), "select 1/0")
		return err
	}))
	got := direct(app)(t, post("/", "key", ""))
	if got.status != fiber.StatusTeapot || strings.Contains(got.body, "zero") {
		t.Errorf("answer %v", got)
	}
	if code != fibermw.CodeInternal || cause == nil || !strings.Contains(cause.Error(), "division by zero") {
		t.Errorf("code %q, cause %v", code, cause)
	}
	if got := direct(app)(t, post("/", "", "")); got.status != fiber.StatusTeapot || code != fibermw.CodeKeyMissing || cause != nil {
		t.Errorf("answer %v, code %q, cause %v", got, code, cause)
	}
}
