package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A change of the library that moves a guard must move its fault, too.
func TestEveryFaultApplies(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		sources := map[string]string{}
		for _, e := range m.edits {
			source, edited := sources[e.file]
			if !edited {
				content, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(e.file)))
				if err != nil {
					t.Fatal(err)
				}
				source = string(content)
			}
			broken, err := e.apply(source)
			if err != nil {
				t.Errorf("%s: %v", m.fault, err)
			}
			sources[e.file] = broken
		}
	}
}

// The page tells which test notices which fault.
func TestEveryFaultIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		row := "| " + m.fault + " | `" + strings.Join(m.tests, "`, `") + "` |\n"
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/reliability.md lacks the row\n%s", row)
		}
	}
}
