package telemetry

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const flushTimeout = 5 * time.Second

// exportedAttributes are all that leaves the process about a span. The
// instrumentations record more: URLs with their queries, user names of Basic
// credentials, client addresses.
var exportedAttributes = []attribute.Key{
	"http.method", "http.route", "http.status_code",
	"db.system.name", "db.namespace", "db.operation.name", "db.query.text", "server.address", "server.port",
	"pgx.operation.type", "pgx.rows_affected", "pgx.sql_state",
}

// Tracing makes spans and exports them. nil is off.
type Tracing struct {
	Provider *sdktrace.TracerProvider
}

// StartTracing exports spans by OTLP over HTTP. The exporter and the SDK read the
// standard OTEL_* variables, which say where to, among others.
func StartTracing(ctx context.Context) (*Tracing, error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { slog.WarnContext(ctx, "tracing", "error", err) }))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	return NewTracing(ctx, exporter)
}

// NewTracing gives spans to exporter, in batches.
func NewTracing(ctx context.Context, exporter sdktrace.SpanExporter) (*Tracing, error) {
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "ledger"), attribute.String("service.version", Version())),
		resource.WithTelemetrySDK(),
		resource.WithFromEnv()) // has the last word
	if err != nil {
		return nil, err
	}
	return &Tracing{sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithBatcher(redactor{exporter}))}, nil
}

// QueryTracer makes a span of each statement, without its parameters. It is nil
// when tracing is off.
func (t *Tracing) QueryTracer() pgx.QueryTracer {
	if t == nil {
		return nil
	}
	return otelpgx.NewTracer(otelpgx.WithTracerProvider(t.Provider))
}

// Flush exports what is left, within flushTimeout, and ends tracing.
func (t *Tracing) Flush() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	return t.Provider.Shutdown(ctx)
}

// redactor exports spans without what a client wrote. It stands at the exit, so
// that it holds for every instrumentation and for their next versions.
type redactor struct{ sdktrace.SpanExporter }

func (r redactor) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	redacted := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, span := range spans {
		redacted[i] = redactedSpan{span}
	}
	return r.SpanExporter.ExportSpans(ctx, redacted)
}

type redactedSpan struct{ sdktrace.ReadOnlySpan }

func (s redactedSpan) Attributes() []attribute.KeyValue {
	return slices.DeleteFunc(slices.Clone(s.ReadOnlySpan.Attributes()), func(a attribute.KeyValue) bool {
		return !slices.Contains(exportedAttributes, a.Key)
	})
}

// Events are left out: they quote errors, and errors quote values.
func (s redactedSpan) Events() []sdktrace.Event { return nil }

// Status tells that it failed. The log tells why, under the trace_id.
func (s redactedSpan) Status() sdktrace.Status {
	return sdktrace.Status{Code: s.ReadOnlySpan.Status().Code}
}
