package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/examples/ledger/jobs"
	"github.com/idempg/idempg/examples/ledger/storm"
)

// Goal: the audit of a storm finds nothing, and finds each fault that there is.
// Method: let one blow until each kind of damage was done, and audit it; then
// tamper with the book, and audit it again.
func TestAStormAndItsAudit(t *testing.T) {
	t.Parallel()
	url, pool := newDatabase(t)
	log := filepath.Join(t.TempDir(), "log")
	s, err := storm.Start(t.Context(), storm.Config{
		For: time.Hour, Seed: 1, Clients: 4, Instances: 2, Program: program, DatabaseURL: url, LogFile: log,
	})
	must(t, err)
	t.Cleanup(func() {
		must(t, s.Stop())
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Log(string(text))
		}
	})
	blow(t, s)

	report, err := s.Audit(t.Context())
	must(t, err)
	t.Log("\n" + report.String())
	if !report.OK() {
		t.Error("the audit has findings")
	}
	answers := int64(0)
	for _, n := range report.Answers {
		answers += n
	}
	if answers != report.Asked || report.Asked < report.Tally.Requests || report.Keys < report.Effects || report.Effects == 0 {
		t.Errorf("%d answers to %d orders in %d requests; %d effects for %d keys",
			answers, report.Asked, report.Tally.Requests, report.Effects, report.Keys)
	}

	keys := effectKeys(t, pool, 2)
	doubleEffect(t, pool, keys[0])
	loseEffect(t, pool, keys[1])
	report, err = s.Audit(t.Context())
	must(t, err)
	for name, key := range map[string]string{"doubled": keys[0], "lost": keys[1]} {
		found := findings(t, report, name)
		if len(found) != 1 || !strings.HasPrefix(found[0], key+":") {
			t.Errorf("%s: found %q, want %s alone", name, found, key)
		}
	}
	for _, name := range []string{"balances", "books"} {
		if len(findings(t, report, name)) == 0 {
			t.Errorf("%s: found nothing", name)
		}
	}
	if report.OK() || !strings.Contains(report.String(), keys[0]+": 2 effects") {
		t.Errorf("the report does not tell:\n%s", report.String())
	}
}

// Goal: an audit with findings fails the command. Method: a short storm on a
// book that has a transfer already, which no client asked for.
func TestAFindingFailsTheCommand(t *testing.T) {
	t.Parallel()
	url, pool := newDatabase(t)
	for _, id := range []string{"x", "y"} {
		_, err := book.New("storm", pool).OpenAccount(t.Context(), book.NewAccount{ID: &id, Currency: "EUR"})
		must(t, err)
	}
	work := newJobs(t, jobs.Config{Pool: pool})
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := book.New("storm", tx).With(work.On(tx)).Transfer(t.Context(), book.NewTransfer{From: "x", To: "y", Amount: 1, Currency: "EUR"})
		return err
	}))
	var output strings.Builder
	err := stormAndAudit(t.Context(), storm.Config{
		For: time.Millisecond, Clients: 1, Instances: 1, Program: program, DatabaseURL: url,
	}, &output)
	if err == nil || !strings.Contains(output.String(), "✗ unasked                    1") {
		t.Errorf("error %v, report\n%s", err, output.String())
	}
}

// The command does without anything that is there before, and leaves nothing.
func TestTheStormCommand(t *testing.T) {
	t.Parallel()
	dir := newSharedDir(t)
	command := exec.Command(program, "storm", "-for", "1s", "-seed", "7", "-clients", "2", "-instances", "1")
	command.Env = append(cleanEnvironment(), "TMPDIR="+dir)
	output, err := command.CombinedOutput()
	text := string(output)
	if err != nil || !strings.Contains(text, "-seed 7") || !strings.Contains(text, "Every key has one answer") {
		t.Errorf("%v\n%s", err, text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("its Postgres left %v %v", left, err)
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		arguments []string
		code      int
		output    string
	}{
		{[]string{"-h"}, 0, "usage: ledger serve"},
		{[]string{"serve", "-h"}, 0, "usage: ledger serve"},
		{[]string{"storm", "-h"}, 0, "-seed"},
		{[]string{"storm", "-for", "0s"}, 1, "For must be"},
		{[]string{"storm", "-clients", "65"}, 1, "Clients must be 1 to 64"},
		{[]string{"storm", "-instances", "0"}, 1, "Instances must be 1 to 4"},
		{[]string{"storm", "-nonsense"}, 2, "not defined: -nonsense"},
		{[]string{"storm", "nonsense"}, 1, `takes no argument "nonsense"`},
		{[]string{"nonsense"}, 1, "no such command: nonsense"},
	} {
		command := exec.Command(program, test.arguments...)
		output, _ := command.CombinedOutput() // the code tells
		if code := command.ProcessState.ExitCode(); code != test.code || !strings.Contains(string(output), test.output) {
			t.Errorf("%q: code %d, want %d with %q:\n%s", test.arguments, code, test.code, test.output, output)
		}
	}
}

// blow lets the storm blow until each kind of damage was done.
func blow(t *testing.T, s *storm.Storm) {
	t.Helper()
	ctx, calm := context.WithCancel(t.Context())
	defer calm()
	blown := make(chan error, 1)
	go func() { blown <- s.Blow(ctx) }()
	for deadline := time.Now().Add(stateWaitMax); ; time.Sleep(20 * time.Millisecond) {
		tally := s.Tally()
		if tally.Kills > 0 && tally.Restarts > 0 && tally.Backends > 0 && tally.Requests > 500 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not each kind of damage within %v: %+v", stateWaitMax, tally)
		}
	}
	calm()
	must(t, <-blown)
}

// effectKeys returns the keys of some transfers.
func effectKeys(t *testing.T, pool *pgxpool.Pool, count int) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), "select reference from ledger.transfers where reference like 'storm-%' limit $1", count)
	must(t, err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return keys
}

// doubleEffect posts a transfer again, as if its key had not been there.
func doubleEffect(t *testing.T, pool *pgxpool.Pool, key string) {
	t.Helper()
	again := book.NewTransfer{From: "bank", To: "alice", Amount: 1, Currency: "EUR", Reference: &key}
	work := newJobs(t, jobs.Config{Pool: pool})
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := book.New("storm", tx).With(work.On(tx)).Transfer(t.Context(), again)
		return err
	}))
}

// loseEffect removes a transfer, against the triggers that would not have it.
func loseEffect(t *testing.T, pool *pgxpool.Pool, key string) {
	t.Helper()
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for _, sql := range []string{
			"set local session_replication_role = replica",
			"delete from ledger.entries using ledger.transfers t where t.id = transfer_id and t.reference = $1",
			"delete from ledger.transfers where reference = $1",
		} {
			arguments := []any{key}[:strings.Count(sql, "$1")]
			if tag, err := tx.Exec(t.Context(), sql, arguments...); err != nil || tag.Delete() && tag.RowsAffected() == 0 {
				return fmt.Errorf("%s: %v, %w", sql, tag, err)
			}
		}
		return nil
	}))
}

func findings(t *testing.T, report storm.Report, name string) []string {
	t.Helper()
	i := slices.IndexFunc(report.Checks, func(c storm.Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check is named %s", name)
	}
	return report.Checks[i].Findings
}
