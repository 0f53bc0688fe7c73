package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/template"
	"time"
)

// report is all that a run found out.
type report struct {
	plan                          *plan
	date                          time.Time
	postgresVersion, redisVersion string
	floors                        map[string]string
	roles                         map[string]role
	order                         []string // of the systems
	counted                       []*counted
	measured                      []*measured
}

// know notes what the systems are called and compared with.
func (r *report) know(systems []*system) {
	r.order, r.floors, r.roles = nil, map[string]string{}, map[string]role{}
	for _, s := range systems {
		r.order = append(r.order, s.name)
		r.floors[s.name], r.roles[s.name] = s.floor, s.role
	}
}

//go:embed page.md.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// write writes the page and its plots to a directory, or the page alone to
// standard output.
func (r *report) write(dir string) error {
	tables, plots := r.tables()
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, r.page(tables)); err != nil {
		return err
	}
	if dir == "" {
		_, err := page.WriteTo(os.Stdout)
		return err
	}
	folder := filepath.Join(dir, "benchmarks")
	old, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	for _, name := range old {
		err = errors.Join(err, os.Remove(name))
	}
	err = errors.Join(err, os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(dir, "benchmarks.md"), page.Bytes(), 0o644))
	for name, svg := range plots {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, name), svg, 0o644))
	}
	return err
}

// page is what the template shows.
type page struct {
	Command, Date, Machine, Versions string
	Rounds                           int
	Slice, Duration, Retry           string
	Short                            bool
	Targets                          []target
	Met                              int
	Counts                           []countRow
	Tables                           []table
	Faster                           []string
	Conns                            int
	Accounts                         string
}

func (r *report) page(tables []table) page {
	p := page{
		Command: "make bench", Date: r.date.UTC().Format("2006-01-02"), Machine: machine(), Versions: r.versions(),
		Rounds: r.plan.rounds, Slice: milliseconds(r.plan.slice),
		Duration: fmt.Sprintf("%.1f minutes", time.Since(r.plan.start).Minutes()), Short: r.plan.short,
		Targets: r.targets(), Counts: r.countRows(), Tables: tables, Faster: r.fasterPeers(),
		Retry: milliseconds(retryPause), Conns: systemConns, Accounts: grouped(accounts),
	}
	if p.Short {
		p.Command = "make bench-short"
	}
	for _, t := range p.Targets {
		if t.met() {
			p.Met++
		}
	}
	return p
}

// machine is the hardware as far as it can be known.
func machine() string {
	text := fmt.Sprintf("%s, %s", processor(), plural(runtime.NumCPU(), "processor"))
	if bytes := memoryBytes(); bytes > 0 {
		text += fmt.Sprintf(", %d GB of memory", (bytes+1<<29)>>30)
	}
	return text + ", " + kernel()
}

// shownModules are the libraries whose versions matter.
var shownModules = []string{
	"github.com/jackc/pgx/v5", "github.com/gofiber/fiber/v2", "github.com/redis/go-redis/v9",
	"github.com/gofiber/storage/redis/v3", "github.com/dbos-inc/dbos-transact-golang",
}

func (r *report) versions() string {
	parts := []string{"PostgreSQL " + r.postgresVersion, "Redis " + r.redisVersion, runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return strings.Join(parts, ", ")
	}
	for _, name := range shownModules {
		for _, module := range info.Deps {
			if module.Path == name {
				parts = append(parts, strings.TrimPrefix(name, "github.com/")+" "+module.Version)
			}
		}
	}
	return strings.Join(parts, ", ")
}

// countRow is a row of the table of counts, as text.
type countRow struct{ Name, First, Replay string }

func (r *report) countRows() []countRow {
	var rows []countRow
	for _, c := range r.counted {
		if c.name == coreWaiting {
			continue
		}
		row := countRow{c.name, c.first.columns(), "– | – | – | – | –"}
		if replays.asks(c.name) {
			row.Replay = c.replay.columns()
		}
		rows = append(rows, row)
	}
	return rows
}

func (c counts) columns() string {
	trips := fmt.Sprintf("%.0f", c.postgresTrips)
	if c.redisTrips > 0 {
		trips += fmt.Sprintf(" + %.0f Redis", c.redisTrips)
	}
	if c.afterTrips > 0 {
		trips += fmt.Sprintf(" (%.0f after)", c.afterTrips)
	}
	return fmt.Sprintf("%s | %.0f | %s | %s | %.0f", trips, c.walBytes, few(c.xids), few(c.dead), c.allocations)
}

// few is a small number with the decimals that it needs.
func few(value float64) string {
	if math.Abs(value-math.Round(value)) < 0.05 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.1f", value)
}

// table shows one scenario in one setting, a column for each number of clients.
type table struct {
	Title, Plot, Head, Rule string
	Rows                    []string
}

// tables makes the tables and their plots, by file name.
func (r *report) tables() ([]table, map[string][]byte) {
	var made []table
	plots := map[string][]byte{}
	for rest := r.measured; len(rest) > 0; {
		first := rest[0]
		end := slices.IndexFunc(rest, func(m *measured) bool { return !m.sameTable(first) })
		if end < 0 {
			end = len(rest)
		}
		t := r.table(rest[:end])
		t.Plot = fmt.Sprintf("%s-%s.svg", slug(string(first.scenario)), slug(first.setting.String()+" "+sizeOf(first.bytes)))
		plots[t.Plot] = r.plot(t.Title, rest[:end])
		made = append(made, t)
		rest = rest[end:]
	}
	return made, plots
}

func (m *measured) sameTable(other *measured) bool {
	return m.setting == other.setting && m.scenario == other.scenario && m.bytes == other.bytes
}

func slug(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(text), func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9')
	}), "-")
}

func (r *report) table(columns []*measured) table {
	first := columns[0]
	t := table{
		Title: fmt.Sprintf("%s, %v, answers of %s", capital(string(first.scenario)), first.setting, sizeOf(first.bytes)),
		Head:  "| |", Rule: "|---|",
	}
	for _, m := range columns {
		t.Head += fmt.Sprintf(" %s: per s | p50, p99 ms | × floor |", plural(m.clients, "client"))
		t.Rule += "--:|--:|--:|"
	}
	for _, name := range r.order {
		if first.series[name] == nil {
			continue
		}
		row := "| " + name + " |"
		for _, m := range columns {
			s := m.series[name]
			row += fmt.Sprintf(" %s | %s, %s | %s |", grouped(spreadOf(s.perSecond).median),
				digits(spreadOf(s.p50).median), digits(spreadOf(s.p99).median), r.againstFloor(m, name))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// floorOf is what a system is compared with in a scenario.
func (r *report) floorOf(what scenario, name string) string {
	return what.floor(&system{floor: r.floors[name]})
}

func (r *report) againstFloor(m *measured, name string) string {
	floor := r.floorOf(m.scenario, name)
	if floor == name {
		return "1"
	}
	s := pairwise(m.of(name).perSecond, m.of(floor).perSecond, ratio)
	return fmt.Sprintf("%.2f (%.2f–%.2f)", s.median, s.low, s.high)
}

// fasterPeers lists, peer by peer, where one does more in the same time than idempg on
// the same side of Fiber.
func (r *report) fasterPeers() []string {
	var found []string
	for _, name := range r.order {
		if r.roles[name] != peer {
			continue
		}
		own := core
		if r.floors[name] == bareFiber {
			own = coreFiber
		}
		var where []string
		for _, m := range r.measured {
			s := pairwise(m.of(name).perSecond, m.of(own).perSecond, ratio)
			if s.median > 1 {
				where = append(where, fmt.Sprintf("%v: ×%.2f (%.2f–%.2f)", m.cell, s.median, s.low, s.high))
			}
		}
		if where != nil {
			found = append(found, fmt.Sprintf("**%s** against %s:\n  %s", name, own, strings.Join(where, ";\n  ")))
		}
	}
	return found
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// grouped is a whole number with its thousands apart.
func grouped(value float64) string {
	if value < 100 {
		return digits(value)
	}
	text := fmt.Sprintf("%.0f", value)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// digits is a number with three significant digits.
func digits(value float64) string {
	decimals := max(0, 2-int(math.Floor(math.Log10(cmp.Or(math.Abs(value), 1)))))
	return fmt.Sprintf("%.*f", decimals, value)
}
