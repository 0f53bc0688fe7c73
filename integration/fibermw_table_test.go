package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	recovermw "github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/gofiber/fiber/v2/middleware/timeout"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// endingRow is a row of the table in docs/guarantees.md.
type endingRow struct {
	ways, statuses, transactions       []string
	seen, writes, record, sameKeyAgain string
}

// endingTable reads the table that begins with the column "the handler ends with".
func endingTable(t *testing.T) (rows []endingRow) {
	t.Helper()
	page, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| the handler ends with |")
	table, _, _ = strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")
	if !found || len(lines) < 3 {
		t.Fatal("docs/guarantees.md has no table of endings")
	}
	for _, line := range lines[2:] {
		cells := strings.Split(strings.Trim(strings.ReplaceAll(line, "`", ""), "| "), " | ")
		if len(cells) != 7 {
			t.Fatalf("not seven cells: %s", line)
		}
		row := endingRow{
			ways: strings.Split(cells[0], ", "), statuses: strings.Split(cells[1], ", "), transactions: []string{cells[2]},
			seen: cells[3], writes: cells[4], record: cells[5], sameKeyAgain: cells[6],
		}
		if cells[2] == "any" {
			row.transactions = []string{"whole", "broken"}
		}
		rows = append(rows, row)
	}
	return rows
}

// has reports whether the row speaks of a handler that ends so. A status of 0
// is none.
func (r endingRow) has(way string, status int, transaction string) bool {
	exact := strconv.Itoa(status)
	class := fmt.Sprintf("%dxx", status/100)
	if status == 0 {
		class = "none"
	}
	return slices.Contains(r.ways, way) && slices.Contains(r.transactions, transaction) &&
		(slices.Contains(r.statuses, exact) || slices.Contains(r.statuses, class) ||
			slices.Contains(r.statuses, "other "+class) && !slices.Contains([]int{401, 403, 408, 425, 429}, status))
}

// Goal: what docs/guarantees.md says about the endings of Fiber handlers is
// what happens. Method: each way to end, with each kind of status and
// transaction, is looked up in the table, where it must be once, and tried. A
// handler with a whole transaction is tried with and without a write.
func TestFiberEndingsAreAsDocumented(t *testing.T) {
	t.Parallel()
	rows := endingTable(t)
	e := newEndings(t)
	used := make([]bool, len(rows))
	for _, way := range []string{"c.Status", "fiber.NewError", "late", "gone", "errors.New", "panic", "context.DeadlineExceeded", "runtime.Goexit"} {
		statuses := []int{200, 201, 204, 303, 399, 400, 401, 402, 403, 404, 408, 409, 422, 425, 429, 499, 500, 503, 599}
		if !slices.Contains([]string{"c.Status", "fiber.NewError", "late", "gone"}, way) {
			statuses = []int{0}
		}
		for _, status := range statuses {
			for _, transaction := range []string{"whole", "broken"} {
				var row *endingRow
				for i := range rows {
					if rows[i].has(way, status, transaction) {
						if row != nil {
							t.Errorf("two rows speak of %s %d %s", way, status, transaction)
						}
						row, used[i] = &rows[i], true
					}
				}
				if row == nil {
					t.Errorf("no row speaks of %s %d %s", way, status, transaction)
					continue
				}
				e.try(t, row, way, status, transaction, true)
				if transaction == "whole" {
					e.try(t, row, way, status, transaction, false)
				}
			}
		}
	}
	for i := range rows {
		if !used[i] {
			t.Errorf("nothing ends like row %d: %+v", i+1, rows[i])
		}
	}
}

// endings is a shop whose only handler ends as its path says.
type endings struct {
	*shop
	app     *fiber.App
	entered chan struct{} // a handler whose client is to go has begun
	left    chan struct{} // its client is gone
}

func newEndings(t *testing.T) *endings {
	t.Helper()
	e := &endings{shop: newShop(t, idem.Config{}), app: quietApp(), entered: make(chan struct{}), left: make(chan struct{})}
	e.app.Use(recovermw.New())
	e.app.Post("/:way/:status/:transaction/:writes", underDeadline, fibermw.New(e.config), e.handle)
	return e
}

func (e *endings) handle(c *fiber.Ctx) error {
	status, _ := c.ParamsInt("status")
	way := c.Params("way")
	e.runs.Add(1)
	if c.Params("writes") == "true" {
		if _, err := fibermw.Tx(c).Exec(c.UserContext(), "insert into sales (item) values ($1)", c.Path()); err != nil {
			return err
		}
	}
	if c.Params("transaction") == "broken" {
		if _, err := fibermw.Tx(c).Exec(c.UserContext(), "select 1/0"); err == nil {
			return errors.New("1/0 is a number")
		}
	}
	switch way {
	case "fiber.NewError":
		return fiber.NewError(status, "as said")
	case "errors.New":
		return errors.New("as said")
	case "panic":
		panic("as said")
	case "runtime.Goexit":
		runtime.Goexit()
	case "context.DeadlineExceeded", "late":
		c.Locals("expire").(func())()
		<-c.UserContext().Done()
		if way != "late" {
			return c.UserContext().Err()
		}
	case "gone":
		if c.Get("X-Leave") != "" {
			e.entered <- struct{}{}
			<-e.left
		}
	}
	return c.Status(status).SendString("as said")
}

// deadline is a context whose deadline passes when the test says so.
type deadline struct {
	context.Context
	passed chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.passed }

func (d deadline) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// underDeadline is the timeout middleware with a deadline that the handler
// lets pass.
func underDeadline(c *fiber.Ctx) error {
	d := deadline{c.UserContext(), make(chan struct{})}
	c.Locals("expire", func() { close(d.passed) })
	c.SetUserContext(d)
	return timeout.NewWithContext((*fiber.Ctx).Next, time.Hour)(c)
}

// ask sends the request. There is no answer when the client goes, or when the
// handler ended its goroutine.
func (e *endings) ask(t *testing.T, request *http.Request, leave bool) (got answer, answered bool) {
	t.Helper()
	if leave {
		e.leave(t, request)
		return answer{}, false
	}
	response, err := e.app.Test(request, -1)
	if err != nil {
		return answer{}, false
	}
	defer func() { _ = response.Body.Close() }()
	return read(t, response), true
}

// leave sends the request and hangs up in the middle of its handler.
func (e *endings) leave(t *testing.T, request *http.Request) {
	t.Helper()
	e.app.Handler() // gets the app ready
	request.Header.Set("X-Leave", "1")
	client, server := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- e.app.Server().ServeConn(server) }()
	if err := request.Write(client); err != nil {
		t.Fatal(err)
	}
	<-e.entered
	_ = client.Close()
	e.left <- struct{}{}
	if err := <-ended; err == nil {
		t.Error("the server did not find out that its client was gone")
	}
}

// try sends one request twice and compares with the row.
func (e *endings) try(t *testing.T, row *endingRow, way string, status int, transaction string, writes bool) {
	t.Helper()
	target := fmt.Sprintf("/%s/%d/%s/%v", way, status, transaction, writes)
	before := e.runs.Load()
	first, answered := e.ask(t, post(target, target, ""), way == "gone")
	var rows int
	if err := e.pool.QueryRow(t.Context(), "select count(*) from sales where item = $1", target).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	state := e.recorded(t, target)
	second, answeredAgain := e.ask(t, post(target, target, ""), false)
	again := "runs again"
	if e.runs.Load() == before+1 && second.replayed() {
		again = "replay"
	}

	if way == "gone" { // the second answer is what the first would have been
		first, answered = second, answeredAgain
	}
	if seen := seenAs(first, answered, status); seen != row.seen {
		t.Errorf("%s: the client sees %s, the table says %s", target, seen, row.seen)
	}
	if committed := row.writes == "committed"; (rows == 1) != (committed && writes) {
		t.Errorf("%s: %d rows stay, the table says %s", target, rows, row.writes)
	}
	if state == "" {
		state = "none"
	}
	if string(state) != row.record || again != row.sameKeyAgain || e.runs.Load() > before+2 {
		t.Errorf("%s: the record is %s, then %s after %d runs, the table says %s, %s",
			target, state, again, e.runs.Load()-before, row.record, row.sameKeyAgain)
	}
	mustExec(t, e.pool, "delete from sales") // a run of the second request must not meet the row of the first
}

// seenAs is what an answer is called in the table.
func seenAs(got answer, answered bool, status int) string {
	switch {
	case !answered:
		return "no answer"
	case got.problem() != "":
		return fmt.Sprintf("%d %s", got.status, got.problem())
	case got.status == status:
		return "that status"
	}
	return strconv.Itoa(got.status)
}
