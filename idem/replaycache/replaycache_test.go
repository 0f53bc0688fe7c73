package replaycache_test

import (
	"strings"
	"testing"

	"github.com/idempg/idempg/idem/replaycache"
)

// What is out of its limits is refused at construction, by name. What a cache
// does with answers is tested on a database, in the integration module.
func TestNewNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, 1, 64<<10 - 1, 16<<30 + 1} {
		if _, err := replaycache.New(replaycache.Config{BytesMax: n}); err == nil || !strings.Contains(err.Error(), "Config.BytesMax ") {
			t.Errorf("%d: error is %v", n, err)
		}
	}
	for _, n := range []int{0, 64 << 10, 16 << 30} {
		if _, err := replaycache.New(replaycache.Config{BytesMax: n}); err != nil {
			t.Errorf("%d: %v", n, err)
		}
	}
}
