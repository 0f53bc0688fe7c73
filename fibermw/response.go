package fibermw

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/idempg/idempg/idem"
)

// cacheLookupHeader marks replays for clients of middlewares that cache in Redis.
const cacheLookupHeader = "X-Cache-Lookup"

// errNotRecordable ends a unit whose answer does not pass through Fiber's response.
var errNotRecordable = errors.New("fibermw: the handler hijacked the connection or answered with fasthttp's TimeoutError, which cannot be recorded: the unit was aborted")

// headerNames is a set of header names in lower case. One that ends with *
// stands for all that begin with the rest.
type headerNames []string

var neverStored = headerNames{
	// hop-by-hop and framing: they belong to one message
	"connection", "keep-alive", "proxy-*", "te", "trailer", "transfer-encoding", "upgrade", "content-length", "date",
	// CORS: they belong to one origin
	"access-control-*",
	// request ids, traces, rate limits: they belong to one attempt
	"x-request-id", "request-id", "x-correlation-id", "correlation-id", "x-trace-id",
	"traceparent", "tracestate", "traceresponse", "server-timing",
	"ratelimit*", "x-ratelimit*", "x-rate-limit*",
	// another cache's word on another request
	"x-cache-lookup",
}

func (cfg Config) neverStored() headerNames {
	names := slices.Clone(neverStored)
	for _, name := range append([]string{cfg.ReplayedHeader}, cfg.HeadersNeverStored...) {
		names = append(names, strings.ToLower(name))
	}
	if !cfg.StoreSetCookie {
		names = append(names, "set-cookie")
	}
	return names
}

func (n headerNames) has(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(n, func(pattern string) bool {
		prefix, found := strings.CutSuffix(pattern, "*")
		return name == pattern || found && strings.HasPrefix(name, prefix)
	})
}

// capture makes the response to record from what was rendered. It is decided
// here, before COMMIT, whether that can be recorded at all.
func (m *middleware) capture(c *fiber.Ctx, before *snapshot) (idem.Response, error) {
	if c.Context().Hijacked() || c.Context().LastTimeoutErrorResponse() != nil {
		c.Context().Hijack(nil)
		c.Context().HijackSetNoResponse(false)
		return idem.Response{}, errNotRecordable
	}
	response := c.Response()
	if err := readStream(response, m.Store.Config().BodyBytesMax); err != nil {
		return idem.Response{}, err
	}
	response.Header.Del(m.ReplayedHeader) // a first answer never has it
	status := response.StatusCode()
	if status == fiber.StatusNoContent || status == fiber.StatusNotModified {
		response.ResetBody()
		response.Header.Del(fiber.HeaderContentType)
	}
	return idem.Response{
		Status: status,
		Header: m.changes(headersOf(&before.response.Header), headersOf(&response.Header)),
		Body:   bytes.Clone(response.Body()),
	}, nil
}

// readStream replaces a body stream by what it yields, of which it reads no
// more than may be recorded.
func readStream(response *fasthttp.Response, bytesMax int) error {
	if !response.IsBodyStream() {
		return nil
	}
	stream, size := response.BodyStream(), response.Header.ContentLength()
	if size >= 0 {
		stream = io.LimitReader(stream, int64(size)) // all that fasthttp would send
	}
	body, err := io.ReadAll(io.LimitReader(stream, int64(bytesMax)+1))
	_ = response.CloseBodyStream() // it was only read
	switch {
	case err == nil && len(body) > bytesMax:
		return &idem.ResponseTooLargeError{Field: "Body", Bytes: len(body), BytesMax: bytesMax}
	case err == nil && len(body) < size:
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("fibermw: the body stream failed after %d bytes: the unit was aborted: %w", len(body), err)
	}
	response.SetBodyRaw(body)
	return nil
}

// headersOf copies the headers that were set, without the Content-Type that
// fasthttp adds by itself.
func headersOf(header *fasthttp.ResponseHeader) http.Header {
	var set fasthttp.ResponseHeader
	header.CopyTo(&set)
	set.SetNoDefaultContentType(true)
	headers := make(http.Header)
	set.VisitAll(func(key, value []byte) {
		headers[string(key)] = append(headers[string(key)], string(value))
	})
	return headers
}

// changes are the headers that the handler changed, with all their values, and
// those that it removed, without any. Of cookies, which are set one by one, it
// is those that are new.
func (m *middleware) changes(before, after http.Header) http.Header {
	changed := make(http.Header)
	for name, values := range after {
		if !slices.Equal(values, before[name]) && !m.neverStored.has(name) {
			changed[name] = values
		}
	}
	for name := range before {
		if _, there := after[name]; !there && !m.neverStored.has(name) {
			changed[name] = []string{}
		}
	}
	if cookies, there := changed[fiber.HeaderSetCookie]; there {
		changed[fiber.HeaderSetCookie] = slices.DeleteFunc(cookies, func(cookie string) bool {
			return slices.Contains(before[fiber.HeaderSetCookie], cookie)
		})
	}
	return changed
}

// answer writes a result that was not rendered by this request: most often a
// replay.
func (m *middleware) answer(c *fiber.Ctx, result idem.Result) {
	header := &c.Response().Header
	for name, values := range result.Header {
		if !strings.EqualFold(name, fiber.HeaderSetCookie) {
			header.Del(name)
		}
		for _, value := range values {
			header.Add(name, value)
		}
	}
	c.Status(result.Status)
	c.Response().SetBody(result.Body)
	if !result.Replayed {
		return
	}
	header.Set(m.ReplayedHeader, "true")
	if m.CacheLookupHeader {
		header.Set(cacheLookupHeader, "HIT")
	}
}
