package api

import (
	"os"
	"strings"
	"testing"
)

// The type of a problem is a link into the README, where it is explained.
func TestTheReadmeExplainsEveryProblem(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range refusals {
		if anchor := `<a id="` + r.name + `"></a>`; strings.Count(string(readme), anchor) != 1 {
			t.Errorf("the README needs %s once", anchor)
		}
	}
}
