package storm

import (
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
	holdSeconds  = 3600    // longer than a storm
	payeesMax    = 3
	burstMin     = 2
	burstMax     = 20
	listItemsMin = 4
	listItemsMax = 24
	listsMax     = 3
	hangUpMax    = 15 * time.Millisecond
	thinkMax     = 60 * time.Millisecond
)

var customers = []string{"alice", "bob", "carol", "dave", "erin", "frank"}

// order is what a client wants under a key. Two orders may have one key: that
// is a client's mistake, and the second must be refused.
type order struct {
	key      string
	action   action
	from, to string
	amount   int64
	legs     map[string]int64 // of a linked transfer
	of       int              // the order of the task that it ends or reverses
	hopeless bool             // nobody can carry it out
}

// action is what an order asks for.
type action int

const (
	transfer action = iota
	inList          // a transfer, by POST /v1/transfers/bulk
	linked
	hold
	capture
	void
	reverse
)

// dependent tells whether the order is about the answer to another one.
func (a action) dependent() bool { return a == capture || a == void || a == reverse }

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
		p.linkedBurst,
		p.holds, p.holds,
		p.reversals, p.reversals,
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
	p.spoil(&o)
	return task{orders: []order{o}, volleys: [][]shot{p.volley(p.between(1, 6), 0)}}
}

// lists sends lists at once that have orders in common, and one twice within:
// the first has all of them.
func (p *plan) lists() task {
	orders := make([]order, p.between(listItemsMin, listItemsMax))
	for i := range orders {
		orders[i] = p.order()
		orders[i].action = inList
		if p.random.IntN(10) == 0 {
			p.spoil(&orders[i])
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

// holds places a hold and then ends it in every way at once, of which one wins.
// Some of the bank's holds, who has enough, are left pending.
func (p *plan) holds() task {
	first := p.order()
	first.action = hold
	placing := p.volley(p.between(1, 4), 0)
	if first.from == bank && p.random.IntN(2) == 0 {
		return task{orders: []order{first}, volleys: [][]shot{placing}}
	}
	end := func(action action, amount int64) order {
		o := p.order()
		return order{key: o.key, action: action, from: first.from, to: first.to, amount: amount}
	}
	orders := []order{
		first, end(capture, first.amount), end(capture, 1+p.random.Int64N(first.amount)), end(void, 0), end(capture, first.amount+1),
	}
	orders[4].hopeless = true
	mistake := orders[1]
	mistake.action = void
	orders = append(orders, mistake)

	var ends []shot
	for i := range orders[1:] {
		ends = append(ends, p.volley(p.between(1, 3), i+1)...)
	}
	p.shuffle(ends)
	return task{orders: orders, volleys: [][]shot{placing, ends}}
}

// linkedBurst sends a linked transfer many times at once.
func (p *plan) linkedBurst() task {
	return task{orders: []order{p.linked()}, volleys: [][]shot{p.volley(p.between(burstMin, burstMax), 0)}}
}

// reversals reverses a transfer under two keys at once, of which one wins, and
// then that reversal, which must be refused.
func (p *plan) reversals() task {
	first := p.order()
	if p.random.IntN(3) == 0 {
		first = p.linked()
	}
	reversal := func(of int) order { return order{key: p.order().key, action: reverse, of: of} }
	again := reversal(1)
	again.hopeless = true
	rivals := append(p.volley(p.between(1, 4), 1), p.volley(p.between(1, 4), 2)...)
	p.shuffle(rivals)
	return task{
		orders:  []order{first, reversal(0), reversal(0), again},
		volleys: [][]shot{p.volley(p.between(1, 4), 0), rivals, p.volley(p.between(1, 2), 3)},
	}
}

// linked makes up a transfer from one account to some others.
func (p *plan) linked() order {
	o := p.order()
	o.action, o.legs = linked, map[string]int64{}
	for _, i := range p.random.Perm(len(customers))[:payeesMax] {
		if payee := customers[i]; payee != o.from {
			o.legs[payee] += o.amount
			o.legs[o.from] -= o.amount
		}
	}
	return o
}

// order makes up a transfer under a new key. Customers pay one another, as far
// as they can, and the bank pays in.
func (p *plan) order() order {
	p.keys++
	o := order{key: fmt.Sprintf("%s%d", p.prefix, p.keys)}
	pair := p.random.Perm(len(customers))
	o.from, o.to, o.amount = customers[pair[0]], customers[pair[1]], 1+p.random.Int64N(amountMax)
	if p.random.IntN(3) == 0 {
		o.from, o.amount = bank, 1+p.random.Int64N(fundingMax)
	}
	return o
}

// mistake is another order under the same key: for another amount, or for the
// same one on another route.
func (p *plan) mistake(o order) order {
	if p.random.IntN(3) == 0 {
		o.action = inList
	} else {
		o.amount++
	}
	return o
}

// spoil makes a transfer one that nobody can carry out.
func (p *plan) spoil(o *order) {
	o.hopeless = true
	switch {
	case p.random.IntN(2) == 0:
		o.to = nobody
	case o.from == bank:
		o.from, o.to, o.amount = o.to, bank, unpayable
	default:
		o.amount = unpayable
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

func (p *plan) shuffle(volley []shot) {
	p.random.Shuffle(len(volley), func(i, j int) { volley[i], volley[j] = volley[j], volley[i] })
}

func (p *plan) shot(orders ...int) shot {
	return shot{orders: orders, instance: p.random.IntN(p.instances)}
}

// between returns a number from least to most.
func (p *plan) between(least, most int) int { return least + p.random.IntN(most-least+1) }

func (p *plan) delay(most time.Duration) time.Duration {
	return 1 + time.Duration(p.random.Int64N(int64(most)))
}
