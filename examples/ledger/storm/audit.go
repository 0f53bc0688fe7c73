package storm

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/idempg/idempg/examples/ledger/book"
)

// The checks, in the order of the report.
const (
	lost = iota
	doubled
	contradicting
	wrongPayload
	hopelessDone
	unasked
	odd
	balances
	books
)

func newChecks() []Check {
	return []Check{
		lost:          {Name: "lost", Meaning: "answered 201 without its effect, or never"},
		doubled:       {Name: "doubled", Meaning: "keys, holds or reversals with two effects"},
		contradicting: {Name: "contradicting", Meaning: "keys with two answers, or one the book denies"},
		wrongPayload:  {Name: "wrong payload", Meaning: "accepted under a key of another request"},
		hopelessDone:  {Name: "hopeless", Meaning: "done though it must be refused"},
		unasked:       {Name: "unasked", Meaning: "effects that nobody was told of"},
		odd:           {Name: "unexpected", Meaning: "keys with an answer the API does not have"},
		balances:      {Name: "balances", Meaning: "accounts that differ from the answers"},
		books:         {Name: "books", Meaning: "faults that GET /v1/audit finds"},
	}
}

// Audit compares the clients' memory with the database.
func (s *Storm) Audit(ctx context.Context) (Report, error) {
	found, err := s.gather(ctx)
	if err != nil {
		return Report{}, err
	}
	report := Report{Config: s.config, Time: s.time, Tally: s.Tally(), Checks: newChecks()}
	report.Asked, report.Answers = s.memory.total()
	orders := s.memory.all()
	report.auditKeys(orders)
	report.auditEffects(orders, found)
	if err := s.auditBalances(ctx, &report, orders); err != nil {
		return Report{}, err
	}
	return report, nil
}

func (r *Report) find(check int, format string, arguments ...any) {
	r.Checks[check].Findings = append(r.Checks[check].Findings, fmt.Sprintf(format, arguments...))
}

// auditKeys looks at the answers to each key. It belongs to one of its orders.
func (r *Report) auditKeys(orders []*remembered) {
	owners := map[string]int{} // how many orders were told that the key is theirs
	unanswered := map[string]bool{}
	for _, o := range orders {
		r.auditAnswers(o)
		owners[o.key] += 0
		switch {
		case len(o.answers) == 0:
			unanswered[o.key] = true
		case o.answers[0].kind != otherPayload:
			owners[o.key]++
		}
	}
	r.Keys = len(owners)
	for _, key := range slices.Sorted(maps.Keys(owners)) {
		switch {
		case unanswered[key]:
			r.find(lost, "%s: no answer", key)
		case owners[key] == 0:
			r.find(lost, "%s: given to none of its requests", key)
		case owners[key] > 1:
			r.find(wrongPayload, "%s: given to %d requests", key, owners[key])
		}
	}
}

// auditAnswers compares the answers to an order with each other.
func (r *Report) auditAnswers(o *remembered) {
	for _, a := range o.odd {
		r.find(odd, "%s: %d %s", o.key, a.status, a.body)
	}
	switch {
	case len(o.answers) > 1:
		r.find(contradicting, "%s: %d %s, and also %d %s", o.key,
			o.answers[0].status, o.answers[0].body, o.answers[1].status, o.answers[1].body)
	case o.firsts > 1:
		r.find(contradicting, "%s: %d answers say that they are the first", o.key, o.firsts)
	}
	if o.carriedOut() && o.hopeless {
		r.find(hopelessDone, "%s: %s", o.key, o.answers[0].body)
	}
}

// auditEffects compares the orders that were carried out with what the database
// has of them.
func (r *Report) auditEffects(orders []*remembered, found evidence) {
	wanted := map[string]bool{}        // references
	told := map[uuid.UUID]bool{}       // holds
	acts := map[*remembered][]string{} // keys that ended or reversed it
	for _, o := range orders {
		if !o.carriedOut() {
			continue
		}
		switch o.action {
		case hold:
			told[o.told().ID] = true
			r.auditHold(o, found)
		case capture, void:
			r.auditEnd(o, found)
		}
		if o.base != nil {
			acts[o.base] = append(acts[o.base], o.key)
		}
		if changes := o.changes(); len(changes) > 0 {
			wanted[o.reference()] = true
			r.auditTransfer(o, changes, found.effects[o.reference()])
		}
	}
	for base, keys := range acts {
		if len(keys) > 1 {
			r.find(doubled, "%s: ended or reversed by %v", base.key, keys)
		}
	}
	for _, reference := range slices.Sorted(maps.Keys(found.effects)) {
		effects := found.effects[reference]
		r.Effects += len(effects)
		switch {
		case !wanted[reference]:
			r.find(unasked, "%s: %d effects", reference, len(effects))
		case len(effects) > 1:
			r.find(doubled, "%s: %d effects", reference, len(effects))
		}
	}
	for id, h := range found.holds {
		if r.Effects++; !told[id] {
			r.find(unasked, "hold %s of %s, which is %s", id, h.FromAccount, h.State)
		}
	}
}

// auditTransfer looks for the transfer of an order among those that have its
// reference.
func (r *Report) auditTransfer(o *remembered, changes map[string]int64, effects []effect) {
	if len(effects) == 0 {
		r.find(lost, "%s: no effect of %s", o.key, o.answers[0].body)
		return
	}
	id := o.told().ID
	if o.action == capture {
		id = o.told().TransferID
	}
	if !slices.ContainsFunc(effects, func(e effect) bool { return e.id == id && maps.Equal(e.changes, changes) }) {
		r.find(contradicting, "%s: the book has %v, the answer was %s", o.key, effects, o.answers[0].body)
	}
}

// auditHold looks for the hold that an order has placed.
func (r *Report) auditHold(o *remembered, found evidence) {
	h, there := found.holds[o.told().ID]
	switch {
	case !there:
		r.find(lost, "%s: no effect of %s", o.key, o.answers[0].body)
	case h.FromAccount != o.from || h.ToAccount != o.to || h.Amount != o.amount:
		r.find(contradicting, "%s: the book has %d from %s to %s, the answer was %s",
			o.key, h.Amount, h.FromAccount, h.ToAccount, o.answers[0].body)
	}
}

// auditEnd looks whether a hold has ended as an order has ended it.
func (r *Report) auditEnd(o *remembered, found evidence) {
	h := found.holds[o.base.told().ID]
	captured := h.State == book.HoldCaptured && h.Captured != nil && *h.Captured == o.amount
	if o.action == capture && !captured || o.action == void && h.State != book.HoldVoided {
		r.find(contradicting, "%s: in the book the hold is %s, the answer was %s", o.key, h.State, o.answers[0].body)
	}
}

// changes is what the order makes of balances when it is carried out.
func (r *remembered) changes() map[string]int64 {
	switch r.action {
	case hold, void:
		return nil
	case linked:
		return r.legs
	case reverse:
		back := map[string]int64{}
		for account, change := range r.base.changes() {
			back[account] = -change
		}
		return back
	default:
		return map[string]int64{r.from: -r.amount, r.to: r.amount}
	}
}

// reference is that of the transfer that the order makes.
func (r *remembered) reference() string {
	if r.action == capture {
		return "hold " + r.base.told().ID.String()
	}
	return r.key
}

// auditBalances adds up what the clients were told, and asks for the balances
// and for the service's own audit.
func (s *Storm) auditBalances(ctx context.Context, report *Report, orders []*remembered) error {
	balance, held := map[string]int64{}, map[string]int64{}
	for _, o := range orders {
		if !o.carriedOut() {
			continue
		}
		for account, change := range o.changes() {
			balance[account] += change
		}
		switch o.action {
		case hold:
			held[o.from] += o.amount
		case capture, void:
			held[o.from] -= o.base.amount
		}
	}
	for _, id := range accounts {
		var account book.Account
		if err := s.client.get(ctx, "/v1/accounts/"+id, &account); err != nil {
			return err
		}
		if account.Balance != balance[id] || account.Held != held[id] {
			report.find(balances, "%s: has %d and holds %d; by the answers %d and %d",
				id, account.Balance, account.Held, balance[id], held[id])
		}
	}
	var audit book.Audit
	if err := s.client.get(ctx, "/v1/audit", &audit); err != nil {
		return err
	}
	if !audit.OK {
		report.find(books, "%+v", audit)
	}
	return nil
}
