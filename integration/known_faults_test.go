package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of known faults in docs/reliability.md names tests that exist. With
// -v it is printed.
func TestEveryKnownFaultHasATest(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "## Known faults")
	if !found {
		t.Fatal("docs/reliability.md has no section on known faults")
	}
	tests := testFunctions(t, "..")
	row := regexp.MustCompile(`(?m)^\| (\d+) \| (.+) \| (.+) \|$`)
	name := regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	rows := row.FindAllStringSubmatch(table, -1)
	for _, r := range rows {
		named := name.FindAllStringSubmatch(r[3], -1)
		if len(named) == 0 {
			t.Errorf("fault %s has no test", r[1])
		}
		for _, n := range named {
			if tests[n[1]] == "" {
				t.Errorf("fault %s: there is no test %s", r[1], n[1])
			}
			t.Logf("%2s  %-75s %s (%s)", r[1], r[2], n[1], tests[n[1]])
		}
	}
	if len(rows) != 42 {
		t.Errorf("%d faults in the table, want 42", len(rows))
	}
}

// testFunctions maps the tests under root to their files.
func testFunctions(t *testing.T, root string) map[string]string {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	tests := map[string]string{}
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range function.FindAllStringSubmatch(string(source), -1) {
			tests[match[1]] = strings.TrimPrefix(path, root+"/")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}
