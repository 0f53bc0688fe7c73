// Package fibermw mounts idem in Fiber: a request with an Idempotency-Key runs
// its handler exactly once, in one Postgres transaction with the record that
// answers every retry.
//
//	app.Post("/transfers", fibermw.Handle(config, func(c *fiber.Ctx, tx pgx.Tx) error {
//		// Write on tx and answer as always.
//		return c.Status(fiber.StatusCreated).JSON(transfer)
//	}))
//
// [New] is the middleware for a group or an app; its handlers take the
// transaction from [Tx]. [Handle] wraps one handler, gives it the transaction
// as an argument, and can run it again after a serialization failure.
//
// # How a handler ends
//
// The status of the answer decides, see [JudgeByStatus]: 2xx and 3xx commit; a
// 4xx is a refusal, which undoes the writes and is recorded, except for those
// that ask for the same request again; 5xx, errors that render as 5xx, and
// panics undo everything and free the key. An error is rendered by the app's
// ErrorHandler inside the unit, so that fiber.NewError(422) and c.Status(422)
// end the same. When the unit is aborted, the error goes on to the outer
// middleware as if this package were not there, and Fiber renders it again: the
// ErrorHandler must not count on running once.
//
// No answer leaves before COMMIT is acknowledged. When COMMIT fails, what the
// handler rendered is wiped.
//
// # Database errors
//
// An error that wraps a *pgconn.PgError, ConnectError or ParseConfigError, a
// pgx.ScanArgError, or one that is [idem.Retryable], is not given to the app's
// ErrorHandler, for Fiber's default one sends its text to the client. If it also
// wraps a *fiber.Error, that one alone is used; if not, the answer is a
// [Problem] of this package. Map the database errors you expect in the handler.
//
// Everything else is yours to hide, with an ErrorHandler that does not send
// err.Error(): pgx.ErrNoRows, arguments that pgx could not encode, a message
// that formats a database error with %v instead of wrapping it, and a panic that
// the recover middleware turns into an error.
//
// # What to mind when mounting
//
// Mount on the routes or groups that change something. A New that covers a
// whole app acts before Fiber looks for the route, so that unknown paths need a
// key, too, and their 404 is recorded.
//
// Mount whatever may refuse a request (authentication, csrf, limiter) outside,
// that is before this middleware: inside it is not asked about replays. Mount
// cors, requestid, compress, etag and recover outside, too, so that they treat
// replays like first answers. Inside they do no harm: what they set is never
// stored where it belongs to one request only, see [Config].HeadersNeverStored,
// and Accept-Encoding is hidden from the handler, so that a record is never
// compressed. Mounted twice on one request, the outer one acts.
//
// # Publishing the rules
//
// The Idempotency-Key draft asks every service to publish its rules. [RulesOf]
// tells them from the config in force.
package fibermw
