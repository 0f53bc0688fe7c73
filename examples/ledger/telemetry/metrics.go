// Package telemetry is what an operator sees of the service: metrics, traces
// and the log. None of them holds an idempotency key, an API key, a body or a
// query string.
package telemetry

import (
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/IBM/pgxpoolprometheus"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/idempg/idempg/idem"
)

// latencies are the bounds of all histograms of a request's time: from half a
// millisecond, below which a transaction does not get, to the sixteen seconds
// at which requests are given up.
var latencies = prometheus.ExponentialBuckets(0.0005, 2, 16)

// outcomes are all that a call can have. An operation begins with a zero for
// each: a counter that appears with its first unknown outcome would not be seen
// to have risen.
var outcomes = []idem.Outcome{
	idem.OutcomeCompleted, idem.OutcomeRejected, idem.OutcomeReplayed, idem.OutcomeInFlight, idem.OutcomeKeyReused,
	idem.OutcomeInvalid, idem.OutcomeAborted, idem.OutcomeFailed, idem.OutcomeUnknown,
}

// Metrics counts what the service does, in the form of Prometheus. It is the
// idem.Observer of the service's Store. No label comes from a client, so the
// number of series is bounded by the code.
type Metrics struct {
	registry *prometheus.Registry

	requests        *prometheus.CounterVec
	requestDuration *prometheus.HistogramVec

	calls        *prometheus.CounterVec
	callDuration *prometheus.HistogramVec
	reruns       *prometheus.CounterVec
	unsettled    *prometheus.CounterVec
	phases       *prometheus.CounterVec

	swept         prometheus.Counter
	sweepFailures prometheus.Counter
	sweepDuration prometheus.Histogram
	sweepSuccess  prometheus.Gauge
}

// NewMetrics makes the metrics of a service on pool. It asks the database only
// when it is scraped.
func NewMetrics(pool *pgxpool.Pool) *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		pgxpoolprometheus.NewCollector(pool, nil), newDatabaseCollector(pool), buildInfo(),
	)
	factory := promauto.With(registry)
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histograms := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return factory.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: latencies}, labels)
	}
	return &Metrics{
		registry: registry,

		requests: counters("http_requests_total",
			"Requests that were answered. route is the pattern, - when none matched.", "method", "route", "status"),
		requestDuration: histograms("http_request_duration_seconds",
			"Time from the request to its answer.", "method", "route"),

		calls: counters("idem_calls_total",
			"Calls with an idempotency key, by how they ended.", "operation", "outcome"),
		callDuration: histograms("idem_call_duration_seconds",
			"Time of a call, from claim to COMMIT.", "operation", "outcome"),
		reruns: counters("idem_reruns_total",
			"Mutations run again after a serialization failure, a deadlock or a lost COMMIT.", "operation"),
		unsettled: counters("idem_unsettled_commits_total",
			"Calls with a COMMIT that was not answered, so that the database was asked how it ended.", "operation"),
		phases: counters("idem_phase_seconds_total",
			"Where the time of calls went: claim (waiting included), mutation, or commit.", "operation", "phase"),

		swept: factory.NewCounter(prometheus.CounterOpts{
			Name: "idem_swept_records_total", Help: "Expired records that this process removed.",
		}),
		sweepFailures: factory.NewCounter(prometheus.CounterOpts{
			Name: "idem_sweep_failures_total", Help: "Sweeps by this process that ended with an error.",
		}),
		sweepDuration: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "idem_sweep_duration_seconds", Help: "Time of a sweep by this process.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 8),
		}),
		sweepSuccess: factory.NewGauge(prometheus.GaugeOpts{
			Name: "idem_sweep_last_success_timestamp_seconds",
			Help: "When a sweep by this process last succeeded, in Unix time; 0 if none has.",
		}),
	}
}

// Handler answers scrapes. What cannot be collected, because the database is
// away, is left out and logged: the rest is needed most then.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(slog.Default().Handler(), slog.LevelWarn),
	})
}

// ObserveRequest counts an answered request and the calls with a key that it
// made. route is the pattern of its route, never the path: clients choose paths.
func (m *Metrics) ObserveRequest(method, route string, status int, duration time.Duration, calls []idem.Call) {
	for _, call := range calls {
		m.countCall(method+" "+route, call)
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.requestDuration.WithLabelValues(method, route).Observe(duration.Seconds())
}

// ObserveSweep counts a sweep that took duration and ended with err.
func (m *Metrics) ObserveSweep(result idem.SweepResult, duration time.Duration, err error) {
	m.swept.Add(float64(result.Records)) // also of a sweep that failed half-way
	m.sweepDuration.Observe(duration.Seconds())
	if err != nil {
		m.sweepFailures.Inc()
		return
	}
	m.sweepSuccess.SetToCurrentTime()
}

// version is set by the linker, for an image is built without the repository.
var version string

// buildInfo is the constant 1 with what was built in its labels.
func buildInfo() prometheus.Collector {
	labels := prometheus.Labels{"version": Version(), "goversion": "unknown"}
	if info, ok := debug.ReadBuildInfo(); ok {
		labels["goversion"] = info.GoVersion
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ledger_build_info", Help: "1, with the version of the service in the labels.", ConstLabels: labels,
	}, func() float64 { return 1 })
}

// Version names what was built: what the linker was told, else the commit, else
// "unknown".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value
			}
		}
	}
	return "unknown"
}
