package storm

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// kind is what an answer is, or why there is none.
type kind int

const (
	executed     kind = iota // the first answer
	replayed                 // the answer that was given before
	rejected                 // a refusal, given for the first time
	otherPayload             // the key is another request's, or at work for one
	inFlight                 // the key is at work for this request
	unavailable              // 503
	connectionLost
	hungUp // by the client itself
	unexpected
	kinds // how many there are
)

// own tells whether the answer is that of the order: the client need not ask
// again, and the key is the order's.
func (k kind) own() bool { return k <= rejected }

// answer is what came back for an order.
type answer struct {
	kind   kind
	status int
	body   string
}

// memory is every order of every client, with its answers.
type memory struct {
	mutex  sync.Mutex
	orders []*remembered
	owned  map[string]bool // the keys that an order is known to have
	asked  int64
	counts [kinds]int64
}

// remembered is what a client knows about an order.
type remembered struct {
	order
	base    *remembered // the order that it is about, if it is dependent
	answers []answer    // the final ones, each different one once
	odd     []answer    // those that nobody expects, likewise
	firsts  int         // how many answers said that they were the first
}

// carriedOut tells whether the client was told that the order was.
func (r *remembered) carriedOut() bool {
	return len(r.answers) > 0 && r.answers[0].status/100 == 2
}

// told is the answer of an order that was carried out.
func (r *remembered) told() (told struct {
	ID         uuid.UUID
	TransferID uuid.UUID `json:"transfer_id"`
},
) {
	_ = json.Unmarshal([]byte(r.answers[0].body), &told) // what is not there is found out by the audit
	return told
}

// add takes up an order that is about to be sent.
func (m *memory) add(r *remembered) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.orders = append(m.orders, r)
}

// areOwned tells of each order whether an order is known to have its key.
func (m *memory) areOwned(orders []*remembered) []bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	owned := make([]bool, len(orders))
	for i, r := range orders {
		owned[i] = m.owned[r.key]
	}
	return owned
}

// note remembers an answer to an order. That the key is another request's is
// final if the key was owned when the client asked. Before, it may be at work
// for that request and still come free, if that one fails.
func (m *memory) note(r *remembered, a answer, wasOwned bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.asked++
	m.counts[a.kind]++
	switch {
	case a.kind == unexpected:
		r.odd = addDifferent(r.odd, a)
	case a.kind.own():
		m.owned[r.key] = true
		r.answers = addDifferent(r.answers, a)
	case a.kind == otherPayload && wasOwned:
		r.answers = addDifferent(r.answers, a)
	}
	if a.kind == executed || a.kind == rejected {
		r.firsts++
	}
}

func addDifferent(answers []answer, a answer) []answer {
	same := func(b answer) bool { return a.status == b.status && a.body == b.body }
	if slices.ContainsFunc(answers, same) {
		return answers
	}
	return append(answers, a)
}

// unanswered are those of the orders that have no final answer yet.
func (m *memory) unanswered(orders []*remembered) []*remembered {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var open []*remembered
	for _, r := range orders {
		if len(r.answers) == 0 {
			open = append(open, r)
		}
	}
	return open
}

// total returns how many answers of any kind there were.
func (m *memory) total() (asked int64, counts [kinds]int64) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.asked, m.counts
}

// all returns every order. Nobody may be asking for one meanwhile.
func (m *memory) all() []*remembered {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return slices.Clone(m.orders)
}
