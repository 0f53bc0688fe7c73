package idemtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/internal/failpoint"
)

// Run sends requests to the app and reports, through t.Errorf, what does not
// hold and what to look at. The checks, in this order:
//
//   - first: a request succeeds, reaches the Store and has an effect;
//   - replay: the same again gets the same answer and changes nothing;
//   - other payload: the key answers no other request;
//   - in flight: nothing is visible before COMMIT, duplicates meanwhile wait or
//     are told to;
//   - abort: an error of the library is no success, and the key is free again;
//   - SQL error: a failed statement fails the request, and is not recorded;
//   - burst: many at once have one effect and one answer;
//   - client gone: hanging up does not break the request in two;
//   - crash, lost connection: the app dies, or loses its backend, at every step.
//
// With [App].Refusals the last ones and replay are done for refusals, too. A
// check that fails may leave out those that would only say the same again. Each
// check uses keys of its own; what it wrote stays in the database.
func Run(t testing.TB, app App) {
	t.Helper()
	k := newKit(t, app)
	defer func() {
		k.clear()
		_ = k.conn.Close(context.Background())
	}()
	if !k.first() || !k.replay() {
		return
	}
	k.otherPayload()
	if !k.inFlight() {
		return
	}
	k.abort()
	k.sqlError()
	k.burst()
	k.clientGone()
	for _, breakdown := range []func(failpoint.Step, Variant) bool{k.crash, k.lostConnection} {
		k.atEveryStep(breakdown)
	}
}

// atEveryStep stops at the first step that fails: the others would say the same.
func (k *kit) atEveryStep(breakdown func(failpoint.Step, Variant) bool) {
	k.t.Helper()
	for _, step := range steps {
		for _, variant := range k.variants() {
			if !breakdown(step, variant) {
				return
			}
		}
	}
}

// kit is one run.
type kit struct {
	t     testing.TB
	app   App
	store failpoint.Store
	conn  *pgx.Conn // the kit's own: the app may hold all of the pool's
	one   int64     // what one successful request changes
}

func newKit(t testing.TB, app App) *kit {
	t.Helper()
	for field, missing := range map[string]bool{
		"Store": app.Store == nil, "Send": app.Send == nil, "Effect": app.Effect == nil,
	} {
		if missing {
			t.Fatalf("idemtest: App.%s is required", field)
		}
	}
	app.Burst = cmp.Or(app.Burst, 20)
	app.Timeout = cmp.Or(app.Timeout, 20*time.Second)
	k := &kit{t: t, app: app, store: failpoint.Open(app.Store)}
	conn, err := pgx.ConnectConfig(t.Context(), k.store.Pool.Config().ConnConfig.Copy())
	if err != nil {
		t.Fatalf("idemtest: connect to the database of App.Store: %v", err)
	}
	k.conn = conn
	return k
}

func (k *kit) variants() []Variant {
	if k.app.Refusals {
		return []Variant{Original, Refused}
	}
	return []Variant{Original}
}

func newRequest(variant Variant) Request {
	return Request{Key: "idemtest-" + rand.Text(), Variant: variant}
}

// report is an error of a check.
func (k *kit) report(check, format string, arguments ...any) {
	k.t.Helper()
	k.t.Errorf("idemtest: %s: %s", check, fmt.Sprintf(format, arguments...))
}

// send is one try of a client that waits no longer than App.Timeout.
func (k *kit) send(ctx context.Context, r Request) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, k.app.Timeout)
	defer cancel()
	return k.app.Send(ctx, r)
}

// reply is what a request in the background got.
type reply struct {
	Answer
	err error
}

func (r reply) String() string {
	if r.err != nil {
		return r.err.Error()
	}
	return r.Answer.String()
}

func (k *kit) background(ctx context.Context, r Request) <-chan reply {
	replies := make(chan reply, 1)
	go func() {
		answer, err := k.send(ctx, r)
		replies <- reply{answer, err}
	}()
	return replies
}

// retry is a patient client: it sends the request until the answer is final.
func (k *kit) retry(r Request) reply {
	for deadline := time.Now().Add(k.app.Timeout); ; time.Sleep(5 * time.Millisecond) {
		answer, err := k.send(k.t.Context(), r)
		if err == nil && answer.final() || time.Now().After(deadline) {
			return reply{answer, err}
		}
	}
}

// effect is what Effect measures now.
func (k *kit) effect() int64 {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), k.app.Timeout)
	defer cancel()
	effect, err := k.app.Effect(ctx)
	if err != nil {
		k.t.Fatalf("idemtest: App.Effect failed: %v", err)
	}
	return effect
}

// whole is what a request of the variant changes when it is carried out.
func (k *kit) whole(variant Variant) int64 {
	if variant == Refused {
		return 0
	}
	return k.one
}

// times says how often the effect of one request fits into a change.
func (k *kit) times(change int64) string {
	if change%k.one == 0 {
		return fmt.Sprintf("happened %d times", change/k.one)
	}
	return fmt.Sprintf("changed App.Effect by %d, one request changes it by %d", change, k.one)
}

// finish has a patient client finish r, and checks that the effect is whole and
// the answer stays the same. known is an answer that a client has already, if
// it is a success.
func (k *kit) finish(check string, r Request, before int64, known reply) bool {
	k.t.Helper()
	answer := k.retry(r)
	if answer.err != nil || answer.succeeded() != (r.Variant != Refused) || !answer.final() {
		k.report(check, "retries with the same key end with %v. %s", answer, k.why(r.Key, "Send it by hand and look at the app's log."))
		return false
	}
	if change := k.effect() - before; change != k.whole(r.Variant) {
		k.report(check, "after the retries of one request the effect %s. %s", k.times(change), k.why(r.Key,
			"More than once: look for an effect that is made outside the mutation. Less: look for an error of a statement that is not checked."))
		return false
	}
	again := k.retry(r)
	if known.err != nil || !known.succeeded() {
		known = answer
	}
	for _, a := range []reply{answer, again} {
		if difference := k.app.difference(known.Answer, a.Answer); a.err != nil || difference != "" {
			k.report(check, "two answers to one key: %s. The first was %v, this one is %v. %s", difference, known, a, k.why(r.Key, changedOutside))
			return false
		}
	}
	return true
}

// Advice for a key whose record is as it should be.
const (
	effectOutside  = "Look for an effect that is made outside the mutation, before or after the library is called."
	changedOutside = "Look for what changes the answer outside the library, such as a middleware around it, a clock or a random number. Headers that may differ belong into App.VolatileHeaders."
)

// why explains what went wrong with a key by its records. otherwise is the
// advice if they are as they should be.
func (k *kit) why(key, otherwise string) string {
	rows, err := k.conn.Query(k.t.Context(), "select scope, state from idem.records where key = $1 order by created_at", key)
	if err != nil {
		return fmt.Sprintf("(The records could not be read: %v.)", err)
	}
	var scopes, states []string
	var scope, state string
	_, err = pgx.ForEachRow(rows, []any{&scope, &state}, func() error {
		scopes, states = append(scopes, fmt.Sprintf("%q", scope)), append(states, state)
		return nil
	})
	switch {
	case err != nil:
		return fmt.Sprintf("(The records could not be read: %v.)", err)
	case len(scopes) == 0:
		return "No record has the key that was sent: does the app hand the client's key to the library, unchanged?"
	case len(scopes) > 1:
		return fmt.Sprintf("The key has a record in each of %d scopes, %s: a scope must be the same for all tries of one caller. A token that rotates is not a scope; take the tenant or user.",
			len(scopes), strings.Join(scopes, " and "))
	}
	return fmt.Sprintf("The key has one record, %s, as it should. %s", states[0], otherwise)
}
