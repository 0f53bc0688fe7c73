package integration

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/idem"
)

// Each way a call can end is observed once, under its own name.
func TestEveryEndingIsObserved(t *testing.T) {
	t.Parallel()
	var calls []idem.Call
	b := newBench(t, idem.Config{Observer: observer(func(c idem.Call) { calls = append(calls, c) })})
	quiet := newStore(t, b.pool, idem.Config{})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	owner := hold()
	held := goDo(t.Context(), quiet, request("held"), owner.mutation(created("held")))
	<-owner.entered

	for _, c := range []struct {
		outcome  idem.Outcome
		attempts int
		err      error
		ctx      context.Context
		request  idem.Request
		mutation idem.Mutation
	}{
		{idem.OutcomeCompleted, 1, nil, t.Context(), request("done"), created("done")},
		{idem.OutcomeReplayed, 0, nil, t.Context(), request("done"), created("done")},
		{idem.OutcomeKeyReused, 0, idem.ErrKeyReused, t.Context(), otherPayload("done"), created("done")},
		{idem.OutcomeRejected, 1, errDecline, t.Context(), request("rejected"), rejecting("rejected")},
		{idem.OutcomeReplayed, 0, nil, t.Context(), request("rejected"), rejecting("rejected")},
		{idem.OutcomeAborted, 1, errDecline, t.Context(), request("aborted"), aborting("aborted")},
		{idem.OutcomeInFlight, 0, idem.ErrInFlight, t.Context(), request("held"), created("held")},
		{idem.OutcomeInvalid, 0, nil, t.Context(), idem.Request{}, created("invalid")},
		{idem.OutcomeFailed, 0, context.Canceled, cancelled, request("never"), created("never")},
		{idem.OutcomeAborted, 1, nil, t.Context(), request("panic"), func(context.Context, pgx.Tx) (idem.Response, error) { panic("boom") }},
	} {
		calls = nil
		func() {
			defer func() { _ = recover() }()
			_, _ = b.store.Do(c.ctx, c.request, c.mutation)
		}()
		if len(calls) != 1 || calls[0].Outcome != c.outcome || calls[0].Attempts != c.attempts ||
			c.err != nil && !errors.Is(calls[0].Err, c.err) || calls[0].Operation != c.request.Operation {
			t.Errorf("%s of %q: observed %+v", c.outcome, c.request.Key, calls)
			continue
		}
		call := calls[0]
		if id := scalar[string](t, b.pool, "select coalesce((select replace(id::text, '-', '') from idem.records where key = $1), '')", c.request.Key); id != "" && call.RecordID != id ||
			(call.RecordID == "") != (c.outcome == idem.OutcomeInvalid) {
			t.Errorf("%s of %q: record %q, in the database it is %q", c.outcome, c.request.Key, call.RecordID, id)
		}
		if call.Unsettled {
			t.Errorf("%s: an answered COMMIT was called unsettled", c.outcome)
		}
		if call.Total < call.Claim+call.Mutation+call.Commit || c.attempts > 0 && call.Mutation <= 0 {
			t.Errorf("%s: the durations do not add up: %+v", c.outcome, call)
		}
	}
	close(owner.leave)
	<-held
}
