package integration

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	recovermw "github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// expectReplay checks that second repeats first in everything but its marker.
func expectReplay(t *testing.T, first, second answer) {
	t.Helper()
	if first.header.Get("Idempotency-Replayed") != "" || !second.replayed() {
		t.Errorf("marker of the first answer %q, of the replay %q",
			first.header.Get("Idempotency-Replayed"), second.header.Get("Idempotency-Replayed"))
	}
	unmarked := second.header.Clone()
	unmarked.Del("Idempotency-Replayed")
	if first.status != second.status || first.body != second.body || !reflect.DeepEqual(first.header, unmarked) {
		t.Errorf("first answer\n%d %v %q, replay\n%d %v %q",
			first.status, first.header, first.body, second.status, unmarked, second.body)
	}
}

// Goal: a replay equals the first answer, and an abort leaves nothing, for every
// status in every way to end with it. Method: a handler that sells, sets many
// headers and ends as the path says; each request is sent twice.
func TestFiberEveryStatusInEveryWay(t *testing.T) {
	t.Parallel()
	statuses := []int{200, 201, 202, 203, 204, 205, 206, 207, 226, 300, 301, 302, 303, 304, 307, 308}
	for status := 400; status <= 599; status++ {
		statuses = append(statuses, status)
	}
	s := newShop(t, idem.Config{})
	mustExec(t, s.pool, "create table sold (item text primary key)")
	app := quietApp()
	app.Use(recovermw.New(), fibermw.New(s.config))
	app.Post("/:way/:status", func(c *fiber.Ctx) error {
		status, err := c.ParamsInt("status")
		if err != nil {
			return err
		}
		if err := s.sell(c, fibermw.Tx(c), c.OriginalURL()); err != nil {
			return err
		}
		c.Location("/sales/1")
		c.Append("Link", "</a>; rel=x", "</b>; rel=y")
		c.Response().Header.Add("X-Twice", "a, b")
		c.Response().Header.Add("X-Twice", "c")
		c.Response().Header.Add("X-Latin", "caf\xe9")
		switch c.Params("way") {
		case "error":
			return fiber.NewError(status, "as said")
		case "wrapped":
			return fmt.Errorf("wrapped: %w", fiber.NewError(status))
		case "plain":
			return errors.New("plain")
		case "panic":
			panic("panicked")
		case "empty":
			return c.SendStatus(status)
		}
		c.Set("Content-Type", "text/csv; header=absent")
		return c.Status(status).Send([]byte("\x00\xff;" + c.Params("status")))
	})

	clients := map[string]browser{"direct": direct(app), "connected": connect(t, app)}
	runs, sales := 0, 0
	for _, way := range []string{"status", "empty", "error", "wrapped", "plain", "panic"} {
		for _, status := range statuses {
			switch {
			case status < 400 && way != "status" && way != "empty", status != 500 && (way == "plain" || way == "panic"):
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(clients)) {
				target := fmt.Sprintf("/%s/%d?%s", way, status, name)
				key := fmt.Sprintf("%s-%d-%s", way, status, name)
				first, second := clients[name](t, post(target, key, "{}")), clients[name](t, post(target, key, "{}"))
				if first.status != status {
					t.Errorf("%s: status %d", target, first.status)
				}
				aborts := status >= 500 || slices.Contains([]int{401, 403, 408, 425, 429}, status)
				want := idem.State("")
				switch {
				case aborts:
					runs++
					if second.replayed() || second.status != status {
						t.Errorf("%s: an aborted request was answered with %v", target, second)
					}
				default:
					want = idem.StateCompleted
					if status >= 400 {
						want = idem.StateRejected
					}
					expectReplay(t, first, second)
				}
				if _, typed := first.header["Content-Type"]; typed && (status == 204 || status == 304) {
					t.Errorf("%s: an answer without a body has the type %v", target, first.header)
				}
				runs++
				if got := s.recorded(t, key); got != want {
					t.Errorf("%s: record %q, want %q", target, got, want)
				}
				mustExec(t, s.pool, "insert into sold select item from sales on conflict do nothing; delete from sales")
				if want == idem.StateCompleted {
					sales++
				}
			}
		}
	}
	s.expect(t, runs, 0)
	var sold int
	if err := s.pool.QueryRow(t.Context(), "select count(*) from sold").Scan(&sold); err != nil || sold != sales {
		t.Errorf("%d sales were committed, want %d: %v", sold, sales, err)
	}
}

// Goal: nothing that outlives a request points into a buffer of fasthttp.
// Method: duplicates that wait, over few connections that are used again.
func TestFiberDuplicatesOverKeptConnections(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{ClaimWait: 20 * time.Second})
	app := quietApp()
	app.Post("/sales/:item", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		if err := s.sell(c, tx, c.Params("item")); err != nil {
			return err
		}
		c.Set("X-Item", c.Params("item"))
		return c.Status(fiber.StatusCreated).Send(c.Body())
	}))
	send := connect(t, app)
	const keys, duplicates = 30, 8
	var mutex sync.Mutex
	first := map[string]int{}
	var group sync.WaitGroup
	for i := range keys * duplicates {
		key := fmt.Sprintf("key-%d", i%keys)
		group.Go(func() {
			body := strings.Repeat(key, 50)
			got := send(t, post("/sales/"+key, key, body))
			if got.status != http.StatusCreated || got.body != body || got.header.Get("X-Item") != key {
				t.Errorf("%s: %d %v %q", key, got.status, got.header, got.body)
			}
			mutex.Lock()
			defer mutex.Unlock()
			if !got.replayed() {
				first[key]++
			}
		})
	}
	group.Wait()
	s.expect(t, keys, keys)
	for key, count := range first {
		record, err := s.store.Lookup(t.Context(), "alice", key)
		if err != nil || count != 1 || record.Operation != "POST /sales/"+key || string(record.Response.Body) != strings.Repeat(key, 50) {
			t.Errorf("%s: %d first answers, record %+v, %v", key, count, record, err)
		}
	}
}

func TestFiberCookiesAreStoredOnlyOnRequest(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		s := newShop(t, idem.Config{})
		s.config.StoreSetCookie, s.config.CacheLookupHeader = stored, true
		app := quietApp()
		app.Use(func(c *fiber.Ctx) error {
			c.Cookie(&fiber.Cookie{Name: "csrf", Value: c.Get("X-Attempt")})
			return c.Next()
		})
		app.Post("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
			c.Set("Idempotency-Replayed", "true") // from an upstream, say
			c.Cookie(&fiber.Cookie{Name: "a", Value: "1"})
			c.Cookie(&fiber.Cookie{Name: "b", Value: "2"})
			return s.sell(c, tx, "item")
		}))
		send := direct(app)
		first, second := send(t, post("/", "key", "", "X-Attempt", "1")), send(t, post("/", "key", "", "X-Attempt", "2"))
		want := 1
		if stored {
			want = 3
		}
		cookies := second.header["Set-Cookie"]
		if len(first.header["Set-Cookie"]) != 3 || len(cookies) != want || !strings.HasPrefix(cookies[0], "csrf=2") {
			t.Errorf("stored: %v: first %q, replay %q", stored, first.header["Set-Cookie"], cookies)
		}
		if first.replayed() || first.header.Get("X-Cache-Lookup") != "" || !second.replayed() || second.header.Get("X-Cache-Lookup") != "HIT" {
			t.Errorf("markers: first %v, replay %v", first.header, second.header)
		}
	}
}

// Goal: a body is recorded whole, or its unit undone before COMMIT, at the
// limit and in every way to write a body.
func TestFiberBodiesAroundTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 4096
	s := newShop(t, idem.Config{BodyBytesMax: limit})
	app := quietApp()
	app.Post("/:way/:size", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		size, err := c.ParamsInt("size")
		if err != nil {
			return err
		}
		if err := s.sell(c, tx, c.Path()); err != nil {
			return err
		}
		body := strings.Repeat("x", size)
		c.Status(fiber.StatusCreated)
		switch c.Params("way") {
		case "bytes":
			return c.SendString(body)
		case "stream":
			return c.SendStream(strings.NewReader(body))
		case "sized":
			return c.SendStream(strings.NewReader(body), size)
		case "short":
			return c.SendStream(strings.NewReader(body), size+1)
		}
		c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
			for range size {
				if w.WriteByte('x') != nil || w.Flush() != nil {
					return
				}
			}
		})
		return nil
	}))
	send := connect(t, app)
	runs, sales := 0, 0
	for _, way := range []string{"bytes", "stream", "sized", "writer"} {
		for _, size := range []int{0, limit - 1, limit, limit + 1, 5 << 20} {
			target := fmt.Sprintf("/%s/%d", way, size)
			first, second := send(t, post(target, target, "")), send(t, post(target, target, ""))
			if size <= limit {
				runs, sales = runs+1, sales+1
				expectReplay(t, first, second)
				if len(first.body) != size || first.status != http.StatusCreated {
					t.Errorf("%s: %d with %d bytes", target, first.status, len(first.body))
				}
				continue
			}
			runs += 2
			first.mustProblem(t, 500, fibermw.CodeResponseTooLarge)
			second.mustProblem(t, 500, fibermw.CodeResponseTooLarge)
		}
	}
	send(t, post("/short/10", "short", "")).mustProblem(t, 500, fibermw.CodeInternal)
	s.expect(t, runs+1, sales)
}

func TestFiberAHijackedConnectionIsNeverServedUnprotected(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	app := quietApp()
	app.Post("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		c.Context().Hijack(func(conn net.Conn) { _, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")) })
		c.Context().HijackSetNoResponse(true)
		return s.sell(c, tx, "item")
	}))
	connect(t, app)(t, post("/", "key", "")).mustProblem(t, 500, fibermw.CodeInternal)
	s.expect(t, 1, 0)
}
