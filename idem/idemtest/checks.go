package idemtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/internal/failpoint"
)

// first learns what one request changes, and whether the rest can prove anything.
func (k *kit) first() bool {
	k.t.Helper()
	var changes [2]int64
	for i := range changes {
		before := k.effect()
		entered := k.set(&trap{step: failpoint.BeforeClaim, spring: nothing})
		answer, err := k.send(k.t.Context(), newRequest(Original))
		k.clear()
		changes[i] = k.effect() - before
		switch {
		case err != nil || !answer.succeeded():
			k.report("first", "a new request got %v. App.Send must be able to make the variant Original succeed with any key.", reply{answer, err})
			return false
		case !entered.caught():
			k.report("first", "the request never reached App.Store with a key: is it the Store that the handler uses, does the route run under the library, and is the key handed on to it?")
			return false
		case changes[i] == 0:
			k.report("first", "the request was answered %v and App.Effect did not change: it measures something else.", answer)
			return false
		}
	}
	if changes[0] != changes[1] {
		k.report("first", "two requests with new keys changed App.Effect by %d and by %d: it must be the same for each.", changes[0], changes[1])
		return false
	}
	k.one = changes[0]
	return true
}

// replay sends a request twice, one after the other.
func (k *kit) replay() bool {
	k.t.Helper()
	for _, variant := range k.variants() {
		r := newRequest(variant)
		before := k.effect()
		first, err := k.send(k.t.Context(), r)
		if err != nil || variant == Refused && (first.succeeded() || !first.final()) {
			k.report("replay", "the variant %v got %v. App.Send must have the app refuse it with a final 4xx, or accept it, as its name says.", variant, reply{first, err})
			return false
		}
		again, err := k.send(k.t.Context(), r)
		if change := k.effect() - before; change != k.whole(variant) {
			k.report("replay", "after a request of the variant %v and its retry the effect %s. %s", variant, k.times(change), k.why(r.Key, effectOutside))
			return false
		}
		if difference := k.app.difference(first, again); err != nil || difference != "" {
			k.report("replay", "the retry did not get the recorded answer: %s. %s", cmp.Or(difference, fmt.Sprint(err)), k.why(r.Key, changedOutside))
			return false
		}
	}
	return true
}

// otherPayload uses a key for something else.
func (k *kit) otherPayload() {
	k.t.Helper()
	if answer, err := k.send(k.t.Context(), newRequest(Other)); err != nil || !answer.succeeded() {
		k.report("other payload", "the variant Other got %v under a new key. It must succeed there, or its refusal proves nothing.", reply{answer, err})
		return
	}
	r := newRequest(Original)
	before := k.effect()
	first := k.retry(r)
	other, err := k.send(k.t.Context(), Request{Key: r.Key, Variant: Other})
	if err != nil || other.Status < 400 || other.Status > 499 {
		k.report("other payload", "a used key was sent with another payload and got %v, not a 4xx such as 422. Is everything that the request asks for in the fingerprint: the whole body, the query, the route?", reply{other, err})
	}
	k.finish("other payload", r, before, first)
}

// inFlight stops a call before and after its mutation, and looks at it from outside.
func (k *kit) inFlight() bool {
	k.t.Helper()
	const check = "in flight"
	for _, stop := range []struct {
		step   failpoint.Step
		advice string
	}{
		{failpoint.AfterClaim, "the effect is there before the mutation has run. Something makes it before the library is called: move it into the mutation, onto the transaction that is lent to it."},
		{failpoint.AfterMutation, "the effect is visible before COMMIT. The mutation writes past the transaction lent to it, through the pool or a connection of its own: write on the lent transaction alone."},
	} {
		r := newRequest(Original)
		before := k.effect()
		visible := false
		var duplicate <-chan reply
		first, ok := k.paused(check, stop.step, r, func(func()) {
			if visible = k.effect() != before; visible {
				k.report(check, "%s", stop.advice)
				return
			}
			if k.app.Store.Config().ClaimWait > 0 {
				duplicate = k.background(k.t.Context(), r) // is answered when the first is
				return
			}
			k.refusedInFlight(check, r)
		})
		if !ok || visible {
			return false
		}
		if duplicate != nil {
			if d := <-duplicate; d.err != nil || d.final() && !d.succeeded() {
				k.report(check, "a duplicate that was sent meanwhile got %v, not the answer or 409.", d)
			}
		}
		if !k.finish(check, r, before, first) {
			return false
		}
	}
	return true
}

// refusedInFlight sends duplicates of a request that is held in the library.
func (k *kit) refusedInFlight(check string, r Request) {
	k.t.Helper()
	same, err := k.send(k.t.Context(), r)
	if err != nil || same.final() || same.Status >= 500 && same.Status != http.StatusServiceUnavailable {
		k.report(check, "the same request, sent while the first is in flight, got %v, not 409. %s", reply{same, err}, k.why(r.Key, effectOutside))
	}
	other, err := k.send(k.t.Context(), Request{Key: r.Key, Variant: Other})
	if err != nil || other.succeeded() || other.Status >= 500 && other.Status != http.StatusServiceUnavailable {
		k.report(check, "another payload with the key of a request in flight got %v, not 422. Is everything that the request asks for in the fingerprint?", reply{other, err})
	}
}

// paused holds a request at a step, runs meanwhile, lets it go and returns what
// it got. meanwhile may hang up for its client.
func (k *kit) paused(check string, step failpoint.Step, r Request, meanwhile func(hangUp func())) (first reply, ok bool) {
	k.t.Helper()
	release := make(chan struct{})
	tr := k.set(&trap{step: step, spring: pause(release)})
	ctx, hangUp := context.WithCancel(k.t.Context())
	defer hangUp()
	answered := k.background(ctx, r)
	func() {
		defer close(release)
		defer k.clear()
		select {
		case <-tr.sprung:
			meanwhile(hangUp)
			ok = true
		case first = <-answered:
			k.report(check, "the request did not pass the step %q: it got %v.", step, first)
		case <-time.After(k.app.Timeout):
			k.report(check, "the request did not reach the step %q within %v.", step, k.app.Timeout)
		}
	}()
	if ok {
		first = <-answered
	}
	return first, ok
}

// abort has the mutation end with an error, on a healthy connection.
func (k *kit) abort() {
	k.t.Helper()
	r := newRequest(Original)
	before := k.effect()
	k.set(&trap{step: failpoint.AfterMutation, spring: fail})
	first, err := k.send(k.t.Context(), r)
	k.clear()
	if k.undone("abort", reply{first, err}, before, 0) {
		k.finish("abort", r, before, reply{first, err})
	}
}

// undone checks that a call that the library ended with an error is not
// answered with a success, and has the effect that it must have.
func (k *kit) undone(check string, first reply, before, want int64) bool {
	k.t.Helper()
	if first.err == nil && first.succeeded() {
		k.report(check, "the request got %v although the call of the library ended with an error: answer what Do returns, after it has returned, and only if its error is nil.", first)
		return false
	}
	if change := k.effect() - before; change != want {
		k.report(check, "after a call that ended there the effect %s, and should be there %d times. Something is written outside the transaction lent to the mutation.", k.times(change), want/k.one)
		return false
	}
	return true
}

// sqlError has every statement of the mutation fail.
func (k *kit) sqlError() {
	k.t.Helper()
	const check = "SQL error"
	r := newRequest(Original)
	before := k.effect()
	tr := k.set(&trap{step: failpoint.AfterClaim, spring: poison})
	first, err := k.send(k.t.Context(), r)
	k.clear()
	select {
	case ended := <-tr.ended:
		if errors.Is(ended, pgx.ErrTxCommitRollback) { // what the library found instead of a success
			k.report(check, "every statement of the mutation failed, and it went on to a success. It swallows the errors of its statements: check them all and return them. (The library undid the unit and answered %v.)", reply{first, err})
			return
		}
	default:
		k.report(check, "the mutation was not run: %v.", reply{first, err})
		return
	}
	if !k.undone(check, reply{first, err}, before, 0) {
		return
	}
	if retried := k.retry(r); retried.err == nil && retried.final() && !retried.succeeded() {
		k.report(check, "every statement of the mutation failed once, and its key now answers %v for good. The mutation turns errors of the database into a refusal, which is recorded: refuse for reasons of the business alone, and return other errors as they are.", retried)
		return
	}
	k.finish(check, r, before, reply{first, err})
}

// burst sends one request many times at once.
func (k *kit) burst() {
	k.t.Helper()
	const check = "burst"
	r := newRequest(Original)
	before := k.effect()
	replies := make(chan reply, k.app.Burst)
	barrier := make(chan struct{})
	for range k.app.Burst {
		go func() {
			<-barrier
			answer, err := k.send(k.t.Context(), r)
			replies <- reply{answer, err}
		}()
	}
	close(barrier)
	known := reply{err: errInjected}
	for range k.app.Burst {
		switch a := <-replies; {
		case a.err != nil, a.final() && !a.succeeded(), a.Status >= 500 && a.Status != http.StatusServiceUnavailable:
			k.report(check, "one of %d equal requests got %v: each must get the answer, 409 or 503.", k.app.Burst, a)
		case a.succeeded() && known.err != nil:
			known = a
		case a.succeeded():
			if difference := k.app.difference(known.Answer, a.Answer); difference != "" {
				k.report(check, "%d equal requests got different answers: %s. %s", k.app.Burst, difference, k.why(r.Key, changedOutside))
			}
		}
	}
	k.finish(check, r, before, known)
}

// clientGone hangs up in the middle.
func (k *kit) clientGone() {
	k.t.Helper()
	for _, step := range []failpoint.Step{failpoint.AfterClaim, failpoint.AfterMutation} {
		r := newRequest(Original)
		before := k.effect()
		check := "client gone " + string(step)
		if first, ok := k.paused(check, step, r, func(hangUp func()) { hangUp() }); ok {
			k.finish(check, r, before, first)
		}
	}
}

// crash has the app die at a step: its connection is gone, and so is the rest of
// the call. The next try is that of another process.
func (k *kit) crash(step failpoint.Step, variant Variant) bool {
	k.t.Helper()
	check := "crash " + string(step)
	r := newRequest(variant)
	before := k.effect()
	tr := k.set(&trap{step: step, spring: die, kills: true})
	first, err := k.send(k.t.Context(), r)
	k.clear()
	if !tr.caught() {
		k.report(check, "the request did not come to this step: it got %v.", reply{first, err})
		return false
	}
	want := int64(0)
	if step == failpoint.AfterCommit {
		want = k.whole(variant)
	}
	return k.undone(check, reply{first, err}, before, want) && k.finish(check, r, before, reply{first, err})
}

// lostConnection has the server end the call's backend at a step. The app lives
// and may find out how it ended.
func (k *kit) lostConnection(step failpoint.Step, variant Variant) bool {
	k.t.Helper()
	check := "lost connection " + string(step)
	r := newRequest(variant)
	before := k.effect()
	tr := k.set(&trap{step: step, spring: k.terminate(step)})
	first, err := k.send(k.t.Context(), r)
	k.clear()
	if !tr.caught() {
		k.report(check, "the request did not come to this step: it got %v.", reply{first, err})
		return false
	}
	return k.finish(check, r, before, reply{first, err})
}
