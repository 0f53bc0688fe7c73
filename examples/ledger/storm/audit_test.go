package storm

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/examples/ledger/postgres"
)

var (
	id1 = uuid.MustParse("00000000-0000-7000-8000-000000000001")
	id2 = uuid.MustParse("00000000-0000-7000-8000-000000000002")

	created = answer{executed, http.StatusCreated, fmt.Sprintf(`{"id":%q}`, id1)}
	again   = answer{replayed, created.status, created.body}
	other   = answer{executed, http.StatusCreated, fmt.Sprintf(`{"id":%q}`, id2)}
	poor    = answer{rejected, http.StatusUnprocessableEntity, `{"type":"#insufficient-funds"}`}
	used    = answer{otherPayload, http.StatusUnprocessableEntity, `{"type":"#idempotency-key-reused"}`}
	busy    = answer{inFlight, http.StatusConflict, `{"type":"#request-in-flight"}`}
	broken  = answer{unexpected, http.StatusInternalServerError, `{}`}
)

// told is an order that got answers, in their order.
func told(o order, answers ...answer) *remembered {
	m := memory{owned: map[string]bool{}}
	r := &remembered{order: o}
	for _, a := range answers {
		m.note(r, a, true)
	}
	return r
}

// about is the same for an order about another one.
func about(base *remembered, o order, answers ...answer) *remembered {
	r := told(o, answers...)
	r.base = base
	return r
}

func posted(id uuid.UUID, from, to string, amount int64) effect {
	return effect{id, map[string]int64{from: -amount, to: amount}}
}

// Goal: each check finds its fault, and that alone. Method: a faultless audit,
// and then one thing wrong in each.
func TestEachCheckFindsItsFault(t *testing.T) {
	t.Parallel()
	pay := order{key: "k", from: "alice", to: "bob", amount: 7}
	other7 := pay
	other7.amount = 8
	forbidden := pay
	forbidden.hopeless = true
	reserve := order{key: "h", action: hold, from: "alice", to: "bob", amount: 7}
	end := order{key: "c", action: capture, from: "alice", to: "bob", amount: 7}
	captured := answer{executed, http.StatusCreated, fmt.Sprintf(`{"id":%q,"transfer_id":%q}`, id1, id2)}
	voiding := order{key: "v", action: void}
	voided := answer{executed, http.StatusOK, fmt.Sprintf(`{"id":%q}`, id1)}
	back := order{key: "r", action: reverse}

	paid := map[string][]effect{"k": {posted(id1, "alice", "bob", 7)}}
	placed := func(state string, amount *int64) map[uuid.UUID]postgres.Hold {
		return map[uuid.UUID]postgres.Hold{id1: {
			ID: id1, FromAccount: "alice", ToAccount: "bob", Amount: 7, State: state, Captured: amount,
		}}
	}
	seven := int64(7)
	transferred := map[string][]effect{"hold " + id1.String(): {posted(id2, "alice", "bob", 7)}}
	placing := told(reserve, created)
	first := told(pay, created, again)

	for name, test := range map[string]struct {
		orders []*remembered
		found  evidence
		want   map[int]int // findings by check
	}{
		"nothing": {},
		"a transfer, its replay, and another payload": {
			orders: []*remembered{told(pay, busy, created, again), told(other7, used)}, found: evidence{effects: paid},
		},
		"a refusal": {orders: []*remembered{told(forbidden, poor)}},
		"a hold and its capture": {
			orders: []*remembered{placing, about(placing, end, captured), about(placing, voiding, poor)},
			found:  evidence{transferred, placed(book.HoldCaptured, &seven)},
		},
		"a hold that was voided": {
			orders: []*remembered{placing, about(placing, voiding, voided)}, found: evidence{holds: placed(book.HoldVoided, nil)},
		},
		"a reversal": {
			orders: []*remembered{first, about(first, back, other)},
			found:  evidence{effects: map[string][]effect{"k": paid["k"], "r": {posted(id2, "bob", "alice", 7)}}},
		},

		"no answer":            {orders: []*remembered{told(pay, busy)}, want: map[int]int{lost: 1}},
		"no effect":            {orders: []*remembered{told(pay, created)}, want: map[int]int{lost: 1}},
		"no hold":              {orders: []*remembered{placing}, want: map[int]int{lost: 1}},
		"a key that none gets": {orders: []*remembered{told(pay, used), told(other7, used)}, want: map[int]int{lost: 1}},
		"two effects": {
			orders: []*remembered{told(pay, created)},
			found:  evidence{effects: map[string][]effect{"k": {paid["k"][0], posted(id2, "alice", "bob", 7)}}},
			want:   map[int]int{doubled: 1},
		},
		"two reversals": {
			orders: []*remembered{
				first, about(first, back, other), about(first, order{key: "s", action: reverse}, other),
			},
			found: evidence{effects: map[string][]effect{
				"k": paid["k"], "r": {posted(id2, "bob", "alice", 7)}, "s": {posted(id2, "bob", "alice", 7)},
			}},
			want: map[int]int{doubled: 1},
		},
		"two answers": {
			orders: []*remembered{told(pay, created, other)}, found: evidence{effects: paid},
			want: map[int]int{contradicting: 1},
		},
		"two that say they are the first": {
			orders: []*remembered{told(pay, created, created)}, found: evidence{effects: paid},
			want: map[int]int{contradicting: 1},
		},
		"an answer that takes the key away": {
			orders: []*remembered{told(pay, created, used)}, found: evidence{effects: paid},
			want: map[int]int{contradicting: 1},
		},
		"another transfer than was answered": {
			orders: []*remembered{told(pay, other)}, found: evidence{effects: paid}, want: map[int]int{contradicting: 1},
		},
		"another amount": {
			orders: []*remembered{told(other7, created)}, found: evidence{effects: paid}, want: map[int]int{contradicting: 1},
		},
		"another hold": {
			orders: []*remembered{told(order{key: "h", action: hold, from: "alice", to: "bob", amount: 9}, created)},
			found:  evidence{holds: placed(book.HoldPending, nil)}, want: map[int]int{contradicting: 1},
		},
		"a void that the book denies": {
			orders: []*remembered{placing, about(placing, voiding, voided)}, found: evidence{holds: placed(book.HoldPending, nil)},
			want: map[int]int{contradicting: 1},
		},
		"a capture that the book denies": {
			orders: []*remembered{placing, about(placing, end, captured)},
			found:  evidence{transferred, placed(book.HoldVoided, nil)}, want: map[int]int{contradicting: 1},
		},
		"another payload accepted": {
			orders: []*remembered{told(pay, created), told(other7, poor)}, found: evidence{effects: paid},
			want: map[int]int{wrongPayload: 1},
		},
		"the impossible": {
			orders: []*remembered{told(forbidden, created)}, found: evidence{effects: paid}, want: map[int]int{hopelessDone: 1},
		},
		"refused and done":  {orders: []*remembered{told(pay, poor)}, found: evidence{effects: paid}, want: map[int]int{unasked: 1}},
		"nobody's transfer": {found: evidence{effects: paid}, want: map[int]int{unasked: 1}},
		"nobody's hold":     {found: evidence{holds: placed(book.HoldPending, nil)}, want: map[int]int{unasked: 1}},
		"an unexpected answer": {
			orders: []*remembered{told(pay, broken, created)}, found: evidence{effects: paid}, want: map[int]int{odd: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := Report{Checks: newChecks()}
			report.auditKeys(test.orders)
			report.auditEffects(test.orders, test.found)
			for i, check := range report.Checks {
				if len(check.Findings) != test.want[i] {
					t.Errorf("%s: found %q, want %d", check.Name, check.Findings, test.want[i])
				}
			}
			if report.OK() != (len(test.want) == 0) {
				t.Errorf("OK is %v", report.OK())
			}
		})
	}
}

// While the request that has a key is at work the key may still come free, so
// that a client is told that it is another's says nothing for good.
func TestAKeyAtWorkIsNotYetAnothers(t *testing.T) {
	t.Parallel()
	m := memory{owned: map[string]bool{}}
	r := &remembered{order: order{key: "k"}}
	m.note(r, used, m.areOwned([]*remembered{r})[0])
	if len(m.unanswered([]*remembered{r})) != 1 {
		t.Error("the client gives up a key that may still come free")
	}
	m.note(&remembered{order: order{key: "k", amount: 1}}, created, false)
	m.note(r, used, m.areOwned([]*remembered{r})[0])
	if len(m.unanswered([]*remembered{r})) != 0 {
		t.Error("the client asks for a key that is recorded for another request")
	}
}

// The report fits into 80 columns, also with large numbers.
func TestTheReportFitsATerminal(t *testing.T) {
	t.Parallel()
	report := Report{Checks: newChecks(), Keys: 1_234_567, Asked: 1_234_567_890}
	for i := range report.Checks {
		for range findingsMax + 2 {
			report.find(i, "storm-123456-8-1234: no answer")
		}
	}
	text := report.String()
	for line := range strings.Lines(text) {
		if width := len([]rune(strings.TrimSuffix(line, "\n"))); width > 80 {
			t.Errorf("%d columns: %s", width, line)
		}
	}
	for _, part := range []string{"1,234,567,890", "✗ lost", "and 2 more", "The audit failed."} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}
