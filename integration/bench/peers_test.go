package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/idem/idemtest"
)

// newBench starts what the systems need: a database of the test and a Redis.
func newBench(t *testing.T) (pool *pgxpool.Pool, newPlace func() *place) {
	t.Helper()
	server, err := startRedis(t.Context(), false)
	if errors.Is(err, errNoRedis) {
		if inCI, _ := strconv.ParseBool(os.Getenv("CI")); !inCI { // unset is false
			t.Skip(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.stop(); err != nil {
			t.Errorf("stop Redis: %v", err)
		}
	})
	pool = idemtest.NewDatabase(t, setUpDatabase)
	postgres := postgresURL(pool)
	return pool, func() *place { return &place{postgresURL: postgres, redisAddress: server.address, conns: 12} }
}

func postgresURL(pool *pgxpool.Pool) string {
	c := pool.Config().ConnConfig
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(c.User, c.Password), Path: c.Database,
		Host: net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))), RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Goal: every system does what the page says of it: the effect once, the answer
// every time. Method: the first request, replays of it, a burst of duplicates, and
// then the rows.
func TestEverySystemCarriesOutOnce(t *testing.T) {
	t.Parallel()
	pool, newPlace := newBench(t)
	for _, newSystem := range builders {
		s := buildForTest(t, newPlace(), newSystem)
		t.Run(s.name, func(t *testing.T) {
			for _, size := range []int{small, large} {
				checkFirstAndReplay(t, pool, s, newRequest(hotOne, size))
			}
			if bursts.asks(s.name) {
				checkBurst(t, pool, s)
			}
		})
		if err := s.place.close(); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}

func buildForTest(t *testing.T, p *place, newSystem builder) *system {
	t.Helper()
	s, err := build(t.Context(), p, newSystem)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func checkFirstAndReplay(t *testing.T, pool *pgxpool.Pool, s *system, r request) {
	t.Helper()
	before := balance(t, pool)
	var first string
	const times = 3
	for i := range times {
		a, err := created(t.Context(), s.newClient(), r)
		if err != nil {
			t.Fatal(err)
		}
		if extra := len(a.body) - r.transfer.BytesWant; extra < 1 || extra > 20 { // the digits of the ID
			t.Errorf("the answer has %d bytes, want %d and an ID", len(a.body), r.transfer.BytesWant)
		}
		if i == 0 {
			first = string(a.body)
		} else if same := string(a.body) == first; same == unprotected(s) {
			t.Errorf("the same key again: the same answer is %v", same)
		}
	}
	ids := transfersOf(t, pool, r.key)
	want := 1
	if unprotected(s) {
		want = times
	}
	if len(ids) != want || !strings.HasPrefix(first, fmt.Sprintf(`{"id":%d,`, ids[0])) {
		t.Errorf("transfers %v for the answer %.20s, want %d", ids, first, want)
	}
	if got := balance(t, pool) - before; got != int64(want*r.transfer.Cents) {
		t.Errorf("the balance changed by %d, want %d times %d", got, want, r.transfer.Cents)
	}
}

// unprotected systems carry a request out as often as it comes.
func unprotected(s *system) bool { return s.role == floor && s.name != primaryKey }

func checkBurst(t *testing.T, pool *pgxpool.Pool, s *system) {
	t.Helper()
	const rounds, callers = 3, 8
	for range rounds {
		clients := make([]client, callers)
		for i := range clients {
			clients[i] = s.newClient()
		}
		r := newRequest(hotOne, small)
		answers, err := burst(t.Context(), clients, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			if a.status != statusCreated || string(a.body) != string(answers[0].body) {
				t.Errorf("a duplicate got %d %.20s, the first got %.20s", a.status, a.body, answers[0].body)
			}
		}
		if ids := transfersOf(t, pool, r.key); len(ids) != 1 {
			t.Errorf("a burst made the transfers %v", ids)
		}
	}
}

// Those that compare requests refuse another one with the same key.
func TestWhoComparesRequestsRefusesAnother(t *testing.T) {
	t.Parallel()
	_, newPlace := newBench(t)
	for _, c := range []struct {
		newSystem builder
		compares  bool
	}{
		{newCore, true},
		{newSeparate, true},
		{newTransactions, true},
		{newRedis, true},
		{newCached, true},
		{newDoBatch, true},
		{newCoreFiber, true},
		{newCachedFiber, true},
		{newDoBatchFiber, true},
		{newRedisFiber, true},
		{newDBOS, false},
		{newFiberIdempotency, false},
	} {
		s := buildForTest(t, newPlace(), c.newSystem)
		r := newRequest(hotOne, small)
		if _, err := created(t.Context(), s.newClient(), r); err != nil {
			t.Fatal(err)
		}
		other := newRequest(hotOne, large)
		other.user, other.key = r.user, r.key
		if _, err := created(t.Context(), s.newClient(), other); (err != nil) != c.compares {
			t.Errorf("%s: another request with the key: %v", s.name, err)
		}
		if err := s.place.close(); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}

// A mutation that fails leaves the key free, in every system that holds one.
func TestAFailureFreesTheKey(t *testing.T) {
	t.Parallel()
	_, newPlace := newBench(t)
	for _, newSystem := range []builder{
		newCore, newDoBatch, newSeparate, newTransactions, newRedis,
		newCoreFiber, newDoBatchFiber, newRedisFiber, newFiberIdempotency,
	} {
		s := buildForTest(t, newPlace(), newSystem)
		r := newRequest(hotOne, small)
		broken := r
		broken.transfer.Cents, broken.payload = 0, []byte(`{"account":1,"cents":0,"bytes_want":1024}`)
		if _, err := created(t.Context(), s.newClient(), broken); err == nil {
			t.Errorf("%s: a transfer of nothing was made", s.name)
		}
		if _, err := created(t.Context(), s.newClient(), r); err != nil {
			t.Errorf("%s: the key is not free: %v", s.name, err)
		}
		if err := s.place.close(); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}

func transfersOf(t *testing.T, pool *pgxpool.Pool, key string) (ids []int64) {
	t.Helper()
	err := pool.QueryRow(t.Context(), "select array_agg(id order by id) from bench.transfers where key = $1", key).Scan(&ids)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func balance(t *testing.T, pool *pgxpool.Pool) (cents int64) {
	t.Helper()
	err := pool.QueryRow(t.Context(), "select sum(balance) from bench.accounts").Scan(&cents)
	if err != nil {
		t.Fatal(err)
	}
	return cents
}
