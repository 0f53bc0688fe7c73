package idemtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
)

// HTTP makes an App.Send for an app that speaks HTTP. do sends a request and
// returns the response: the Do of an http.Client, or the Test method of a Fiber
// app:
//
//	func(r *http.Request) (*http.Response, error) { return app.Test(r, -1) }
//
// newRequest makes a new request for each try; http.NewRequest suits clients,
// httptest.NewRequest suits handlers and Fiber. Its context is replaced, and the
// header Idempotency-Key is set if newRequest did not.
func HTTP(
	do func(*http.Request) (*http.Response, error), newRequest func(Request) *http.Request,
) func(context.Context, Request) (Answer, error) {
	return func(ctx context.Context, request Request) (Answer, error) {
		r := newRequest(request).WithContext(ctx)
		if r.Header.Get("Idempotency-Key") == "" {
			r.Header.Set("Idempotency-Key", request.Key)
		}
		response, err := do(r)
		if err != nil {
			return Answer{}, err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		return Answer{Status: response.StatusCode, Header: response.Header, Body: body}, err
	}
}

// Handler is [HTTP] for an http.Handler, which is called without a network. A
// panic of h is a lost connection, as it is for a client of net/http.
func Handler(h http.Handler, newRequest func(Request) *http.Request) func(context.Context, Request) (Answer, error) {
	return HTTP(handler{h}.do, newRequest)
}

type handler struct{ http.Handler }

func (h handler) do(r *http.Request) (response *http.Response, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the handler panicked: %v", cause)
		}
	}()
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}
