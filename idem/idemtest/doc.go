// Package idemtest proves that an app's own handlers are exactly once. A test
// gives [Run] a way to send a request to the app and a way to measure its
// effect:
//
//	func TestPaymentsAreExactlyOnce(t *testing.T) {
//		pool := idemtest.NewDatabase(t, migrate)
//		store, err := idem.New(pool, idem.Config{})
//		...
//		app := newApp(store)
//		idemtest.Run(t, idemtest.App{
//			Store: store,
//			Send: idemtest.HTTP(func(r *http.Request) (*http.Response, error) { return app.Test(r, -1) }, newPayment),
//			Effect: idemtest.Query(pool, "select count(*) from payments"),
//		})
//	}
//
// Run repeats requests, sends them at once, changes their payload, hangs up,
// loses connections and lets the app die at every step of a call, on a real
// database. What does not hold it reports with what to look at.
//
// The library keeps its promise for what is written through the lent
// transaction under the key that the client sent. Whether an app does that is
// what these checks find out: they find a handler that writes through the pool,
// an effect outside the mutation, a key or a scope that changes between tries, a
// fingerprint that leaves something out, an answer that is not the recorded one.
// They prove nothing about effects outside the database, about what Effect does
// not measure, and about requests that are not sent.
//
// The package is for tests: it switches on failpoints in the Store.
package idemtest
