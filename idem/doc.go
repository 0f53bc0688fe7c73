// Package idem makes a mutation happen exactly once per idempotency key, on
// PostgreSQL alone.
//
// The promise: for one (scope, key) the effect of a mutation happens at most
// once, and every caller who ever gets an answer gets the same answer. The
// record that answers retries commits in the same transaction as what the
// mutation wrote, so the two cannot disagree: not after a crash, not after a
// lost connection, not when the process was frozen for an hour. There is no
// lease that runs out and no second store.
//
//	store, err := idem.New(pool, idem.Config{})
//	...
//	result, err := store.Do(ctx, idem.Request{
//		Scope:       tenant,
//		Operation:   "POST /v1/transfers",
//		Key:         key,
//		Fingerprint: idem.NewFingerprint(body),
//	}, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
//		// Write on tx. Return the answer to commit, an error to abort,
//		// idem.Reject to undo the writes and keep the answer.
//	})
//
// [Store.DoBatch] is the same contract for a mutation that is SQL alone, in one
// round trip; [Store.DoMany] for many of them, in one transaction a chunk.
//
// # What is not promised
//
// Effects outside the database are not undone and not counted: write a job row
// on the transaction and give the provider a [DerivedKey]. A commit that an
// asynchronous failover lost is lost together with its record; run a
// synchronous standby if that must not happen. A record answers until it
// expires; a retry after that is a new request.
//
// # The words
//
// A scope says whose key it is; the key is the client's string. The fingerprint
// is the digest of what is asked for. The claim is the row that locks the key
// while the mutation runs; finished, it is the record. A replay answers from
// the record. Reject undoes the writes and keeps the answer; abort undoes
// everything and frees the key. To settle is to learn how a COMMIT without an
// answer ended. To sweep is to forget expired records.
package idem
