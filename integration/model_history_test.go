package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
	"github.com/idempg/idempg/integration/faults"
)

// The model: what a key and the account that belongs to it may do. An operation
// is one call of Do, one look at the database, or the expiry of a record.

// keyState is the state of one key between two operations.
type keyState struct {
	balance int
	record  string // the answer that is recorded, "" for none
	payload int    // of the record
}

// keyInput is what an operation asks for.
type keyInput struct {
	kind    string // "do", "look" or "expire"
	call    int    // names the operation
	key     int
	payload int
	delta   int
	rejects bool // the mutation ends with Reject
	aborts  bool // the mutation ends with an error
}

// keyOutput is what came back.
type keyOutput struct {
	kind    string // executed, replayed, in flight, reused, failed or unknown; looked; expired
	answer  string // of a record
	balance int
	beside  bool // another operation on the key was under way, so that "in flight" may be true
}

// answerOf is the answer of an operation that executes on a balance. It names
// the operation and what it saw, so no two executions have the same.
func (in keyInput) answerOf(balance int) string {
	if in.rejects {
		return fmt.Sprintf("call %d rejects", in.call)
	}
	return fmt.Sprintf("call %d makes it %d", in.call, balance+in.delta)
}

// execute is the one step that changes a key by a call.
func (s keyState) execute(in keyInput) keyState {
	next := keyState{balance: s.balance, record: in.answerOf(s.balance), payload: in.payload}
	if !in.rejects {
		next.balance += in.delta
	}
	return next
}

// step lists the states that an operation may lead to: none if what came back
// is impossible here.
func (s keyState) step(in keyInput, out keyOutput) []any {
	same := []any{s}
	allowed := false
	switch out.kind {
	case "executed":
		if s.record == "" && !in.aborts && out.answer == in.answerOf(s.balance) {
			return []any{s.execute(in)}
		}
	case "replayed":
		allowed = s.record == out.answer && s.payload == in.payload
	case "reused":
		allowed = s.record != "" && s.payload != in.payload || s.record == "" && out.beside
	case "in flight":
		allowed = out.beside
	case "failed": // nothing of it stays
		allowed = true
	case "unknown": // it has no end in the history, so this may be its moment at any later time
		if s.record == "" && !in.aborts {
			return []any{s, s.execute(in)}
		}
		allowed = true
	case "looked":
		allowed = s.balance == out.balance && s.record == out.answer
	case "expired":
		if s.record == out.answer {
			return []any{keyState{balance: s.balance}}
		}
	}
	if allowed {
		return same
	}
	return nil
}

var keyModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{keyState{}} },
	Step: func(state, input, output any) []any {
		s, _ := state.(keyState)
		in, _ := input.(keyInput)
		out, _ := output.(keyOutput)
		return s.step(in, out)
	},
	Partition: func(history []porcupine.Operation) (keys [][]porcupine.Operation) {
		byKey := map[int][]porcupine.Operation{}
		for _, o := range history {
			in, _ := o.Input.(keyInput)
			byKey[in.key] = append(byKey[in.key], o)
		}
		for _, operations := range byKey {
			keys = append(keys, operations)
		}
		return keys
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}).ToModel()

// history records operations as they happen.
type history struct {
	mu         sync.Mutex
	start      time.Time
	operations []porcupine.Operation
}

const never = 1 << 62 // when an operation returns whose outcome nobody knows

// record runs an operation.
func (h *history) record(client int, in keyInput, run func() keyOutput) {
	call := time.Since(h.start).Nanoseconds()
	out := run()
	end := time.Since(h.start).Nanoseconds()
	if out.kind == "unknown" {
		end = never
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: end})
}

// markBeside tells each operation whether another call on its key was under way:
// one that failed or is unknown may be so for some time after it returned.
func (h *history) markBeside() {
	for i, o := range h.operations {
		in, _ := o.Input.(keyInput)
		out, _ := o.Output.(keyOutput)
		out.beside = slices.ContainsFunc(h.operations, func(p porcupine.Operation) bool {
			other, _ := p.Input.(keyInput)
			result, _ := p.Output.(keyOutput)
			lingers := result.kind == "failed" || result.kind == "unknown"
			return other.kind == "do" && other.key == in.key && other.call != in.call &&
				p.Call <= o.Return && (o.Call <= p.Return || lingers)
		})
		h.operations[i].Output = out
	}
}

func (h *history) check() porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(keyModel, h.operations, time.Minute)
}

// describe prints the history of one key in the order of its calls.
func (h *history) describe() string {
	slices.SortFunc(h.operations, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var text strings.Builder
	for _, o := range h.operations {
		fmt.Fprintf(&text, "%12d %20d client %d %+v -> %+v\n", o.Call, o.Return, o.ClientId, o.Input, o.Output)
	}
	return text.String()
}

const (
	historyClients = 5
	historyKeys    = 2
	historyRounds  = 6 // each key lives that often
	historyCalls   = 5 // of each client in each round
)

// teller is one client: an instance with a pool and a network of its own.
type teller struct {
	number int
	store  *idem.Store
	wire   *faults.Proxy
	random *rand.Rand
	bench  *bench
}

// Goal: concurrent calls behave as if each happened at one moment between its
// start and its end, whatever breaks on the way. Method: instances with a
// network each call, and look at the database, while callers hang up, backends
// are killed and COMMITs or their answers are lost; a checker then looks for an
// order of the whole history that the model allows.
func TestHistoriesAreLinearizable(t *testing.T) {
	t.Parallel()
	random := modelRand(t)
	b := newBench(t, idem.Config{})
	b.exec(t, "create table accounts (key int primary key, balance int not null)")
	b.exec(t, "insert into accounts select key, 0 from generate_series(0, $1::int - 1) key", historyKeys)
	tellers := make([]*teller, historyClients)
	for i := range tellers {
		wire := newWire(t, b.database)
		config := idem.Config{CommitTimeout: 5 * time.Second, SettleTimeout: 300 * time.Millisecond, AttemptsMax: 3}
		tellers[i] = &teller{
			number: i, wire: wire, bench: b, random: rand.New(rand.NewPCG(random.Uint64(), 0)),
			store: newStore(t, wirePool(t, b.database, wire, pgx.QueryExecModeExec), config),
		}
	}
	h := &history{start: time.Now()}
	for round := range historyRounds {
		var group sync.WaitGroup
		for _, c := range tellers {
			group.Go(func() {
				for i := range historyCalls {
					c.act(t, h, (round*historyClients+c.number)*historyCalls+i)
				}
			})
		}
		group.Wait()
		// A record that expires while a COMMIT is being settled answers nobody, so
		// that is over before the next life of the keys begins.
		await(t, b.pool, "every backend has ended its work", `select not exists (select from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle')`)
		for key := range historyKeys {
			h.record(historyClients, keyInput{kind: "look", key: key}, func() keyOutput { return b.lookAt(t, key) })
			h.record(historyClients, keyInput{kind: "expire", key: key}, func() keyOutput { return b.expireKey(t, key) })
		}
	}
	h.markBeside()
	kinds := map[string]int{}
	for _, o := range h.operations {
		out, _ := o.Output.(keyOutput)
		kinds[out.kind]++
	}
	t.Logf("%d operations: %v", len(h.operations), kinds)
	if result := h.check(); result != porcupine.Ok {
		t.Fatalf("the history is not linearizable (%v):\n%s", result, h.describe())
	}
	h.mustNoticeForgeries(t)
}

// act is one operation of a client.
func (c *teller) act(t *testing.T, h *history, number int) {
	in := keyInput{kind: "do", call: number, key: c.random.IntN(historyKeys), delta: 1 + c.random.IntN(9)}
	switch n := c.random.IntN(10); {
	case n < 2:
		in.kind = "look"
		h.record(c.number, in, func() keyOutput { return c.bench.lookAt(t, in.key) })
		return
	case n == 2:
		in.payload = 1
	case n == 3:
		in.rejects = true
	case n == 4:
		in.aborts = true
	}
	trouble := c.random.IntN(8)
	pause := time.Duration(c.random.IntN(20)) * time.Millisecond
	h.record(c.number, in, func() keyOutput { return c.do(in, trouble, pause) })
}

// do calls Do, in trouble of some kind.
func (c *teller) do(in keyInput, trouble int, pause time.Duration) keyOutput {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer c.wire.Refuse(false)
	switch trouble {
	case 0: // the caller hangs up at some time
		time.AfterFunc(pause, cancel)
	case 1:
		c.wire.Arm(lostCommit)
	case 2, 3:
		c.wire.Arm(unansweredCommit(faults.FIN))
	}
	defer c.wire.Arm()
	r := request(fmt.Sprint("k", in.key))
	r.Fingerprint = idem.NewFingerprint([]byte{byte(in.payload)})
	result, err := c.store.Do(ctx, r, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		var balance int
		if err := tx.QueryRow(ctx, "select balance from accounts where key = $1", in.key).Scan(&balance); err != nil {
			return idem.Response{}, err
		}
		if _, err := tx.Exec(ctx, "update accounts set balance = $2 where key = $1", in.key, balance+in.delta); err != nil {
			return idem.Response{}, err
		}
		switch trouble {
		case 3: // nobody can be asked for the outcome
			c.wire.Refuse(true)
		case 4: // the backend dies
			_, _ = c.bench.pool.Exec(ctx, "select pg_terminate_backend($1::bigint::int)", int64(tx.Conn().PgConn().PID()))
		}
		response := idem.Response{Body: []byte(in.answerOf(balance))}
		switch {
		case in.aborts:
			return idem.Response{}, errDecline
		case in.rejects:
			return idem.Response{}, idem.Reject(response, nil)
		}
		return response, nil
	})
	return doOutput(result, err)
}

// doOutput says in the model's words what Do returned.
func doOutput(result idem.Result, err error) keyOutput {
	var unknown *idem.OutcomeUnknownError
	switch {
	case err == nil && result.Replayed:
		return keyOutput{kind: "replayed", answer: string(result.Body)}
	case err == nil:
		return keyOutput{kind: "executed", answer: string(result.Body)}
	case errors.As(err, &unknown):
		return keyOutput{kind: "unknown"}
	case errors.Is(err, idem.ErrInFlight):
		return keyOutput{kind: "in flight"}
	case errors.Is(err, idem.ErrKeyReused):
		return keyOutput{kind: "reused"}
	}
	return keyOutput{kind: "failed"}
}

// lookAt reads an account and the record of its key in one snapshot.
func (b *bench) lookAt(t *testing.T, key int) keyOutput {
	out := keyOutput{kind: "looked"}
	err := b.pool.QueryRow(t.Context(), `
		select balance, coalesce((select convert_from(body, 'UTF8') from idem.records where records.key = $2 and expires_at > now()), '')
		from accounts where key = $1`, key, fmt.Sprint("k", key)).Scan(&out.balance, &out.answer)
	if err != nil {
		t.Error(err)
	}
	return out
}

// expireKey makes the record of a key expire and returns its answer.
func (b *bench) expireKey(t *testing.T, key int) keyOutput {
	out := keyOutput{kind: "expired"}
	err := b.pool.QueryRow(t.Context(), `
		update idem.records set created_at = now() - interval '2 days', expires_at = now() - interval '1 day'
		where key = $1 and expires_at > now() returning convert_from(body, 'UTF8')`, fmt.Sprint("k", key)).Scan(&out.answer)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Error(err)
	}
	return out
}

// mustNoticeForgeries changes one output of a good history at a time, and wants
// the checker to refuse each.
func (h *history) mustNoticeForgeries(t *testing.T) {
	t.Helper()
	for i, o := range h.operations {
		out, _ := o.Output.(keyOutput)
		forged := out
		switch out.kind {
		case "executed", "replayed":
			forged.answer += "0"
		case "looked":
			forged.balance++
		default:
			continue
		}
		h.operations[i].Output = forged
		if result := h.check(); result != porcupine.Illegal {
			t.Errorf("the checker says %v to %+v in the place of %+v", result, forged, out)
		}
		h.operations[i].Output = out
	}
}

// The checker refuses what must never happen, and nothing else.
func TestTheCheckerTellsForgedHistories(t *testing.T) {
	t.Parallel()
	do := keyInput{kind: "do", call: 1, delta: 5}
	retry := keyInput{kind: "do", call: 2, delta: 5}
	look := keyInput{kind: "look"}
	ran := keyOutput{kind: "executed", answer: "call 1 makes it 5"}
	unknown := keyOutput{kind: "unknown"}
	looked := func(balance int, record string) keyOutput {
		return keyOutput{kind: "looked", balance: balance, answer: record}
	}
	type event struct {
		in  keyInput
		out keyOutput
	}
	for name, c := range map[string]struct {
		events []event // one after the other
		legal  bool
	}{
		"executed, then replayed":         {[]event{{do, ran}, {retry, keyOutput{kind: "replayed", answer: ran.answer}}, {look, looked(5, ran.answer)}}, true},
		"an unknown call that did happen": {[]event{{do, unknown}, {look, looked(0, "")}, {look, looked(5, ran.answer)}}, true},
		"an unknown call that did not":    {[]event{{do, unknown}, {retry, keyOutput{kind: "executed", answer: "call 2 makes it 5"}}, {look, looked(5, "call 2 makes it 5")}}, true},
		"expiry":                          {[]event{{do, ran}, {look, keyOutput{kind: "expired", answer: ran.answer}}, {retry, keyOutput{kind: "executed", answer: "call 2 makes it 10"}}}, true},

		"two executions":                 {[]event{{do, ran}, {retry, keyOutput{kind: "executed", answer: "call 2 makes it 10"}}}, false},
		"a doubled effect":               {[]event{{do, ran}, {look, looked(10, ran.answer)}}, false},
		"a replay with another answer":   {[]event{{do, ran}, {retry, keyOutput{kind: "replayed", answer: "call 1 makes it 6"}}}, false},
		"a replay of nothing":            {[]event{{do, keyOutput{kind: "replayed", answer: "call 0 makes it 5"}}}, false},
		"a replay for another payload":   {[]event{{do, ran}, {keyInput{kind: "do", call: 2, payload: 1}, keyOutput{kind: "replayed", answer: ran.answer}}}, false},
		"reused for the same payload":    {[]event{{do, ran}, {retry, keyOutput{kind: "reused"}}}, false},
		"in flight when nobody is":       {[]event{{do, keyOutput{kind: "in flight"}}}, false},
		"an effect without a record":     {[]event{{do, ran}, {look, looked(5, "")}}, false},
		"a record without an effect":     {[]event{{do, unknown}, {look, looked(0, ran.answer)}}, false},
		"an effect that is undone":       {[]event{{do, unknown}, {look, looked(5, ran.answer)}, {look, looked(0, "")}}, false},
		"a failed call that did happen":  {[]event{{do, keyOutput{kind: "failed"}}, {look, looked(5, ran.answer)}}, false},
		"an unknown call happened twice": {[]event{{do, unknown}, {look, looked(10, "call 1 makes it 10")}}, false},
	} {
		h := &history{}
		for i, e := range c.events {
			end := int64(10*i + 5)
			if e.out.kind == "unknown" {
				end = never
			}
			h.operations = append(h.operations, porcupine.Operation{Input: e.in, Call: int64(10 * i), Output: e.out, Return: end})
		}
		want := porcupine.Illegal
		if c.legal {
			want = porcupine.Ok
		}
		if got := h.check(); got != want {
			t.Errorf("%s: the checker says %v, want %v", name, got, want)
		}
	}
}
