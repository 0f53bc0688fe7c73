package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/idempg/idempg/examples/ledger/api"
	"github.com/idempg/idempg/examples/ledger/book"
	"github.com/idempg/idempg/examples/ledger/jobs"
	"github.com/idempg/idempg/idem"
)

// historiesDefault is how many there are unless -rapid.checks says otherwise, as
// "make test-histories" does.
const historiesDefault = "200"

// Goal: whatever clients do, money is neither made nor lost, nobody spends what
// is not there or is held, versions have no gaps, and a key has one answer.
// Method: random histories of requests, with duplicates, other payloads and
// refusals among them, against a model of a few lines that knows every answer in
// advance. Each history has a tenant of its own. After each request all accounts
// are compared, and in the end all entries.
func TestRandomHistoriesFollowTheModel(t *testing.T) {
	t.Parallel()
	const historiesMax = 100_000
	databaseURL, pool := newDatabase(t)
	servicePool, err := connect(t.Context(), databaseURL, nil)
	must(t, err)
	t.Cleanup(servicePool.Close)
	store, err := idem.New(servicePool, idem.Config{})
	must(t, err)
	list := make([]string, historiesMax)
	for i := range list {
		list[i] = fmt.Sprintf("key%d:tenant%d", i, i)
	}
	keys, _, err := api.ParseKeys(strings.Join(list, ","))
	must(t, err)
	service := serveApp(t, api.New(api.Config{Pool: servicePool, Store: store, Keys: keys, Outboxes: newJobs(t, jobs.Config{Pool: servicePool, Store: store})}))

	service.hasty = true

	var histories, requests atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		n := histories.Add(1) - 1
		h := newHistory(rt, service.as(fmt.Sprint("key", n)), pool, fmt.Sprint("tenant", n))
		rt.Repeat(map[string]func(*rapid.T){
			"transfer":      h.transfer,
			"linked":        h.linked,
			"reverse":       h.reverse,
			"hold":          h.hold,
			"capture":       h.capture,
			"void":          h.void,
			"time passes":   h.timePasses,
			"duplicate":     h.duplicate,
			"other payload": h.otherPayload,
			"":              h.compareAccounts,
		})
		h.compareEntries()
		requests.Add(int64(len(h.sent)))
	})
	wantEvents(t, pool)
	t.Logf("%d histories, %d requests with a key", histories.Load(), requests.Load())
}

// history is what a tenant has done, and what the model makes of it.
type history struct {
	t         *rapid.T
	service   client
	pool      *pgxpool.Pool
	tenant    string
	accounts  map[string]*modelAccount
	holds     []*modelHold
	transfers []*modelTransfer
	sent      []sentRequest
}

type modelAccount struct {
	currency          string
	unbounded         bool
	least             int64 // if it is bounded
	balance, held     int64
	amounts, balances []int64 // of its entries
}

type modelHold struct {
	path, from, to string
	amount         int64
	state          string
}

type modelTransfer struct {
	path                string
	changes             map[string]int64
	reversed, isReverse bool
}

type sentRequest struct {
	path, key, body string
	answer          answer
}

func newHistory(rt *rapid.T, service client, pool *pgxpool.Pool, tenant string) *history {
	h := &history{t: rt, service: service, pool: pool, tenant: tenant, accounts: map[string]*modelAccount{
		"bank":    {currency: "EUR", unbounded: true},
		"alice":   {currency: "EUR"},
		"bob":     {currency: "EUR", least: -50},
		"mint":    {currency: "USD", unbounded: true},
		"dollars": {currency: "USD"},
	}}
	for id, account := range h.accounts {
		minBalance := &account.least
		if account.unbounded {
			minBalance = nil
		}
		if _, err := book.New(tenant, pool).OpenAccount(service.t.Context(), book.NewAccount{ID: &id, Currency: account.currency, MinBalance: minBalance}); err != nil {
			rt.Fatal(err)
		}
	}
	for id, payer := range map[string]string{"alice": "bank", "dollars": "mint"} { // enough to spend, and to run out of
		body := fmt.Sprintf(`{"from":%q,"to":%q,"amount":150,"currency":%q}`, payer, id, h.accounts[id].currency)
		a, _ := h.post("/v1/transfers", body, "")
		h.apply(a.header.Get("Location"), map[string]int64{payer: -150, id: 150}, false)
	}
	return h
}

// post sends a request under a new key. refusal is what the model expects, or "".
func (h *history) post(path, body, refusal string) (answer, bool) {
	key := newKey()
	a := h.service.post(path, key, body)
	h.sent = append(h.sent, sentRequest{path, key, body, a})
	switch {
	case refusal == "" && a.status >= 300:
		h.t.Fatalf("POST %s %s: %d %s", path, body, a.status, a.body)
	case refusal != "" && !strings.Contains(a.body, "#"+refusal+`"`):
		h.t.Fatalf("POST %s %s: %d %s, want %s", path, body, a.status, a.body, refusal)
	}
	return a, refusal == ""
}

// refusal is why the model does not let these changes happen, or "".
func (h *history) refusal(currencies map[string]string, changes map[string]int64) string {
	for id := range changes {
		if h.accounts[id] == nil {
			return "account-not-found"
		}
	}
	for id := range changes {
		if h.accounts[id].currency != currencies[id] {
			return "currency-mismatch"
		}
	}
	for id, change := range changes {
		if account := h.accounts[id]; change < 0 && !account.unbounded && account.balance-account.held+change < account.least {
			return "insufficient-funds"
		}
	}
	return ""
}

func (h *history) apply(path string, changes map[string]int64, isReverse bool) {
	for id, change := range changes {
		account := h.accounts[id]
		account.balance += change
		account.amounts = append(account.amounts, change)
		account.balances = append(account.balances, account.balance)
	}
	h.transfers = append(h.transfers, &modelTransfer{path: path, changes: changes, isReverse: isReverse})
}

var (
	anyAccount  = rapid.SampledFrom([]string{"alice", "alice", "alice", "bob", "bob", "bank", "dollars", "mint", "nobody"})
	anyAmount   = rapid.Int64Range(1, 120)
	anyCurrency = rapid.SampledFrom([]string{"EUR", "EUR", "EUR", "EUR", "USD"})
)

// draw two accounts, an amount and a currency, which need not fit.
func (h *history) draw(rt *rapid.T) (from, to, currency string, amount int64) {
	from = anyAccount.Draw(rt, "from")
	to = anyAccount.Filter(func(id string) bool { return id != from }).Draw(rt, "to")
	return from, to, anyCurrency.Draw(rt, "currency"), anyAmount.Draw(rt, "amount")
}

func (h *history) pairRefusal(from, to, currency string, amount int64) string {
	return h.refusal(map[string]string{from: currency, to: currency}, map[string]int64{from: -amount, to: amount})
}

func (h *history) transfer(rt *rapid.T) {
	from, to, currency, amount := h.draw(rt)
	body := fmt.Sprintf(`{"from":%q,"to":%q,"amount":%d,"currency":%q}`, from, to, amount, currency)
	if a, done := h.post("/v1/transfers", body, h.pairRefusal(from, to, currency, amount)); done {
		h.apply(a.header.Get("Location"), map[string]int64{from: -amount, to: amount}, false)
	}
}

func (h *history) linked(rt *rapid.T) {
	euros, dollars := anyAmount.Draw(rt, "euros"), anyAmount.Draw(rt, "dollars")
	changes := map[string]int64{"alice": -euros, "bank": euros + 1, "bob": -1, "mint": -dollars, "dollars": dollars}
	if rapid.Bool().Draw(rt, "the other way") {
		for id := range changes {
			changes[id] = -changes[id]
		}
	}
	currencies, legs := map[string]string{}, []string{}
	for _, id := range slices.Sorted(maps.Keys(changes)) {
		currencies[id] = h.accounts[id].currency
		legs = append(legs, leg(id, changes[id], currencies[id]))
	}
	if a, done := h.post("/v1/transfers/linked", linkedBody(legs...), h.refusal(currencies, changes)); done {
		h.apply(a.header.Get("Location"), changes, false)
	}
}

func (h *history) reverse(rt *rapid.T) {
	if len(h.transfers) == 0 {
		rt.Skip("nothing to reverse")
	}
	transfer := rapid.SampledFrom(h.transfers).Draw(rt, "transfer")
	changes, currencies := map[string]int64{}, map[string]string{}
	for id, change := range transfer.changes {
		changes[id], currencies[id] = -change, h.accounts[id].currency
	}
	refusal := h.refusal(currencies, changes)
	switch {
	case transfer.isReverse:
		refusal = "not-reversible"
	case transfer.reversed:
		refusal = "already-reversed"
	}
	if a, done := h.post(transfer.path+"/reverse", "", refusal); done {
		transfer.reversed = true
		h.apply(a.header.Get("Location"), changes, true)
	}
}

func (h *history) hold(rt *rapid.T) {
	from, to, currency, amount := h.draw(rt)
	body := fmt.Sprintf(`{"from":%q,"to":%q,"amount":%d,"currency":%q,"expires_in":3600}`, from, to, amount, currency)
	if a, done := h.post("/v1/holds", body, h.pairRefusal(from, to, currency, amount)); done {
		h.accounts[from].held += amount
		h.holds = append(h.holds, &modelHold{a.header.Get("Location"), from, to, amount, book.HoldPending})
	}
}

func (h *history) drawHold(rt *rapid.T) *modelHold {
	if len(h.holds) == 0 {
		rt.Skip("no hold")
	}
	return rapid.SampledFrom(h.holds).Draw(rt, "hold")
}

func (h *history) end(hold *modelHold, state string) {
	hold.state = state
	h.accounts[hold.from].held -= hold.amount
}

func (h *history) capture(rt *rapid.T) {
	hold := h.drawHold(rt)
	amount := rapid.Int64Range(1, hold.amount+2).Draw(rt, "amount")
	refusal := ""
	switch {
	case hold.state != book.HoldPending:
		refusal = "hold-not-pending"
	case amount > hold.amount:
		refusal = "capture-exceeds-hold"
	}
	if a, done := h.post(hold.path+"/capture", fmt.Sprintf(`{"amount":%d}`, amount), refusal); done {
		h.end(hold, book.HoldCaptured)
		h.apply(a.header.Get("Location"), map[string]int64{hold.from: -amount, hold.to: amount}, false)
	}
}

func (h *history) void(rt *rapid.T) {
	hold, refusal := h.drawHold(rt), ""
	if hold.state != book.HoldPending {
		refusal = "hold-not-pending"
	}
	if _, done := h.post(hold.path+"/void", "", refusal); done {
		h.end(hold, book.HoldVoided)
	}
}

// timePasses is the end of the time of one hold.
func (h *history) timePasses(rt *rapid.T) {
	hold := h.drawHold(rt)
	if hold.state != book.HoldPending {
		rt.Skip("it has ended")
	}
	_, err := h.pool.Exec(h.service.t.Context(), fmt.Sprintf(`begin; set local session_replication_role = replica;
		update ledger.holds set created_at = created_at - interval '1 day', expires_at = expires_at - interval '1 day'
		where tenant = '%s' and id = '%s'; commit`, h.tenant, hold.path[len("/v1/holds/"):]))
	if err != nil {
		rt.Fatal(err)
	}
	h.end(hold, book.HoldExpired)
}

// duplicate sends something again, however long ago it was.
func (h *history) duplicate(rt *rapid.T) {
	if len(h.sent) == 0 {
		rt.Skip("nothing was sent")
	}
	first := rapid.SampledFrom(h.sent).Draw(rt, "request")
	again := h.service.post(first.path, first.key, first.body)
	if !again.replayed() || again.status != first.answer.status || again.body != first.answer.body {
		rt.Fatalf("POST %s %s: %d %s, and again: %d %s", first.path, first.body, first.answer.status, first.answer.body, again.status, again.body)
	}
}

func (h *history) otherPayload(rt *rapid.T) {
	if len(h.sent) == 0 {
		rt.Skip("nothing was sent")
	}
	first := rapid.SampledFrom(h.sent).Draw(rt, "request")
	if a := h.service.post(first.path, first.key, first.body+" "); !strings.Contains(a.body, "#idempotency-key-reused") {
		rt.Fatalf("the key of another request: %d %s", a.status, a.body)
	}
}

// compareAccounts runs after every step. It reads past HTTP, which other tests
// look at, to have time for more histories.
func (h *history) compareAccounts(rt *rapid.T) {
	accounts, _, err := h.book().Accounts(h.service.t.Context(), book.Page{Items: book.PageItemsMax})
	if err != nil {
		rt.Fatal(err)
	}
	sums := map[string]int64{}
	for _, got := range accounts {
		want := h.accounts[got.ID]
		if got.Balance != want.balance || got.Held != want.held || got.Version != int64(len(want.amounts)) {
			rt.Fatalf("account %+v, want %+v", got, want)
		}
		if got.Available == nil != want.unbounded || got.Available != nil && (*got.Available != want.balance-want.held-want.least || *got.Available < 0) {
			rt.Fatalf("account %+v, available %v, want %+v", got, got.Available, want)
		}
		sums[got.Currency] += got.Balance
	}
	if len(accounts) != len(h.accounts) || sums["EUR"] != 0 || sums["USD"] != 0 {
		rt.Fatalf("%d accounts, sums %v", len(accounts), sums)
	}
}

// compareEntries runs at the end.
func (h *history) compareEntries() {
	ctx := h.service.t.Context()
	for id, want := range h.accounts {
		statement, err := h.book().Statement(ctx, id, time.Time{}, time.Now().AddDate(1, 0, 0), book.Page{Items: book.PageItemsMax})
		if err != nil {
			h.t.Fatal(err)
		}
		amounts, balances := make([]int64, 0), make([]int64, 0)
		for i, line := range statement.Lines {
			if line.Version != int64(i+1) {
				h.t.Fatalf("line %d of %s has version %d", i, id, line.Version)
			}
			amounts, balances = append(amounts, line.Amount), append(balances, line.Balance)
		}
		if !slices.Equal(amounts, want.amounts) || !slices.Equal(balances, want.balances) || statement.Closing != want.balance || statement.Opening != 0 {
			h.t.Fatalf("statement of %s: %+v, want %+v", id, statement, want)
		}
	}
	for _, hold := range h.holds {
		got, err := h.book().FindHold(ctx, uuid.MustParse(hold.path[len("/v1/holds/"):]))
		if err != nil || got.State != hold.state {
			h.t.Fatalf("hold %+v, %v, want %s", got, err, hold.state)
		}
	}
	request := h.sent[len(h.sent)/2]
	a := h.service.get("/v1/transfers?idempotency_key=" + url.QueryEscape(request.key))
	var found struct{ Record *api.KeyRecord }
	if err := json.Unmarshal([]byte(a.body), &found); err != nil || found.Record == nil || found.Record.Status != request.answer.status {
		h.t.Fatalf("key of POST %s, answered %d: %s", request.path, request.answer.status, a.body)
	}
	audit, err := h.book().Audit(ctx)
	if err != nil || !audit.OK {
		h.t.Fatalf("audit %+v, %v", audit, err)
	}
}

func (h *history) book() book.Book { return book.New(h.tenant, h.pool) }
