package telemetry

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
)

// scrape reads the metrics of a service whose database is away.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if recorder.Code != http.StatusOK {
		t.Fatalf("status %d: %s", recorder.Code, recorder.Body)
	}
	return recorder.Body.String()
}

func newTestMetrics(t *testing.T) *Metrics {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "host=127.0.0.1 port=1 user=nobody") // connects when it is asked
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return NewMetrics(pool)
}

func TestMetricsAreServedWithoutADatabase(t *testing.T) {
	t.Parallel()
	m := newTestMetrics(t)
	m.ObserveRequest("GET", "/readyz", http.StatusServiceUnavailable, time.Second, nil)
	got := scrape(t, m)
	for _, line := range []string{"ledger_database_up 0\n", `http_requests_total{method="GET",route="/readyz",status="503"} 1` + "\n", "\ngo_goroutines "} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in %s", line, got)
		}
	}
	if strings.Contains(got, "\nidem_records_bytes") {
		t.Error("what nobody could measure was reported")
	}
}

func TestSweepsAreCounted(t *testing.T) {
	t.Parallel()
	m := newTestMetrics(t)
	m.ObserveSweep(idem.SweepResult{Records: 7, Batches: 1}, time.Second, errors.New("away")) // after its first batch
	if got := scrape(t, m); !strings.Contains(got, "idem_sweep_last_success_timestamp_seconds 0\n") {
		t.Error("a sweep that failed counts as a success")
	}
	m.ObserveSweep(idem.SweepResult{Records: 5, Batches: 1}, time.Second, nil)
	got := scrape(t, m)
	for _, line := range []string{
		"idem_swept_records_total 12\n", "idem_sweep_failures_total 1\n", "idem_sweep_duration_seconds_count 2\n",
		"idem_sweep_last_success_timestamp_seconds 1.",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in %s", line, got)
		}
	}
}
