package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/template"
	"time"
)

// report is all that one run has measured.
type report struct {
	Plan     plan
	Command  string
	Date     time.Time
	Duration time.Duration
	Lab      facts
	Points   []point
	Written  bytesPerRecord // of records that first requests made, in the all but empty database
	Designs  []design
	Sweeps   []sweepCost
}

// Targets of the figures at the largest size.
const (
	ratioMax      = 1.2
	indexBytesMax = 80
	sweepRatioMax = 1.5
)

//go:embed *.tmpl
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"ms":    func(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) },
	"s":     func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) },
	"count": count,
	"f0":    func(f float64) string { return fmt.Sprintf("%.0f", f) },
	"f1":    func(f float64) string { return fmt.Sprintf("%.1f", f) },
	"f2":    func(f float64) string { return fmt.Sprintf("%.2f", f) },
	"p":     func(percent int, delays []time.Duration) time.Duration { return quantile(delays, percent) },
}).ParseFS(templateFiles, "*.tmpl"))

// count writes a number with commas.
func count(n any) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Kinds are the rows of the table of times.
func (r *report) Kinds() []kind { return kinds }

// LoadClients is how many requests of the load run at a time.
func (r *report) LoadClients() int { return loadClients }

// Last is the point at the largest size.
func (r *report) Last() point { return r.Points[len(r.Points)-1] }

// verdict compares a figure to its target.
type verdict struct {
	Target, Figure string
	Met            bool
}

// Verdicts are the targets and what became of them.
func (r *report) Verdicts() []verdict {
	last := r.Last()
	var verdicts []verdict
	for i, k := range kinds {
		ratio := last.Latencies[i].Ratio
		verdicts = append(verdicts, verdict{
			fmt.Sprintf("p50 at %s records, %s: at most %.1f× empty", count(last.Records), k.Name, ratioMax),
			fmt.Sprintf("%.2f×", ratio), ratio <= ratioMax,
		})
	}
	verdicts = append(verdicts, verdict{
		fmt.Sprintf("index bytes per record at %s records: at most %d", count(last.Records), indexBytesMax),
		fmt.Sprintf("%.1f", last.Bytes.Indexes()), last.Bytes.Indexes() <= indexBytesMax,
	})
	for _, s := range r.Sweeps {
		verdicts = append(verdicts, verdict{
			fmt.Sprintf("p99 while %s expired records are swept (%s): at most %.1f× before", count(s.Swept.Records), s.Manner.Name, sweepRatioMax),
			fmt.Sprintf("%.2f×", s.P99Ratio()), s.P99Ratio() <= sweepRatioMax,
		})
	}
	return verdicts
}

// print writes the tables.
func (r *report) print(w io.Writer) error {
	return templates.ExecuteTemplate(w, "tables", r)
}

// write writes the page and its curves.
func (r *report) write(dir string) (err error) {
	curves := filepath.Join(dir, "growth")
	if err := os.MkdirAll(curves, 0o755); err != nil {
		return err
	}
	for name, c := range r.charts() {
		if err := c.write(filepath.Join(curves, name)); err != nil {
			return err
		}
	}
	page, err := os.Create(filepath.Join(dir, "growth.md"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, page.Close()) }()
	return templates.ExecuteTemplate(page, "page.tmpl", r)
}
