package telemetry

import (
	"context"
	"log/slog"
	"os"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/term"
)

// NewLog writes a JSON object a line to file, or text if that is a terminal. A
// line that belongs to a request has its request_id, and the trace_id when the
// request is traced.
func NewLog(file *os.File) *slog.Logger {
	if term.IsTerminal(int(file.Fd())) {
		return slog.New(contextHandler{slog.NewTextHandler(file, nil)})
	}
	return slog.New(contextHandler{slog.NewJSONHandler(file, nil)})
}

// contextHandler adds what the context knows.
type contextHandler struct{ slog.Handler }

func (h contextHandler) Handle(ctx context.Context, record slog.Record) error {
	if r := requestOf(ctx); r != nil {
		record.AddAttrs(slog.String("request_id", r.ID))
	}
	if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
		record.AddAttrs(slog.String("trace_id", span.TraceID().String()))
	}
	return h.Handler.Handle(ctx, record)
}

func (h contextHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return contextHandler{h.Handler.WithAttrs(attrs)}
}

func (h contextHandler) WithGroup(name string) slog.Handler {
	return contextHandler{h.Handler.WithGroup(name)}
}
