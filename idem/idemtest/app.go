package idemtest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem"
)

// App is the app to prove, as its clients and its auditors see it.
type App struct {
	// Store is the one that the app's handler calls. Nobody else may use it
	// while Run does. Required.
	Store *idem.Store

	// Send sends one request and returns the answer, whatever its status, or an
	// error when there was none. It must send the same for the same Request,
	// except for what an honest client renews between two tries, such as a token.
	// It is called from many goroutines. When ctx ends, the client hangs up: Send
	// may return early. [HTTP] makes one. Required.
	Send func(ctx context.Context, request Request) (Answer, error)

	// Effect measures what the requests change, as others see it: a count of
	// rows, a sum, a balance. Each successful request with a new key must change
	// it by the same amount. It must not need a connection that the app may hold.
	// [Query] makes one. Required.
	Effect func(ctx context.Context) (int64, error)

	// Refusals says that Send knows the variant [Refused]. Defaults to false:
	// only requests that succeed are sent.
	Refusals bool

	// VolatileHeaders name response headers, besides the usual ones, that may
	// differ between an answer and its replay. Defaults to none.
	VolatileHeaders []string

	// Burst is how many requests are sent at once. Defaults to 20.
	Burst int

	// Timeout bounds each request, and each wait for the key to become free.
	// Defaults to 20 seconds.
	Timeout time.Duration
}

// Request says what Send has to send.
type Request struct {
	// Key is the idempotency key, and so the same for all tries. What must be
	// unique in a payload, such as an order number, can be made from it.
	Key string

	// Variant chooses the payload.
	Variant Variant
}

// Variant is one of the payloads that a test needs.
type Variant int

const (
	// Original is a request that succeeds.
	Original Variant = iota

	// Other asks the same operation for something else than Original, such as
	// another amount. It must succeed under a key of its own.
	Other

	// Refused is a request that the app refuses for good, with a 4xx that is
	// recorded and is not 409. It changes nothing. Only sent if App.Refusals.
	Refused
)

// String returns the name of the constant.
func (v Variant) String() string {
	return []string{"Original", "Other", "Refused"}[v]
}

// Answer is what a client gets.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// succeeded reports whether a client takes the request for done.
func (a Answer) succeeded() bool { return a.Status >= 200 && a.Status < 400 }

// final reports whether a client stops trying.
func (a Answer) final() bool {
	switch a.Status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return a.Status < 500
}

// String is for messages: the status and the beginning of the body.
func (a Answer) String() string {
	const most = 200
	if len(a.Body) > most {
		return fmt.Sprintf("%d %q...", a.Status, a.Body[:most])
	}
	return fmt.Sprintf("%d %q", a.Status, a.Body)
}

// volatileHeaders belong to one message or one attempt, in lower case. One that
// ends with - stands for all that begin so.
var volatileHeaders = []string{
	"connection", "keep-alive", "proxy-", "te", "trailer", "transfer-encoding", "upgrade", "content-length", "date",
	"access-control-", "x-request-id", "request-id", "x-correlation-id", "correlation-id", "x-trace-id",
	"traceparent", "tracestate", "traceresponse", "server-timing", "ratelimit-", "x-ratelimit-", "x-rate-limit-",
	"x-cache-lookup", "set-cookie", "idempotency-replayed", "retry-after", "age", "server",
}

// difference says in words where b is not the same answer as a, or "".
func (app *App) difference(a, b Answer) string {
	if a.Status != b.Status {
		return fmt.Sprintf("the status was %d and is now %d", a.Status, b.Status)
	}
	if !bytes.Equal(a.Body, b.Body) {
		return fmt.Sprintf("the body was %q and is now %q", a.Body, b.Body)
	}
	names := map[string]bool{}
	for _, header := range []http.Header{a.Header, b.Header} {
		for name := range header {
			names[name] = true
		}
	}
	for name := range names {
		if was, is := a.Header.Values(name), b.Header.Values(name); !slices.Equal(was, is) && !app.volatile(name) {
			return fmt.Sprintf("the header %s was %q and is now %q", name, was, is)
		}
	}
	return ""
}

func (app *App) volatile(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(app.VolatileHeaders, func(v string) bool { return strings.EqualFold(v, name) }) ||
		slices.ContainsFunc(volatileHeaders, func(v string) bool {
			return v == name || strings.HasSuffix(v, "-") && strings.HasPrefix(name, v)
		})
}

// Query makes an App.Effect from a statement that returns one integer.
func Query(pool *pgxpool.Pool, sql string, arguments ...any) func(context.Context) (int64, error) {
	return func(ctx context.Context) (effect int64, err error) {
		err = pool.QueryRow(ctx, sql, arguments...).Scan(&effect)
		return effect, err
	}
}
