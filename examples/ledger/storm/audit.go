package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/examples/ledger/postgres"
)

// Report is what the storm did and what the audit found.
type Report struct {
	Config  Config
	Time    time.Duration // for which clients began tasks
	Tally   Tally
	Keys    int
	Effects int
	Asked   int64        // orders in the requests: one in each, or those of its list
	Answers [kinds]int64 // their sum is Asked
	Checks  []Check
}

// Check is one thing that must not be.
type Check struct {
	Name     string
	Meaning  string
	Findings []string // the keys, or accounts, and what is wrong with them
}

// OK tells whether nothing was found.
func (r Report) OK() bool {
	return !slices.ContainsFunc(r.Checks, func(c Check) bool { return len(c.Findings) > 0 })
}

// The checks, in the order of the report.
const (
	lost = iota
	doubled
	contradicting
	wrongPayload
	unpayableDone
	unasked
	odd
	balances
	books
)

func newChecks() []Check {
	return []Check{
		lost:          {Name: "lost", Meaning: "answered 201 without its effect, or never"},
		doubled:       {Name: "doubled", Meaning: "keys with more than one effect"},
		contradicting: {Name: "contradicting", Meaning: "keys with two answers, or one the book denies"},
		wrongPayload:  {Name: "wrong payload", Meaning: "accepted under a key of another request"},
		unpayableDone: {Name: "unpayable", Meaning: "accepted though nobody can pay it"},
		unasked:       {Name: "unasked", Meaning: "effects that were refused, or nobody wanted"},
		odd:           {Name: "unexpected", Meaning: "keys with an answer the API does not have"},
		balances:      {Name: "balances", Meaning: "accounts that differ from the answers"},
		books:         {Name: "books", Meaning: "faults that GET /v1/audit finds"},
	}
}

// Audit compares the clients' memory with the database.
func (s *Storm) Audit(ctx context.Context) (Report, error) {
	effects, err := postgres.New(s.pool).Effects(ctx, tenant)
	if err != nil {
		return Report{}, err
	}
	report := Report{
		Config: s.config, Time: s.time, Tally: s.Tally(), Effects: len(effects), Checks: newChecks(),
	}
	report.Asked, report.Answers = s.memory.total()
	orders := s.memory.all()
	report.auditKeys(orders, effects)
	if err := s.auditBalances(ctx, &report, orders); err != nil {
		return Report{}, err
	}
	return report, nil
}

func (r *Report) find(check int, format string, arguments ...any) {
	r.Checks[check].Findings = append(r.Checks[check].Findings, fmt.Sprintf(format, arguments...))
}

// auditKeys looks at each key: at its orders, their answers, and its effects.
func (r *Report) auditKeys(orders []*remembered, effects []postgres.EffectsRow) {
	byKey := map[string][]postgres.EffectsRow{}
	for _, effect := range effects {
		byKey[effect.Key] = append(byKey[effect.Key], effect)
	}
	var keys []string
	ordersOf := map[string][]*remembered{}
	for _, o := range orders {
		if len(ordersOf[o.Key]) == 0 {
			keys = append(keys, o.Key)
		}
		ordersOf[o.Key] = append(ordersOf[o.Key], o)
	}
	r.Keys = len(keys)
	for _, key := range keys {
		r.auditKey(key, ordersOf[key], byKey[key])
		delete(byKey, key)
	}
	for key, effects := range byKey {
		r.find(unasked, "%s: %d effects", key, len(effects))
	}
}

func (r *Report) auditKey(key string, orders []*remembered, effects []postgres.EffectsRow) {
	if len(effects) > 1 {
		r.find(doubled, "%s: %d effects", key, len(effects))
	}
	accepted := 0 // orders that the key was given to
	done := false
	for _, o := range orders {
		for _, a := range o.odd {
			r.find(odd, "%s: %d %s", key, a.status, a.body)
		}
		switch {
		case len(o.answers) == 0:
			r.find(lost, "%s: no answer", key)
			return
		case len(o.answers) > 1:
			r.find(contradicting, "%s: %d %s, and also %d %s", key,
				o.answers[0].status, o.answers[0].body, o.answers[1].status, o.answers[1].body)
		case o.firsts > 1:
			r.find(contradicting, "%s: %d answers say that they are the first", key, o.firsts)
		}
		if o.answers[0].kind == otherPayload {
			continue
		}
		accepted++
		if o.answers[0].status != http.StatusCreated {
			continue
		}
		done = true
		r.auditEffect(o, effects)
	}
	switch {
	case accepted == 0:
		r.find(lost, "%s: given to none of its requests", key)
	case accepted > 1:
		r.find(wrongPayload, "%s: given to %d requests", key, accepted)
	}
	if !done && len(effects) > 0 {
		r.find(unasked, "%s: refused, and done", key)
	}
}

// auditEffect looks for the effect of an order that was answered 201.
func (r *Report) auditEffect(o *remembered, effects []postgres.EffectsRow) {
	if o.Hopeless {
		r.find(unpayableDone, "%s: %s", o.Key, o.answers[0].body)
	}
	if len(effects) == 0 {
		r.find(lost, "%s: no effect of %s", o.Key, o.answers[0].body)
		return
	}
	var told struct{ ID uuid.UUID }
	err := json.Unmarshal([]byte(o.answers[0].body), &told)
	want := postgres.EffectsRow{Key: o.Key, ID: told.ID, FromAccount: o.From, ToAccount: o.To, Amount: o.Amount}
	if err != nil || !slices.Contains(effects, want) {
		r.find(contradicting, "%s: the book has %v, the answer was %s", o.Key, effects[0], o.answers[0].body)
	}
}

// auditBalances adds up what the clients were told, and asks for the balances
// and for the service's own audit.
func (s *Storm) auditBalances(ctx context.Context, report *Report, orders []*remembered) error {
	expected := map[string]int64{}
	for _, o := range orders {
		if len(o.answers) > 0 && o.answers[0].status == http.StatusCreated {
			expected[o.From] -= o.Amount
			expected[o.To] += o.Amount
		}
	}
	for _, id := range append([]string{bank}, customers...) {
		var account book.Account
		if err := s.client.get(ctx, "/v1/accounts/"+id, &account); err != nil {
			return err
		}
		if account.Balance != expected[id] {
			report.find(balances, "%s: has %d, and by the answers %d", id, account.Balance, expected[id])
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
