package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every link between the pages of the repository leads to a file, and to a
// heading in it.
func TestLinksOfThePages(t *testing.T) {
	t.Parallel()
	pages := map[string]string{}
	err := filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		content, err := os.ReadFile(path)
		pages[filepath.Clean(path)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	links := 0
	for path, page := range pages {
		for _, match := range link.FindAllStringSubmatch(page, -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %s leads nowhere", path, match[1])
			} else if anchor != "" && !hasAnchor(pages[file], anchor) {
				t.Errorf("%s: %s has no heading %q", path, file, anchor)
			}
		}
	}
	if links < 50 {
		t.Errorf("%d links were found", links)
	}
}

// hasAnchor tells whether a page has the heading that an anchor is made from, or
// sets it by hand.
func hasAnchor(page, anchor string) bool {
	if strings.Contains(page, `<a id="`+anchor+`">`) {
		return true
	}
	dropped := regexp.MustCompile("[^a-z0-9 _-]")
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		text := dropped.ReplaceAllString(strings.ToLower(heading[1]), "")
		if strings.ReplaceAll(text, " ", "-") == anchor {
			return true
		}
	}
	return false
}
