package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"

	"github.com/idempg/idempg/examples/ledger/jobs"
)

// exportedSeries maps each series of a service that has done a little of
// everything to the names of its labels.
func exportedSeries(t *testing.T) map[string][]string {
	t.Helper()
	service, pool := newService(t)
	startJobs(t, pool, jobs.Config{})
	await(t, pool, "River knows its queues", "select count(*) = 3 from river.river_queue")
	service.open("bank", "EUR", "null")
	service.scrape()                             // is a request, too
	series := map[string][]string{"up": {"job"}} // Prometheus's own
	for name, family := range service.scrape() {
		labels := []string{"instance", "job"}
		for _, pair := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, pair.GetName())
		}
		series[name] = labels
		if family.GetType() == dto.MetricType_HISTOGRAM {
			series[name+"_sum"], series[name+"_count"] = labels, labels
			series[name+"_bucket"] = append(slices.Clone(labels), "le")
			delete(series, name)
		}
	}
	return series
}

// wantExported checks that the metrics and labels that a query names are there.
func wantExported(t *testing.T, series map[string][]string, where, query string) {
	t.Helper()
	expression, err := metricsql.Parse(strings.ReplaceAll(query, "$__rate_interval", "5m"))
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	var labels, grouped []string // of all metrics in the query; named by it
	metrics := 0
	metricsql.VisitAll(expression, func(e metricsql.Expr) {
		switch e := e.(type) {
		case *metricsql.MetricExpr:
			metrics++
			for _, filter := range slices.Concat(e.LabelFilterss...) {
				if filter.Label != "__name__" {
					grouped = append(grouped, filter.Label)
				} else if has, there := series[filter.Value]; there {
					labels = append(labels, has...)
				} else {
					t.Errorf("%s: nothing exports %s", where, filter.Value)
				}
			}
		case *metricsql.AggrFuncExpr:
			grouped = append(grouped, e.Modifier.Args...)
		case *metricsql.BinaryOpExpr:
			grouped = append(append(grouped, e.GroupModifier.Args...), e.JoinModifier.Args...)
		}
	})
	if metrics == 0 {
		t.Errorf("%s asks for nothing: %s", where, query)
	}
	for _, label := range grouped {
		if !slices.Contains(labels, label) {
			t.Errorf("%s: nothing has the label %s: %s", where, label, query)
		}
	}
}

func TestTheDashboardAsksForWhatIsExported(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("deploy/grafana.json")
	must(t, err)
	var dashboard struct {
		Panels []struct {
			Type, Title, Description string
			Targets                  []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal(file, &dashboard))
	series, queries := exportedSeries(t), 0
	for _, panel := range dashboard.Panels {
		if panel.Type != "row" && (panel.Title == "" || panel.Description == "" || len(panel.Targets) == 0) {
			t.Errorf("panel %q tells nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			queries++
			wantExported(t, series, panel.Title, target.Expr)
		}
	}
	if queries < 10 {
		t.Errorf("%d queries in the dashboard", queries)
	}
}

// Each alert can fire, and docs/operating.md says what to do then.
func TestTheAlertsAskForWhatIsExported(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("deploy/alerts.yaml")
	must(t, err)
	page, err := os.ReadFile("../../docs/operating.md")
	must(t, err)
	var alerts struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      struct{ Severity string }
				Annotations struct{ Summary string }
			}
		}
	}
	must(t, yaml.Unmarshal(file, &alerts))
	series := exportedSeries(t)
	for _, rule := range alerts.Groups[0].Rules {
		wantExported(t, series, rule.Alert, rule.Expr)
		if !strings.Contains(string(page), "\n### "+rule.Alert+"\n") {
			t.Errorf("docs/operating.md has no section %s", rule.Alert)
		}
		if !slices.Contains([]string{"page", "ticket"}, rule.Labels.Severity) || rule.Annotations.Summary == "" {
			t.Errorf("%s: %+v", rule.Alert, rule)
		}
	}
	for name := range strings.SplitSeq(string(page), "\n### ") {
		name, _, _ = strings.Cut(name, "\n")
		if strings.HasPrefix(name, "Ledger") || strings.HasPrefix(name, "Idem") {
			if !strings.Contains(string(file), "alert: "+name+"\n") {
				t.Errorf("docs/operating.md describes %s, which is no alert", name)
			}
		}
	}
}

// The image has no other program to ask whether it is ready.
func TestHealthcheck(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	addr := strings.TrimPrefix(service.url, "http://")
	check := func() error {
		return healthcheck(t.Context(), func(name string) (string, bool) {
			return map[string]string{"LEDGER_ADDR": addr}[name], name == "LEDGER_ADDR"
		}, io.Discard)
	}
	must(t, check())
	_, err := pool.Exec(t.Context(), "update idem.goose_db_version set version_id = 99 where version_id = 1")
	must(t, err)
	if err := check(); err == nil || !strings.Contains(err.Error(), http.StatusText(http.StatusServiceUnavailable)) {
		t.Errorf("a service that is not ready: %v", err)
	}
	addr = "127.0.0.1:1"
	if err := check(); err == nil {
		t.Error("a service that is not there is ready")
	}
}
