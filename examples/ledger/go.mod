module github.com/idempg/idempg/examples/ledger

go 1.26.0

require (
	// The statistics of a pgx pool as metrics: released this year.
	github.com/IBM/pgxpoolprometheus v1.1.3
	// Parses the queries of the dashboard and the alerts in tests: released this year, few dependencies.
	github.com/VictoriaMetrics/metricsql v0.87.3
	// The commands of the DevTools protocol that chromedp has no action for: dark mode, and no script. Tests only.
	github.com/chromedp/cdproto v0.160.1
	// Drives a browser, for the tests of the page: released this month, needs no driver program. Tests only.
	github.com/chromedp/chromedp v0.23.1
	// Spans of pgx, with its batches: released this year.
	github.com/exaring/otelpgx v0.13.0
	// Spans of Fiber: the Fiber team's own, last released in 2024. It records more than may leave the process, which
	// package telemetry sees to.
	github.com/gofiber/contrib/otelfiber/v2 v2.1.1
	github.com/gofiber/fiber/v2 v2.52.15
	github.com/google/uuid v1.6.0
	github.com/idempg/idempg v0.0.0
	github.com/jackc/pgx/v5 v5.13.0
	// The OpenAPI document, and the check of every answer to a test with it: released this month. Tests only.
	github.com/pb33f/libopenapi v0.42.4
	github.com/pb33f/libopenapi-validator v0.16.2
	github.com/pressly/goose/v3 v3.30.1
	// Metrics, as nearly everybody collects them.
	github.com/prometheus/client_golang v1.25.0
	// The next two read metrics in tests.
	github.com/prometheus/client_model v0.6.3
	github.com/prometheus/common v0.74.0
	// Jobs in Postgres, written in the transaction they follow from: released monthly, made for pgx.
	github.com/riverqueue/river v0.51.2
	github.com/riverqueue/river/riverdriver/riverpgxv5 v0.51.2
	github.com/riverqueue/river/rivertype v0.51.2
	// The bar of the command storm on a terminal: released this year.
	github.com/schollz/progressbar/v3 v3.19.1
	// Signatures of Standard Webhooks, by the authors of the specification: tagged this year, no dependencies.
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1
	// Traces, and their export by OTLP.
	go.opentelemetry.io/otel v1.47.0
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp v1.47.0
	go.opentelemetry.io/otel/sdk v1.47.0
	go.opentelemetry.io/otel/trace v1.47.0
	// What exported traces are made of, in tests, with protobuf below.
	go.opentelemetry.io/proto/otlp v1.11.1
	// YAML, in tests.
	go.yaml.in/yaml/v3 v3.0.6
	// Whether an output is a terminal; the bar needs it anyway.
	golang.org/x/term v0.48.0
	// Numbers as 1,234 in the report of the command storm, and how many decimals a currency has; pgx needs it anyway.
	golang.org/x/text v0.44.0
	google.golang.org/protobuf v1.36.12
	// Random histories that shrink to the shortest one that fails: released this year, no dependencies. Tests only.
	pgregory.net/rapid v1.3.0
)

require (
	github.com/VictoriaMetrics/metrics v1.35.3 // indirect
	github.com/andybalholm/brotli v1.3.0 // indirect
	github.com/bahlo/generic-list-go v0.2.0 // indirect
	github.com/basgys/goxml2json v1.1.1-0.20231018121955-e66ee54ceaad // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/buger/jsonparser v1.6.1 // indirect
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/go-openapi/jsonpointer v1.0.2 // indirect
	github.com/gowebpki/jcs v1.0.2 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.31.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	github.com/mattn/go-colorable v0.1.13 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/mattn/go-runewidth v0.0.16 // indirect
	github.com/mfridman/interpolate v0.2.0 // indirect
	github.com/mitchellh/colorstring v0.0.0-20190213212951-d06e56a500db // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/pandatix/go-abnf v0.5.5 // indirect
	github.com/pb33f/go-yaml v0.1.1 // indirect
	github.com/pb33f/jsonpath v0.8.5 // indirect
	github.com/pb33f/jsonschema/v6 v6.0.3 // indirect
	github.com/pb33f/ordered-map/v2 v2.3.2 // indirect
	github.com/prometheus/procfs v0.23.0 // indirect
	github.com/riverqueue/river/riverdriver v0.51.2 // indirect
	github.com/riverqueue/river/rivershared v0.51.2 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	github.com/tidwall/gjson v1.20.0 // indirect
	github.com/tidwall/match v1.2.0 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasthttp v1.51.0 // indirect
	github.com/valyala/fastrand v1.1.0 // indirect
	github.com/valyala/histogram v1.2.0 // indirect
	github.com/valyala/tcplisten v1.0.0 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/contrib v1.20.0 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace v1.47.0 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/metric v1.47.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20261110000943-09e21b237f2c // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c // indirect
	google.golang.org/grpc v1.85.0 // indirect
)

replace github.com/idempg/idempg => ../..
