package integration

import (
	"errors"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

const conflict = "do $$ begin raise sqlstate '40001'; end $$"

// Goal: a run that lost a conflict leaves nothing to the next one. Method: the
// first run sets all it can and renders a 201 before it fails, at a statement or
// at COMMIT.
func TestFiberHandleRunsAgainFromACleanStart(t *testing.T) {
	t.Parallel()
	for _, atCommit := range []bool{false, true} {
		s := newShop(t, idem.Config{})
		mustExec(t, s.pool, `
			create sequence attempts;
			create function lose_once() returns trigger language plpgsql as $$
			begin
				if nextval('attempts') = 1 then raise sqlstate '40001'; end if;
				return null;
			end $$`)
		if atCommit {
			mustExec(t, s.pool, `create constraint trigger lose after insert on sales deferrable initially deferred
				for each row execute function lose_once()`)
		} else {
			mustExec(t, s.pool, "create trigger lose after insert on sales for each row execute function lose_once()")
		}
		app := quietApp()
		app.Use(func(c *fiber.Ctx) error {
			c.Locals("outer", "kept")
			c.Set("X-Outer", "kept")
			return c.Next()
		})
		app.Post("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
			if c.Locals("outer") != "kept" || c.Locals("inner") != nil ||
				c.GetRespHeader("X-Outer") != "kept" || c.GetRespHeader("X-Inner") != "" || c.GetRespHeader("Set-Cookie") != "" ||
				c.Response().StatusCode() != fiber.StatusOK || len(c.Response().Body()) != 0 {
				return fiber.NewError(fiber.StatusTeapot, "an earlier run is still there")
			}
			c.Locals("outer", "overwritten")
			c.Locals("inner", "set")
			c.Response().Header.Add("X-Inner", "set")
			c.Cookie(&fiber.Cookie{Name: "a", Value: "b"})
			if s.runs.Load() == 0 && !atCommit { // the first run must reach COMMIT then
				fibermw.End(c, fibermw.Abort)
				c.Status(fiber.StatusConflict)
			}
			if _, err := c.WriteString("body"); err != nil {
				return err
			}
			return s.sell(c, tx, "item")
		}))
		got := direct(app)(t, post("/", "key", ""))
		if got.status != http.StatusOK || got.body != "body" || len(got.header["X-Inner"]) != 1 || len(got.header["Set-Cookie"]) != 1 {
			t.Errorf("at COMMIT: %v: answer %v", atCommit, got)
		}
		s.expect(t, 2, 1)
	}
}

func TestFiberAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{AttemptsMax: 3})
	app := quietApp()
	app.Post("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		if err := s.sell(c, tx, "item"); err != nil {
			return err
		}
		_, err := tx.Exec(c.UserContext(), conflict)
		return err
	}))
	direct(app)(t, post("/", "key", "")).mustProblem(t, 503, fibermw.CodeDatabaseUnavailable)
	s.expect(t, 3, 0)
}

// Handle gives its handler a transaction whatever the method.
func TestFiberHandleOnASafeMethod(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	app := quietApp()
	app.Get("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error { return s.sell(c, tx, "item") }))
	request := post("/", "key", "")
	request.Method = http.MethodGet
	if got := direct(app)(t, request); got.status != http.StatusOK {
		t.Error(got)
	}
	if state := s.recorded(t, "key"); state != "" {
		t.Errorf("a safe method left a record: %q", state)
	}
	s.expect(t, 1, 1)
}

// Goal: mounted twice it acts once, on the outer unit's transaction and key.
func TestFiberMountedTwice(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	inner := s.config
	inner.Scope = func(*fiber.Ctx) (string, error) { return "inner", nil }
	inner.Judge = func(*fiber.Ctx) fibermw.Ending { return fibermw.Abort }
	app := quietApp()
	app.Use(fibermw.New(s.config), fibermw.New(inner))
	app.Post("/", fibermw.Handle(inner, func(c *fiber.Ctx, tx pgx.Tx) error {
		if tx != fibermw.Tx(c) {
			return errors.New("two transactions")
		}
		if _, ok := fibermw.Result(c); ok {
			return errors.New("a result before the end")
		}
		return s.sell(c, tx, "item")
	}))
	expectReplay(t, direct(app)(t, post("/", "key", "")), direct(app)(t, post("/", "key", "")))
	s.expect(t, 1, 1)
	var records int
	if err := s.pool.QueryRow(t.Context(), "select count(*) from idem.records").Scan(&records); err != nil || records != 1 {
		t.Errorf("%d records: %v", records, err)
	}
}

func TestFiberResultAndDerivedKey(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	var results []idem.Result
	app := quietApp()
	app.Use(func(c *fiber.Ctx) error {
		before := c.UserContext()
		err := c.Next()
		if result, ok := fibermw.Result(c); ok {
			results = append(results, result)
		}
		if c.UserContext() != before {
			t.Error("the unit's context outlives the unit")
		}
		defer func() {
			if recover() == nil {
				t.Error("Tx lends a transaction that has ended")
			}
		}()
		_ = fibermw.Tx(c)
		return err
	}, fibermw.New(s.config))
	app.Post("/", func(c *fiber.Ctx) error {
		if err := s.sell(c, fibermw.Tx(c), "item"); err != nil {
			return err
		}
		return c.SendString(idem.DerivedKey(c.UserContext(), "charge"))
	})
	first, second := direct(app)(t, post("/", "key", "")), direct(app)(t, post("/", "key", ""))
	expectReplay(t, first, second)
	if len(results) != 2 || results[0].Replayed || !results[1].Replayed || results[0].State != idem.StateCompleted ||
		string(results[0].Body) != first.body || !results[0].ExpiresAt.Equal(results[1].ExpiresAt) {
		t.Errorf("results %+v", results)
	}
}

func TestFiberNextAndMethodsPassThrough(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	s.config.Next = func(c *fiber.Ctx) bool { return c.Query("skip") != "" }
	app := quietApp()
	app.Use(fibermw.New(s.config))
	app.All("/", func(c *fiber.Ctx) error {
		defer func() { _ = recover() }()
		fibermw.Tx(c)
		return fiber.ErrTeapot
	})
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost} {
		request := post("/?skip=1", "key", "")
		if method != http.MethodPost {
			request = post("/", "key", "")
			request.Method = method
		}
		if got := direct(app)(t, request); got.status != http.StatusOK {
			t.Errorf("%s: %v", method, got)
		}
	}
	if got := direct(app)(t, post("/", "key", "")); got.status != http.StatusTeapot {
		t.Errorf("the check cannot fail: %v", got)
	}
}
