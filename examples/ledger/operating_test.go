package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The page's example: a tenant, its key, and how the page names the two.
const (
	pageTenant = "acme"
	pageKey    = "7e9a-41"
)

func operatingPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/operating.md")
	must(t, err)
	return string(page)
}

// keyHash runs the shell lines of the page.
func keyHash(t *testing.T, tenant, key string) string {
	t.Helper()
	lines := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(operatingPage(t))
	if lines == nil {
		t.Fatal("docs/operating.md does not say how to make a key_hash")
	}
	script := strings.NewReplacer(pageTenant, tenant, pageKey, key).Replace(lines[1])
	output, err := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", script).Output()
	must(t, err)
	return strings.TrimSpace(string(output))
}

// runPage runs every statement of the page and returns how many rows each gave,
// or changed, by the heading that it stands under. Nothing stays.
func runPage(t *testing.T, pool *pgxpool.Pool) map[string]int64 {
	t.Helper()
	rows := map[string]int64{}
	blocks := regexp.MustCompile("(?ms)^##+ ([^\n]+)$|^ *```sql\n(.*?)```").FindAllStringSubmatch(operatingPage(t), -1)
	heading := ""
	for _, block := range blocks {
		if block[1] != "" {
			heading = block[1]
			continue
		}
		tx, err := pool.Begin(t.Context())
		must(t, err)
		tag, err := tx.Exec(t.Context(), block[2])
		if err != nil {
			t.Errorf("%s: %v", heading, err)
		}
		rows[heading] = tag.RowsAffected()
		must(t, tx.Rollback(t.Context()))
	}
	return rows
}

// Goal: what docs/operating.md tells an operator to run works, and finds what it
// says. Method: run it while the key of its example is in flight, when it is
// recorded, and when it has expired.
func TestTheOperatingPageFindsWhatItSays(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	check := func(when string, want map[string]int64) {
		t.Helper()
		got := runPage(t, pool)
		for heading, rows := range want {
			if n, there := got[heading]; !there || n != rows {
				t.Errorf("%s: %q found %d rows, want %d", when, heading, n, rows)
			}
		}
	}
	const stuck, record = "A payment is stuck, or a client says it paid twice", "A record by its key"
	release := holdTransfers["between claim and writes"](t, pool)
	running := service.background("/v1/transfers", pageKey, transferBody("bank", "alice", 700))
	awaitHeldTransfer(t, pool)
	check("in flight", map[string]int64{
		stuck: 0, record: 0, "Who holds a key": 1, "All claims in flight": 1, "What waits for what": 1,
		"The table and its vacuum": 1,
	})
	release()
	want(t, <-running, http.StatusCreated)
	check("recorded", map[string]int64{
		stuck: 1, record: 1, "Who holds a key": 0, "All claims in flight": 0, "What waits for what": 0,
		"Records by age": 1, "Retention": 1, "Sweeping": 0,
	})
	_, err := pool.Exec(t.Context(), "update idem.records set created_at = now() - interval '2 days', expires_at = now() - interval '1 day'")
	must(t, err)
	check("expired", map[string]int64{stuck: 1, record: 1, "Retention": 0, "Sweeping": 3})
}

// The page and the library mean the same by key_hash.
func TestTheOperatingPageNamesItsExample(t *testing.T) {
	t.Parallel()
	page, hash := operatingPage(t), keyHash(t, pageTenant, pageKey)
	if strings.Count(page, hash) != 2 {
		t.Errorf("the page does not use %s, the key_hash of its example", hash)
	}
}
