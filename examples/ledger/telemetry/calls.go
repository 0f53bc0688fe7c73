package telemetry

import (
	"context"
	"slices"
	"sync"

	"github.com/idempg/idempg/idem"
)

// ObserveCall implements idem.Observer. A call of a request is noted, and
// counted with the request, whose route bounds the names of operations; one of
// a job is counted at once, under its own.
func (m *Metrics) ObserveCall(ctx context.Context, call idem.Call) {
	if r := requestOf(ctx); r != nil {
		r.note(call)
		return
	}
	m.countCall(call.Operation, call)
}

func (m *Metrics) countCall(operation string, call idem.Call) {
	for _, outcome := range outcomes {
		m.calls.WithLabelValues(operation, string(outcome))
	}
	m.calls.WithLabelValues(operation, string(call.Outcome)).Inc()
	m.callDuration.WithLabelValues(operation, string(call.Outcome)).Observe(call.Total.Seconds())
	m.reruns.WithLabelValues(operation).Add(float64(max(0, call.Attempts-1)))
	unsettled := m.unsettled.WithLabelValues(operation)
	if call.Unsettled {
		unsettled.Inc()
	}
	m.phases.WithLabelValues(operation, "claim").Add(call.Claim.Seconds())
	m.phases.WithLabelValues(operation, "mutation").Add(call.Mutation.Seconds())
	m.phases.WithLabelValues(operation, "commit").Add(call.Commit.Seconds())
}

// Request is what the log knows of a request while it runs: its id, and the
// calls with a key that it made.
type Request struct {
	ID string

	mutex sync.Mutex
	calls []idem.Call
}

type requestKey struct{}

// WithRequest returns a context under which log lines carry the id, and calls
// with a key are noted.
func WithRequest(ctx context.Context, id string) (context.Context, *Request) {
	r := &Request{ID: id}
	return context.WithValue(ctx, requestKey{}, r), r
}

func requestOf(ctx context.Context) *Request {
	r, _ := ctx.Value(requestKey{}).(*Request)
	return r
}

func (r *Request) note(call idem.Call) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.calls = append(r.calls, call)
}

// Calls are the calls with a key that the request has made: one, or one for
// each item of a list.
func (r *Request) Calls() []idem.Call {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.Clone(r.calls)
}
