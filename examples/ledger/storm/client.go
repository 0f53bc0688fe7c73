package storm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idempg/idempg/examples/ledger/api"
)

const (
	apiKey         = "storm-key"
	requestTimeout = 30 * time.Second
	pursuitMax     = time.Minute // to get an answer to an order
	patienceMin    = 5 * time.Millisecond
	patienceMax    = 250 * time.Millisecond
)

// client does what its plan says, and remembers what it was told.
type client struct {
	urls     []string // of the instances
	http     *http.Client
	memory   *memory
	requests *atomic.Int64
}

// carryOut returns when every order of the task has its answer, or was pursued
// for too long.
func (c *client) carryOut(ctx context.Context, t task) {
	orders := make([]*remembered, len(t.orders))
	for _, volley := range t.volleys {
		var sent []*remembered
		var shots sync.WaitGroup
		for _, s := range volley {
			list := c.recall(t, orders, s)
			if len(list) == 0 {
				continue
			}
			sent = append(sent, list...)
			shots.Go(func() { c.send(ctx, list, s) })
		}
		shots.Wait()
		c.pursue(ctx, sent)
	}
}

// recall returns the orders of a shot, and takes up those that are new. An order
// about another one that was refused cannot be sent.
func (c *client) recall(t task, orders []*remembered, s shot) []*remembered {
	var list []*remembered
	for _, i := range s.orders {
		if orders[i] == nil {
			r := &remembered{order: t.orders[i]}
			if r.action.dependent() {
				if r.base = orders[r.of]; r.base == nil || !r.base.carriedOut() {
					continue
				}
			}
			orders[i] = r
			c.memory.add(r)
		}
		list = append(list, orders[i])
	}
	return list
}

// pursue asks until each order has its answer: one instance after the other,
// with growing pauses.
func (c *client) pursue(ctx context.Context, orders []*remembered) {
	ctx, cancel := context.WithTimeout(ctx, pursuitMax)
	defer cancel()
	patience := patienceMin
	for attempt := 0; ; attempt++ {
		open := unique(c.memory.unanswered(orders))
		if len(open) == 0 || !pause(ctx, patience) {
			return
		}
		c.ask(ctx, open, attempt%len(c.urls))
		patience = min(2*patience, patienceMax)
	}
}

// ask sends each order once: those of lists in one list.
func (c *client) ask(ctx context.Context, orders []*remembered, instance int) {
	var list []*remembered
	for _, r := range orders {
		if r.action == inList {
			list = append(list, r)
		} else {
			c.send(ctx, []*remembered{r}, shot{instance: instance})
		}
	}
	if len(list) > 0 {
		c.send(ctx, list, shot{instance: instance})
	}
}

// send sends a request and remembers what comes back, for each of its orders.
func (c *client) send(ctx context.Context, orders []*remembered, s shot) {
	c.requests.Add(1)
	owned := c.memory.areOwned(orders)
	response, err := c.post(ctx, orders, s)
	for i, r := range orders {
		a := answer{kind: connectionLost}
		switch {
		case s.torn || errors.Is(err, errHungUp):
			a.kind = hungUp
		case err == nil && r.action == inList:
			a = response.item(i, r.key)
		case err == nil:
			a = response.answer()
		}
		c.memory.note(r, a, owned[i])
	}
}

// response is an HTTP answer.
type response struct {
	status   int
	replayed bool
	body     []byte
	results  []api.BulkResult // if it is one to a list
}

var errHungUp = errors.New("the client went away")

// post sends orders: one by itself, or a list.
func (c *client) post(ctx context.Context, orders []*remembered, s shot) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if s.hangUp > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, s.hangUp, errHungUp)
		defer cancel()
	}
	path, body := requestOf(orders)
	var content io.Reader = bytes.NewReader(body)
	if s.torn {
		content = io.MultiReader(bytes.NewReader(body[:len(body)/2]), tear{})
	}
	// A reader of an unknown type: net/http would send it again by itself where
	// a connection is lost, and here every request is counted.
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.urls[s.instance]+path, io.NopCloser(content))
	if err != nil {
		panic(err) // the URL is well-formed
	}
	request.ContentLength = int64(len(body))
	request.Header.Set("Content-Type", "application/json")
	if orders[0].action != inList { // else each has its key in the list
		request.Header.Set("Idempotency-Key", orders[0].key)
	}
	return c.do(request)
}

func (c *client) do(request *http.Request) (response, error) {
	request.Header.Set("Authorization", "Bearer "+apiKey)
	reply, err := c.http.Do(request)
	if err != nil {
		return response{}, errors.Join(err, context.Cause(request.Context()))
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		return response{}, errors.Join(err, context.Cause(request.Context()))
	}
	r := response{status: reply.StatusCode, replayed: reply.Header.Get("Idempotency-Replayed") == "true", body: body}
	var list struct{ Results []api.BulkResult }
	if r.status == http.StatusOK && json.Unmarshal(body, &list) == nil {
		r.results = list.Results
	}
	return r, nil
}

// tear is a body that breaks off.
type tear struct{}

func (tear) Read([]byte) (int, error) { return 0, errHungUp }

// item is the answer to one order of a list. A list that was refused as a whole
// answers all of them.
func (r response) item(i int, key string) answer {
	if r.status != http.StatusOK {
		return r.answer()
	}
	if i >= len(r.results) || r.results[i].Key == nil || *r.results[i].Key != key {
		return answer{unexpected, r.status, string(r.body)}
	}
	result := r.results[i]
	return response{status: result.Status, replayed: result.Replayed, body: result.Body}.answer()
}

// answer says what the response means to the client.
func (r response) answer() answer {
	return answer{r.kind(), r.status, string(r.body)}
}

func (r response) kind() kind {
	var problem struct{ Type string }
	_ = json.Unmarshal(r.body, &problem) // a problem has a type
	switch {
	case strings.HasSuffix(problem.Type, "#idempotency-key-reused"):
		return otherPayload
	case strings.HasSuffix(problem.Type, "#request-in-flight"):
		return inFlight
	case r.status == http.StatusServiceUnavailable:
		return unavailable
	case r.replayed:
		return replayed
	case r.status == http.StatusCreated, r.status == http.StatusOK:
		return executed
	case strings.Contains(problem.Type, "#") && (r.status == http.StatusNotFound || r.status == http.StatusUnprocessableEntity):
		return rejected
	}
	return unexpected
}

// unique leaves out what is there before: a list may hold an order twice.
func unique(orders []*remembered) []*remembered {
	seen := map[*remembered]bool{}
	var first []*remembered
	for _, r := range orders {
		if !seen[r] {
			seen[r] = true
			first = append(first, r)
		}
	}
	return first
}

// pause returns false when ctx ends before the time is over.
func pause(ctx context.Context, wait time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

// get reads what the service says at path.
func (c *client) get(ctx context.Context, path string, value any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.urls[0]+path, nil)
	if err != nil {
		return err
	}
	r, err := c.do(request)
	if err != nil {
		return err
	}
	if r.status != http.StatusOK {
		return fmt.Errorf("GET %s: %d %s", path, r.status, r.body)
	}
	return json.Unmarshal(r.body, value)
}
