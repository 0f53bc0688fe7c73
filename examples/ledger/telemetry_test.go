package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/idempg/idempg/examples/ledger/api"
	"github.com/idempg/idempg/examples/ledger/jobs"
	"github.com/idempg/idempg/examples/ledger/telemetry"
	"github.com/idempg/idempg/idem"
)

// scrape reads /metrics.
func (c client) scrape() map[string]*dto.MetricFamily {
	c.t.Helper()
	a := want(c.t, c.get("/metrics"), http.StatusOK)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(a.body))
	must(c.t, err)
	return families
}

// value is the sum of the metrics that have the labels, or -1 without any.
func value(families map[string]*dto.MetricFamily, name string, labels map[string]string) float64 {
	sum, found := 0.0, false
	for _, metric := range families[name].GetMetric() {
		has := map[string]string{}
		for _, pair := range metric.GetLabel() {
			has[pair.GetName()] = pair.GetValue()
		}
		matches := func(name, value string) bool { return has[name] == value }
		if all(labels, matches) {
			found = true
			sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	if !found {
		return -1
	}
	return sum
}

func all(labels map[string]string, matches func(name, value string) bool) bool {
	for name, value := range labels {
		if !matches(name, value) {
			return false
		}
	}
	return true
}

func TestMetricsCountWhatHappened(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	release := holdTransfers["between claim and writes"](t, pool)
	key := newKey()
	running := service.background("/v1/transfers", key, transferBody("bank", "alice", 700))
	awaitHeldTransfer(t, pool)
	want(t, service.post("/v1/transfers", key, transferBody("bank", "alice", 700)), http.StatusConflict)
	release()
	want(t, <-running, http.StatusCreated)
	want(t, service.post("/v1/transfers", key, transferBody("bank", "alice", 700)), http.StatusCreated)
	want(t, service.post("/v1/transfers", key, transferBody("bank", "alice", 701)), http.StatusUnprocessableEntity)
	want(t, service.post("/v1/transfers", newKey(), transferBody("alice", "bank", 701)), http.StatusUnprocessableEntity)
	want(t, service.post("/v1/transfers", "", transferBody("bank", "alice", 701)), http.StatusBadRequest)

	families := service.scrape()
	for outcome, count := range map[string]float64{
		"completed": 1, "replayed": 1, "in_flight": 1, "key_reused": 1, "rejected": 1, "unknown": 0, "aborted": 0,
	} {
		labels := map[string]string{"operation": "POST /v1/transfers", "outcome": outcome}
		if got := value(families, "idem_calls_total", labels); got != count {
			t.Errorf("%s: counted %v times, want %v", outcome, got, count)
		}
	}
	for status, count := range map[string]float64{"201": 2, "409": 1, "422": 2, "400": 1} {
		labels := map[string]string{"method": "POST", "route": "/v1/transfers", "status": status}
		if got := value(families, "http_requests_total", labels); got != count {
			t.Errorf("status %s: counted %v times, want %v", status, got, count)
		}
	}
	for name, least := range map[string]float64{
		"http_request_duration_seconds": 6, "idem_call_duration_seconds": 5, "idem_phase_seconds_total": 0,
		"ledger_database_up": 1, "idem_records_bytes": 8192, "pgxpool_max_conns": 16, "ledger_build_info": 1,
		"go_goroutines": 1, "process_open_fds": 1,
	} {
		if got := value(families, name, nil); got < least {
			t.Errorf("%s is %v, want at least %v", name, got, least)
		}
	}
}

// A record that has expired and is not swept shows as backlog.
func TestTheSweepsBacklogIsMeasured(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	service.open("bank", "EUR", "null")
	if got := value(service.scrape(), "idem_sweep_backlog_seconds", nil); got != 0 {
		t.Errorf("backlog of %v s, want none", got)
	}
	_, err := pool.Exec(t.Context(), "update idem.records set created_at = now() - interval '3 hours', expires_at = now() - interval '2 hours'")
	must(t, err)
	if got := value(service.scrape(), "idem_sweep_backlog_seconds", nil); got < 7200 || got > 7200+stateWaitMax.Seconds() {
		t.Errorf("backlog of %v s, want 7200", got)
	}
}

// Jobs that wait show in the queue that they wait in, and for how long.
func TestTheQueuesAreMeasured(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	_, err := pool.Exec(t.Context(), "insert into river.river_queue (name, updated_at) values ('webhooks', now()), ('payouts', now())")
	must(t, err)
	check := func(state string, jobs, lagMin float64) {
		t.Helper()
		families := service.scrape()
		if got := value(families, "river_jobs", map[string]string{"queue": "webhooks", "state": state}); got != jobs {
			t.Errorf("%v jobs are %s, want %v", got, state, jobs)
		}
		if got := value(families, "river_jobs_lag_seconds", map[string]string{"queue": "webhooks"}); got < lagMin || got > lagMin+stateWaitMax.Seconds() {
			t.Errorf("a lag of %v s, want %v", got, lagMin)
		}
		if got := value(families, "river_jobs", map[string]string{"queue": "payouts"}); got != 0 {
			t.Errorf("%v jobs in the other queue", got)
		}
	}
	check("available", 0, 0)
	want(t, service.post("/v1/transfers", newKey(), transferBody("bank", "alice", 700)), http.StatusCreated)
	_, err = pool.Exec(t.Context(), "update river.river_job set scheduled_at = now() - interval '2 hours'")
	must(t, err)
	check("available", 1, 7200)
	_, err = pool.Exec(t.Context(), "update river.river_job set state = 'discarded', finalized_at = now()")
	must(t, err)
	check("discarded", 1, 0)
}

// Goal: no client makes series. Method: ask for what is new each time, and count.
func TestTheNumberOfSeriesIsBounded(t *testing.T) {
	t.Parallel()
	service, _ := newService(t)
	service.open("bank", "EUR", "null")
	service.hasty = true // the document has nothing about paths that are not there
	ask := func() {
		for _, path := range []string{"/v1/accounts/" + newKey(), "/v1/accounts/" + newKey() + "/entries", "/v1/holds/" + newKey() + "/capture", "/v1/" + newKey(), "/" + newKey()} {
			service.get(path)
			service.post(path, newKey(), "{}")
			service.as(newKey()).get(path)
		}
	}
	count := func() (series int) {
		for family := range maps.Values(service.scrape()) {
			series += len(family.GetMetric())
		}
		return series
	}
	ask()
	count() // a scrape is a request, too
	before := count()
	for range 20 {
		ask()
	}
	if after := count(); after != before {
		t.Errorf("%d series, then %d", before, after)
	}
	for _, metric := range service.scrape()["http_requests_total"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "route" && !slices.Contains([]string{"-", "/metrics", "/v1", "/v1/accounts", "/v1/accounts/:id", "/v1/accounts/:id/entries", "/v1/holds/:id/capture"}, label.GetValue()) {
				t.Errorf("route %q", label.GetValue())
			}
		}
	}
}

// Goal: one trace leads from the request to the COMMIT, and holds nothing that
// is not for those who read traces. Method: export to memory.
func TestATraceLeadsFromTheRequestToTheCOMMIT(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	spans := tracetest.NewInMemoryExporter()
	tracing, err := telemetry.NewTracing(t.Context(), spans)
	must(t, err)
	pool, err := connect(t.Context(), url, tracing.QueryTracer())
	must(t, err)
	t.Cleanup(pool.Close)
	metrics := telemetry.NewMetrics(pool)
	store, err := idem.New(pool, idem.Config{Observer: metrics})
	must(t, err)
	keys, _, err := api.ParseKeys(defaultKeys)
	must(t, err)
	service := serveApp(t, api.New(api.Config{
		Pool: pool, Store: store, Keys: keys, Outboxes: newJobs(t, jobs.Config{Pool: pool, Store: store}),
		Metrics: metrics, Tracing: tracing,
	}))
	service.open("bank", "EUR", "null")
	service.open("alice", "EUR", "0")
	must(t, tracing.Provider.ForceFlush(t.Context()))
	spans.Reset()

	const traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	service.header = http.Header{"Traceparent": {"00-" + traceID + "-00f067aa0ba902b7-01"}, "User-Agent": {"agent-s3cret"}}
	key := "key-s3cret"
	want(t, service.post("/v1/transfers?query=s3cret", key, transferBody("bank", "alice", 735_001)), http.StatusCreated)
	want(t, service.post("/v1/transfers?query=s3cret", newKey(), transferBody("bank", "nobody-s3cret", 735_001)), http.StatusNotFound)
	want(t, service.get("/v1/accounts/alice/entries?limit=s3cret"), http.StatusBadRequest)
	_, err = pool.Exec(t.Context(), `
		create function fail() returns trigger language plpgsql as 'begin raise exception ''s3cret''; end';
		create trigger fail before insert on ledger.accounts for each row execute function fail()`)
	must(t, err)
	want(t, service.post("/v1/accounts", newKey(), `{"currency":"EUR"}`), http.StatusInternalServerError)
	service.header.Set("Authorization", "Basic czNjcmV0Og==") // an API key as the user's name
	want(t, service.as("").get("/v1/audit"), http.StatusUnauthorized)
	must(t, tracing.Provider.ForceFlush(t.Context()))

	ended := spans.GetSpans()
	parents, committed := map[string]string{}, ""
	var requests []string
	for _, span := range ended {
		id := span.SpanContext.SpanID().String()
		parents[id] = span.Parent.SpanID().String()
		if span.Parent.IsRemote() {
			requests = append(requests, span.Name)
		}
		for _, attribute := range span.Attributes {
			if attribute.Key == "db.query.text" && attribute.Value.AsString() == "commit" && committed == "" {
				committed = id
			}
		}
		if got := span.SpanContext.TraceID().String(); got != traceID {
			t.Errorf("span %q is of trace %s", span.Name, got)
		}
	}
	if !slices.Equal(requests, []string{"POST /v1/transfers", "POST /v1/transfers", "GET /v1/accounts/:id/entries", "POST /v1/accounts", "GET /v1"}) {
		t.Errorf("spans of requests: %q", requests)
	}
	for id := committed; id != "00f067aa0ba902b7"; id = parents[id] {
		if id == "" {
			t.Fatalf("no COMMIT leads to the caller's span: %v", parents)
		}
	}
	whole, err := json.Marshal(ended)
	must(t, err)
	for _, secret := range []string{"s3cret", "735001", "acme", "czNj"} {
		if strings.Contains(string(whole), secret) {
			t.Errorf("the spans hold %q: %s", secret, regexp.MustCompile(`.{0,200}`+secret+`.{0,100}`).FindString(string(whole)))
		}
	}
}

// Goal: spans are exported by OTLP, the last ones when the service drains, and
// the log names the trace. Method: a collector of the test's own.
func TestDrainingFlushesTheTraces(t *testing.T) {
	t.Parallel()
	var mutex sync.Mutex
	received := map[string]int{} // spans of each trace
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		mutex.Lock()
		defer mutex.Unlock()
		for _, resource := range request.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					received[fmt.Sprintf("%x", span.GetTraceId())]++
				}
			}
		}
	}))
	t.Cleanup(endpoint.Close)
	url, _ := newDatabase(t)
	p := startProcess(t, "DATABASE_URL="+url, "LEDGER_ADDR=127.0.0.1:0",
		"OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint.URL, "OTEL_BSP_SCHEDULE_DELAY=3600000")
	newClient(t, p.url).open("bank", "EUR", "null")
	p.signal(syscall.SIGTERM)
	must(t, p.wait())
	line := p.logLine("request")
	mutex.Lock()
	defer mutex.Unlock()
	if trace, _ := line["trace_id"].(string); received[trace] < 3 {
		t.Errorf("%d spans of trace %q arrived: %v", received[trace], trace, received)
	}
}

// logLine is the first line of the log with a message, once the process has
// ended.
func (p *process) logLine(message string) map[string]any {
	p.t.Helper()
	for text := range strings.Lines(p.stderr.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			p.t.Fatalf("a line is no JSON: %q", text)
		}
		if line["msg"] == message {
			return line
		}
	}
	p.t.Fatalf("no line %q in:\n%s", message, p.stderr.String())
	return nil
}

// The log tells what happened, and neither who may ask nor what was asked.
func TestTheLogHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	url, pool := newDatabase(t)
	p := startProcess(t, "DATABASE_URL="+url, "LEDGER_ADDR=127.0.0.1:0")
	service := newClient(t, p.url)
	service.header = http.Header{"X-Request-Id": {"request-7"}}
	key := newKey()
	service.post("/v1/transfers?query=1", key, transferBody("bank", "nobody", 735_001))
	p.signal(syscall.SIGTERM)
	must(t, p.wait())
	for _, secret := range []string{"acme-demo-key", key, "735001", "query"} {
		if strings.Contains(p.stderr.String(), secret) {
			t.Errorf("the log holds %q:\n%s", secret, p.stderr.String())
		}
	}
	line := p.logLine("request")
	for name, want := range map[string]any{
		"method": "POST", "route": "/v1/transfers", "path": "/v1/transfers", "status": 404.0, "tenant": "acme",
		"outcome": "rejected", "request_id": "request-7", "key_hash": keyHash(t, "acme", key),
	} {
		if line[name] != want {
			t.Errorf("%s is %v, want %v", name, line[name], want)
		}
	}
	if !one[bool](t, pool, "select id = $1::text::uuid from idem.records", line["key_hash"]) {
		t.Error("key_hash is not the id of the record")
	}
	if trace, there := line["trace_id"]; there {
		t.Errorf("trace %v, though tracing is off", trace)
	}
}

// A line for each item of a list names its key, and all have the request's id.
func TestTheLogNamesTheItemsOfAList(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	p := startProcess(t, "DATABASE_URL="+url, "LEDGER_ADDR=127.0.0.1:0")
	service := newClient(t, p.url)
	service.open("bank", "EUR", "null")
	a := service.post("/v1/transfers/bulk", "", `{"transfers":[
		{"key":"k1","from":"bank","to":"nobody","amount":1,"currency":"EUR"},
		{"key":"k2","from":"bank","to":"nobody","amount":2,"currency":"EUR"}]}`)
	want(t, a, http.StatusOK)
	p.signal(syscall.SIGTERM)
	must(t, p.wait())
	var got []string
	for text := range strings.Lines(p.stderr.String()) {
		var line struct {
			Message   string `json:"msg"`
			KeyHash   string `json:"key_hash"`
			Outcome   string `json:"outcome"`
			RequestID string `json:"request_id"`
		}
		must(t, json.Unmarshal([]byte(text), &line))
		if line.Message == "item" {
			got = append(got, line.KeyHash+" "+line.Outcome+" "+line.RequestID)
		}
	}
	id := a.header.Get("X-Request-Id")
	want := []string{keyHash(t, "acme", "k1") + " rejected " + id, keyHash(t, "acme", "k2") + " rejected " + id}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An id of the caller's is kept if it is fit for a log, and belongs to its
// attempt alone.
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	service, pool := newService(t)
	key, body := newKey(), `{"id":"bank","currency":"EUR"}`
	var answers []answer
	for _, test := range []struct {
		id   string
		kept bool
	}{
		{"A-z_0.9", true},
		{strings.Repeat("x", 64), true},
		{"", false},
		{strings.Repeat("x", 65), false},
		{`a" level="ERROR`, false},
		{"ü", false},
	} {
		service.header = http.Header{"X-Request-Id": {test.id}}
		a := want(t, service.post("/v1/accounts", key, body), http.StatusCreated)
		if got := a.header.Get("X-Request-Id"); (got == test.id) != test.kept || got == "" {
			t.Errorf("%q was answered with %q", test.id, got)
		}
		answers = append(answers, a)
	}
	if answers[0].replayed() || !answers[1].replayed() {
		t.Error("the second is no replay of the first")
	}
	if headers := one[string](t, pool, "select headers::text from idem.records"); strings.Contains(strings.ToLower(headers), "request-id") {
		t.Errorf("the id was recorded: %s", headers)
	}
}

// Metrics can be kept from clients.
func TestMetricsAtAnAddressOfTheirOwn(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	p := startProcess(t, "DATABASE_URL="+url, "LEDGER_ADDR=127.0.0.1:0", "LEDGER_METRICS_ADDR=127.0.0.1:0")
	want(t, newClient(t, p.url).get("/metrics"), http.StatusNotFound)
	for line := range p.stdout {
		if _, url, found := strings.Cut(line, "metrics at "); found {
			a := want(t, newClient(t, strings.TrimSuffix(url, "/metrics")).get("/metrics"), http.StatusOK)
			if !strings.Contains(a.body, "idem_sweep_backlog_seconds") {
				t.Errorf("got %s", a.body)
			}
			return
		}
	}
	t.Error("nothing says where the metrics are")
}

func TestMetricsAreServedToThisMachineAlone(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{"127.0.0.1": true, "::1": true, "0.0.0.0": false, "::": false, "10.0.0.1": false} {
		if got := isLoopback(&net.TCPAddr{IP: net.ParseIP(address)}); got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
}
