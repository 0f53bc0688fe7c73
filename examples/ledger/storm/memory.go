package storm

import (
	"slices"
	"sync"
)

// kind is what an answer is, or why there is none.
type kind int

const (
	executed     kind = iota // the first answer
	replayed                 // the answer that was given before
	refused                  // a refusal, given for the first time
	otherPayload             // the key is another request's
	inFlight                 // the key is at work
	unavailable              // 503
	connectionLost
	hungUp // by the client itself
	unexpected
	kinds // how many there are
)

// final tells whether the client need not ask again.
func (k kind) final() bool { return k <= otherPayload }

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
	asked  int64
	counts [kinds]int64
}

// remembered is what a client knows about an order.
type remembered struct {
	order
	answers []answer // the final ones, each different one once
	odd     []answer // those that nobody expects, likewise
	firsts  int      // how many answers said that they were the first
}

// add takes up the orders of a task.
func (m *memory) add(orders []order) []*remembered {
	added := make([]*remembered, len(orders))
	for i, o := range orders {
		added[i] = &remembered{order: o}
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.orders = append(m.orders, added...)
	return added
}

// note remembers an answer to an order.
func (m *memory) note(r *remembered, a answer) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.asked++
	m.counts[a.kind]++
	switch {
	case a.kind == unexpected:
		r.odd = addDifferent(r.odd, a)
	case a.kind.final():
		r.answers = addDifferent(r.answers, a)
	}
	if a.kind == executed || a.kind == refused {
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
