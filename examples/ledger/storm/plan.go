package storm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	bank         = "bank" // pays without end
	nobody       = "nobody"
	currency     = "EUR"
	amountMax    = 400     // of a transfer between customers, who often have less
	fundingMax   = 1000    // of a transfer from the bank
	unpayable    = 1 << 40 // more than anybody ever has
	burstMin     = 2
	burstMax     = 20
	listItemsMin = 4
	listItemsMax = 24
	listsMax     = 3
	hangUpMax    = 15 * time.Millisecond
	thinkMax     = 60 * time.Millisecond
)

var customers = []string{"alice", "bob", "carol", "dave", "erin", "frank"}

// order is a transfer that a client wants under a key. Two orders may have one
// key: that is a client's mistake, and the second must be refused.
type order struct {
	Key      string `json:"-"`
	From     string `json:"from"`
	To       string `json:"to"`
	Amount   int64  `json:"amount"`
	InList   bool   `json:"-"` // sent by POST /v1/transfers/bulk
	Hopeless bool   `json:"-"` // nobody can carry it out
}

// shot is one HTTP request.
type shot struct {
	orders   []int         // of the task: one, or those of a list
	instance int           // whom to ask
	hangUp   time.Duration // after which the client goes away; 0: it stays
	torn     bool          // the client goes away in the middle of the body
}

// task is a piece of a client's work: volleys of requests sent at once. After
// each volley its orders are sent again until each has its answer.
type task struct {
	orders  []order
	volleys [][]shot
	pause   time.Duration // before the next task
}

// plan makes up the tasks of a client. They depend on nothing but the seed, the
// number of the client and that of the instances.
type plan struct {
	random    *rand.Rand
	prefix    string
	tasks     int
	keys      int
	instances int
}

func newPlan(seed uint64, client, instances int) *plan {
	return &plan{
		random: rand.New(rand.NewPCG(seed, uint64(client))), prefix: fmt.Sprintf("storm-%d-%d-", seed, client),
		instances: instances,
	}
}

// next returns the next task.
func (p *plan) next() task {
	p.tasks++
	t := p.manner()()
	t.pause = p.delay(thinkMax)
	return t
}

// manner chooses how the client behaves.
func (p *plan) manner() func() task {
	manners := []func() task{
		p.burst, p.burst, p.burst,
		p.hangUps, p.hangUps,
		p.otherPayload, p.otherPayload,
		p.rivals,
		p.hopeless,
		p.lists, p.lists,
	}
	return manners[p.random.IntN(len(manners))]
}

// burst sends one request many times at once.
func (p *plan) burst() task {
	return task{orders: []order{p.order()}, volleys: [][]shot{p.volley(p.between(burstMin, burstMax), 0)}}
}

// hangUps sends one request a few times and goes away in the middle.
func (p *plan) hangUps() task {
	volley := p.volley(p.between(1, 6), 0)
	for i := range volley {
		volley[i].torn = p.random.IntN(4) == 0
		volley[i].hangUp = p.delay(hangUpMax)
	}
	return task{orders: []order{p.order()}, volleys: [][]shot{volley}}
}

// otherPayload uses a key that has its answer for something else.
func (p *plan) otherPayload() task {
	first := p.order()
	return task{
		orders:  []order{first, p.mistake(first)},
		volleys: [][]shot{p.volley(p.between(1, 4), 0), p.volley(p.between(1, 4), 1)},
	}
}

// rivals sends two payloads under one key at once.
func (p *plan) rivals() task {
	first := p.order()
	return task{
		orders:  []order{first, p.mistake(first)},
		volleys: [][]shot{append(p.volley(p.between(1, 6), 0), p.volley(p.between(1, 6), 1)...)},
	}
}

// hopeless sends what must be refused a few times at once.
func (p *plan) hopeless() task {
	o := p.order()
	o.hopeless(p.random)
	return task{orders: []order{o}, volleys: [][]shot{p.volley(p.between(1, 6), 0)}}
}

// lists sends lists at once that have orders in common, and one twice within:
// the first has all of them.
func (p *plan) lists() task {
	orders := make([]order, p.between(listItemsMin, listItemsMax))
	for i := range orders {
		orders[i] = p.order()
		orders[i].InList = true
		if p.random.IntN(10) == 0 {
			orders[i].hopeless(p.random)
		}
	}
	var volley []shot
	for size := len(orders); len(volley) < listsMax; size = p.between(1, len(orders)) {
		list := p.random.Perm(len(orders))[:size]
		list = append(list, list[p.random.IntN(len(list))])
		volley = append(volley, p.shot(list...))
	}
	return task{orders: orders, volleys: [][]shot{volley}}
}

// order makes up a transfer under a new key. Customers pay one another, as far
// as they can, and the bank pays in.
func (p *plan) order() order {
	p.keys++
	o := order{Key: fmt.Sprintf("%s%d", p.prefix, p.keys)}
	pair := p.random.Perm(len(customers))
	o.From, o.To, o.Amount = customers[pair[0]], customers[pair[1]], 1+p.random.Int64N(amountMax)
	if p.random.IntN(3) == 0 {
		o.From, o.Amount = bank, 1+p.random.Int64N(fundingMax)
	}
	return o
}

// mistake is another order under the same key: for another amount, or for the
// same one on another route.
func (p *plan) mistake(o order) order {
	if p.random.IntN(3) == 0 {
		o.InList = !o.InList
	} else {
		o.Amount++
	}
	return o
}

func (o *order) hopeless(random *rand.Rand) {
	o.Hopeless = true
	switch {
	case random.IntN(2) == 0:
		o.To = nobody
	case o.From == bank:
		o.From, o.To, o.Amount = o.To, bank, unpayable
	default:
		o.Amount = unpayable
	}
}

// volley is some shots of one order.
func (p *plan) volley(size, order int) []shot {
	volley := make([]shot, size)
	for i := range volley {
		volley[i] = p.shot(order)
	}
	return volley
}

func (p *plan) shot(orders ...int) shot {
	return shot{orders: orders, instance: p.random.IntN(p.instances)}
}

// between returns a number from least to most.
func (p *plan) between(least, most int) int { return least + p.random.IntN(most-least+1) }

func (p *plan) delay(most time.Duration) time.Duration {
	return 1 + time.Duration(p.random.Int64N(int64(most)))
}

// transferBody is the body of POST /v1/transfers. The key is the reference, by
// which the audit finds the effect.
func (o order) transferBody() []byte {
	return encode(struct {
		order
		Currency  string `json:"currency"`
		Reference string `json:"reference"`
	}{o, currency, o.Key})
}

// listBody is the body of POST /v1/transfers/bulk.
func listBody(orders []order) []byte {
	type item struct {
		Key string `json:"key"`
		order
		Currency  string `json:"currency"`
		Reference string `json:"reference"`
	}
	items := make([]item, len(orders))
	for i, o := range orders {
		items[i] = item{o.Key, o, currency, o.Key}
	}
	return encode(map[string][]item{"transfers": items})
}

func encode(value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err) // texts and numbers
	}
	return encoded
}
