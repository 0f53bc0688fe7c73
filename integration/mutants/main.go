// Command mutants breaks the library on purpose, one fault at a time, and runs
// the tests that should notice. It fails when a fault survives, when it no
// longer applies to the source, or when it does not build. So each guard of the
// library has a test that goes red without it.
//
// It works on a copy of the checkout and needs what the integration tests need.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/idempg/idempg/internal/localpg"
)

func main() {
	only := flag.String("run", "", "break only what matches this regular expression")
	flag.Parse()
	if err := run(context.Background(), *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string) (err error) {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	chosen := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !pattern.MatchString(m.fault) })
	copied, err := copyCheckout()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(copied)) }()

	// One server for all runs.
	server, err := localpg.Start(ctx, localpg.Options{
		URLVariable: urlVariable, Volatile: true, Settings: map[string]string{"max_connections": "300"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	l := &lab{root: copied, url: server.URL}
	if err := l.checkUnbroken(ctx, chosen); err != nil {
		return err
	}
	start, survived := time.Now(), 0
	for _, m := range chosen {
		verdict, caught := l.try(ctx, m)
		if !caught {
			survived++
		}
		fmt.Printf("| %-58s | %s |\n", m.fault, verdict)
	}
	fmt.Printf("\n%d faults, %d caught, in %v\n", len(chosen), len(chosen)-survived, time.Since(start).Round(time.Second))
	if survived > 0 {
		return fmt.Errorf("%d faults were not caught", survived)
	}
	return nil
}

// urlVariable is what the integration tests read; see their startServer.
const urlVariable = "IDEM_TEST_DATABASE_URL"

// runTimeout ends a run whose fault makes the tests hang: that is red, too.
const runTimeout = "60s"

// lab is a copy of the checkout to break, and a server to test it on.
type lab struct {
	root, url string
}

// checkUnbroken makes sure that every test named in the table is there and
// passes as long as nothing is broken: only then does a failure mean something.
func (l *lab) checkUnbroken(ctx context.Context, chosen []mutant) error {
	tests := map[string][]string{}
	for _, m := range chosen {
		tests[m.where] = append(tests[m.where], m.tests...)
	}
	for where, names := range tests {
		output, err := l.test(ctx, where, names, "-v", "-timeout", "5m")
		if err != nil {
			return fmt.Errorf("%s fails unbroken: %w\n%s", where, err, output)
		}
		for _, name := range names {
			if !bytes.Contains(output, []byte("--- PASS: "+name+" (")) {
				return fmt.Errorf("%s has no test %s that passes", where, name)
			}
		}
	}
	return nil
}

// try breaks the copy, runs the tests, and repairs it. It says in words what
// happened.
func (l *lab) try(ctx context.Context, m mutant) (verdict string, caught bool) {
	repair, err := l.apply(m.edits)
	defer repair()
	if err != nil {
		return "DOES NOT APPLY: " + err.Error(), false
	}
	output, err := l.test(ctx, m.where, m.tests, "-failfast", "-timeout", runTimeout)
	switch {
	case err == nil:
		return "SURVIVED " + strings.Join(m.tests, ", "), false
	case bytes.Contains(output, []byte("[build failed]")), bytes.Contains(output, []byte("[setup failed]")):
		return "DOES NOT BUILD:\n" + string(output), false
	}
	if failed := failedTest.FindSubmatch(output); failed != nil {
		return string(failed[1]), true
	}
	if hanging := hangingTest.FindSubmatch(output); hanging != nil {
		return string(hanging[1]) + " (hangs)", true
	}
	if bytes.Contains(output, []byte("goleak")) || bytes.Contains(output, []byte("panic: ")) {
		return strings.Join(m.tests, ", ") + " (panics or leaks)", true
	}
	return "NO TEST FAILED:\n" + string(output), false
}

var (
	failedTest  = regexp.MustCompile(`(?m)^ *--- FAIL: ([^ /]+)`)
	hangingTest = regexp.MustCompile(`(?s)panic: test timed out.*?running tests:\s+([^ /]+)`)
)

func (l *lab) test(ctx context.Context, where string, names []string, flags ...string) ([]byte, error) {
	// Without debugging information, linking is what a run no longer waits for.
	arguments := append([]string{"test", "-vet=off", "-ldflags=-s -w", "-count=1", "-run", "^(" + strings.Join(names, "|") + ")$"}, flags...)
	command := exec.CommandContext(ctx, "go", append(arguments, where)...)
	command.Dir = l.root
	command.Env = append(os.Environ(), urlVariable+"="+l.url)
	return command.CombinedOutput()
}

// apply makes the edits in the copy. repair undoes them, also after an error.
func (l *lab) apply(edits []edit) (repair func(), err error) {
	var undo []func()
	repair = func() {
		for _, u := range slices.Backward(undo) {
			u()
		}
	}
	for _, e := range edits {
		path := filepath.Join(l.root, filepath.FromSlash(e.file))
		source, err := os.ReadFile(path)
		if err != nil {
			return repair, err
		}
		broken, err := e.apply(string(source))
		if err != nil {
			return repair, err
		}
		undo = append(undo, func() { _ = os.WriteFile(path, source, 0o600) }) // a failure shows in the next run
		if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
			return repair, err
		}
	}
	return repair, nil
}

// apply returns the source with the edit made. It must say old in one place.
func (e edit) apply(source string) (string, error) {
	if n := strings.Count(source, e.old); n != 1 {
		return "", fmt.Errorf("%s says %d times: %s", e.file, n, e.old)
	}
	return strings.Replace(source, e.old, e.new, 1), nil
}

// copyCheckout copies what git knows of the checkout, and what it would add.
func copyCheckout() (string, error) {
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	from := strings.TrimSpace(string(root))
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = from
	names, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("list the checkout: %w", err)
	}
	to, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return "", err
	}
	for name := range strings.SplitSeq(strings.Trim(string(names), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, os.ErrNotExist) { // deleted and not committed
			continue
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), content, 0o600)
		}
		if err != nil {
			return "", errors.Join(err, os.RemoveAll(to))
		}
	}
	return to, nil
}
