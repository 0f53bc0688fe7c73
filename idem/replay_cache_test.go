package idem

import (
	"net/http"
	"reflect"
	"testing"
	"time"
	"unsafe"
)

// Goal: an answer ends in memory no later than in the database, whatever the
// two clocks show. Method: a local clock that is hours off, and statements that
// take their time; the record's end is given in local time, too.
func TestACachedReplayEndsBeforeTheRecord(t *testing.T) {
	t.Parallel()
	sent := time.Now()
	for _, skew := range []time.Duration{0, 5 * time.Hour, -5 * time.Hour} {
		for _, delay := range []time.Duration{0, time.Millisecond, 30 * time.Second} { // from sending to the look at the clock
			for _, left := range []time.Duration{time.Millisecond, time.Second, 24 * time.Hour, 100 * 365 * 24 * time.Hour} {
				database := sent.Add(delay + skew).Round(0)
				ends := sent.Add(delay + left) // the record, by a local clock
				deadline, ok := clockReading{sent: sent, database: database}.deadline(database.Add(left))
				if !ok || deadline.After(ends.Add(-delay-left/1000)) {
					t.Errorf("skew %v, delay %v, left %v: deadline %v after the record's end (known: %v)", skew, delay, left, deadline.Sub(ends), ok)
				}
				if deadline.Before(sent.Add(left - left/500)) {
					t.Errorf("skew %v, delay %v, left %v: only %v of it is used", skew, delay, left, deadline.Sub(sent))
				}
			}
		}
		for _, left := range []time.Duration{0, -time.Second} {
			if _, ok := (clockReading{sent: sent, database: sent.Add(skew)}).deadline(sent.Add(skew + left)); ok {
				t.Errorf("a record with %v left has a deadline", left)
			}
		}
	}
	if _, ok := (clockReading{sent: sent}).deadline(sent.Add(time.Hour)); ok {
		t.Error("a clock that was never read gives a deadline")
	}
}

// Both local clocks must say that the record lives: the monotonic one, which
// nobody sets, and the wall clock, which goes on while the machine is suspended.
func TestACachedReplayEndsByEitherLocalClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	request := Request{Scope: "s", Key: "k"}
	for name, c := range map[string]struct {
		deadline, now time.Time
		want          bool
	}{
		"before":                      {now.Add(time.Second), now, true},
		"at":                          {now, now, false},
		"after":                       {now, now.Add(time.Second), false},
		"after by the wall clock":     {now.Add(time.Hour), now.Add(2 * time.Hour).Round(0), false},
		"after a step of the clock":   {now.Add(time.Second), onlyMonotonic(now, time.Hour), false},
		"before, after a suspension":  {now.Add(time.Hour), onlyWall(now, time.Minute), true},
		"expired during a suspension": {now.Add(time.Minute), onlyWall(now, time.Hour), false},
	} {
		r := newCachedReplay(request, Result{}, c.deadline)
		if got := r.answers(request, c.now); got != c.want {
			t.Errorf("%s: answers is %v, want %v", name, got, c.want)
		}
	}
	r := newCachedReplay(request, Result{}, now.Add(time.Hour))
	for _, other := range []Request{{Scope: "s", Key: "K"}, {Scope: "S", Key: "k"}, {Scope: "sk"}, {}} {
		if r.answers(other, now) {
			t.Errorf("the record of (s, k) answers (%s, %s)", other.Scope, other.Key)
		}
	}
}

// instant is time.Time as the runtime of Go 1.26 lays it out.
type instant struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

// onlyMonotonic is t after d, in which the wall clock was set back by d.
func onlyMonotonic(t time.Time, d time.Duration) time.Time {
	i := (*instant)(unsafe.Pointer(&t))
	i.ext += int64(d)
	return t
}

// onlyWall is t after d, in which the monotonic clock stood still.
func onlyWall(t time.Time, d time.Duration) time.Time {
	before := (*instant)(unsafe.Pointer(&t)).ext
	t = t.Add(d)
	(*instant)(unsafe.Pointer(&t)).ext = before
	return t
}

// Goal: a cached replay shares no memory with the call that made it, nor with
// those it answers. Method: strings that are views of buffers, as web frameworks
// have them, and everything overwritten after each use.
func TestACachedReplaySharesNoMemory(t *testing.T) {
	t.Parallel()
	var buffers [][]byte
	view := func(s string) string {
		b := []byte(s)
		buffers = append(buffers, b)
		return unsafe.String(&b[0], len(b))
	}
	request := Request{Scope: view("scope"), Operation: view("operation"), Key: view("key"), Fingerprint: NewFingerprint([]byte("x"))}
	result := Result{State: StateCompleted, Response: Response{
		Status: 201, Body: []byte("body"),
		Header: http.Header{view("Two"): {view("one"), view("two")}, view("None"): nil, view("One"): {view("1")}},
	}}
	deadline := time.Now().Add(time.Hour)
	r := newCachedReplay(request, result, deadline)
	overwrite(result)
	for _, b := range buffers {
		copy(b, "????????????")
	}

	same := Request{Scope: "scope", Operation: "operation", Key: "key", Fingerprint: NewFingerprint([]byte("x"))}
	want := Result{State: StateCompleted, Replayed: true, Response: Response{
		Status: 201, Body: []byte("body"), Header: http.Header{"Two": {"one", "two"}, "None": {}, "One": {"1"}},
	}}
	for range 2 {
		if !r.answers(same, time.Now()) {
			t.Fatal("the record does not answer its key")
		}
		got, err := r.replay(same)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		overwrite(got)
		for name := range got.Header {
			got.Header[name] = append(got.Header[name], "appended")
		}
	}
	if want := replayBytes + len("scopeoperationkeybodyTwoonetwoNoneOne1") + 3*fieldBytes + 3*valueBytes; r.Bytes() != want {
		t.Errorf("Bytes is %d, want %d", r.Bytes(), want)
	}
}

func overwrite(result Result) {
	copy(result.Body, "????")
	for _, values := range result.Header {
		for i := range values {
			values[i] = "overwritten"
		}
	}
}
