package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/idempg/idempg/internal/localpg"
)

// Goal: the records that fill makes are those that the library would have made,
// or the program would measure something else. Method: the library replays
// them, which needs the primary key, the fingerprint and the outcome.
func TestTheLibraryReplaysFilledRecords(t *testing.T) {
	ctx := t.Context()
	server, err := localpg.Start(ctx, localpg.Options{URLVariable: "IDEM_TEST_DATABASE_URL", Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	name := "growth_" + strings.ToLower(rand.Text())
	d, err := newDatabase(ctx, server.URL, name)
	if err != nil {
		t.Fatal(errors.Join(err, server.Stop()))
	}
	t.Cleanup(func() {
		d.close()
		if err := errors.Join(execute(context.Background(), server.URL, "drop database "+name+" with (force)"), server.Stop()); err != nil {
			t.Error(err)
		}
	})
	if err := d.fill(ctx, 60); err != nil {
		t.Fatal(err)
	}
	if err := d.fill(ctx, 100); err != nil {
		t.Fatal(err)
	}
	if err := d.fillExpired(ctx, 0, 30); err != nil {
		t.Fatal(err)
	}
	if _, err := d.replays(ctx, 300); err != nil {
		t.Error(err)
	}
	var cost sweepCost
	if err := d.sweep(ctx, manners[0], &cost); err != nil || cost.Swept.Records != 30 {
		t.Errorf("swept %d records, %v; want the 30 that have expired", cost.Swept.Records, err)
	}
}

// Goal: the whole program works. Method: run it on little, and read what it
// wrote.
func TestTheProgramWritesItsPage(t *testing.T) {
	tiny := plan{
		Sizes: []int{0, 1000, 3000}, Rounds: 2, SliceOps: 10, WALOps: 600, Trial: 1000, Expired: 2500,
		LoadPerSec: 50, WarmUp: 100 * time.Millisecond, Baseline: time.Second, Settle: time.Second,
	}
	out := t.TempDir()
	var terminal bytes.Buffer
	if err := run(t.Context(), tiny, "the command", out, &terminal); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(out, "growth.md"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(page), "NaN") || strings.Contains(string(page), "Inf") || strings.Contains(string(page), "no value") {
		t.Errorf("the page has a figure that is none:\n%s", page)
	}
	if n := strings.Count(string(page), "| 2,500 |"); n != len(manners) {
		t.Errorf("%d sweeps of 2,500 records on the page, want %d:\n%s", n, len(manners), page)
	}
	if !strings.Contains(terminal.String(), "index bytes per record at 3,000 records") {
		t.Errorf("the terminal shows no targets:\n%s", terminal.String())
	}
	shown := regexp.MustCompile(`\]\((growth/[^)]+)\)`).FindAllStringSubmatch(string(page), -1)
	if want := 3 + len(manners); len(shown) != want {
		t.Errorf("%d curves on the page, want %d", len(shown), want)
	}
	for _, s := range shown {
		drawing, err := os.Open(filepath.Join(out, s[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		if err := wellFormed(drawing); err != nil {
			t.Errorf("%s: %v", s[1], err)
		}
		_ = drawing.Close()
	}
}

func wellFormed(r io.Reader) error {
	for decoder := xml.NewDecoder(r); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	for percent, want := range map[int]float64{0: 1, 20: 1, 50: 3, 80: 4, 99: 5, 100: 5} {
		if got := quantile(values, percent); got != want {
			t.Errorf("quantile %d = %v, want %v", percent, got, want)
		}
	}
	if got := quantile([]time.Duration(nil), 50); got != 0 {
		t.Errorf("quantile of nothing = %v, want 0", got)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 10_000_000: "10,000,000"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}
