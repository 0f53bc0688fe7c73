package idem

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/internal/failpoint"
)

// Config sets the limits and policies of a [Store]. The zero Config is the safe
// one. Durations are rounded down to milliseconds where PostgreSQL counts in
// them; a duration that is negative, or above zero and below one millisecond,
// is refused.
type Config struct {
	// TTL is how long a record answers retries, counted from the claim by the
	// database's clock. Keep it longer than any client goes on retrying.
	// Defaults to 24 hours.
	TTL time.Duration

	// ClaimWait is how long a duplicate waits for the request in flight before
	// it is answered with ErrInFlight. Duplicates of one request in one process
	// wait in memory; one of them asks the database, unless the request in flight
	// is in the process, too. Defaults to 0: do not wait.
	ClaimWait time.Duration

	// AcquireTimeout bounds the wait for a connection of the pool.
	// Defaults to 10 seconds.
	AcquireTimeout time.Duration

	// IsolationLevel is that of the transactions lent to mutations. Defaults to
	// "": what the server, database or role is set to.
	IsolationLevel pgx.TxIsoLevel

	// AttemptsMax bounds how often a mutation may run in one call: once, and
	// again in a new transaction after a serialization failure (40001), a
	// deadlock (40P01), or a COMMIT that was settled as not happened.
	// Defaults to 5.
	AttemptsMax int

	// IdleInTransactionTimeout ends the transaction, and so frees the key, when
	// the process that owns it is frozen or cut off: the longest time a mutation
	// may spend between two statements. It aborts the work, so it can never
	// cause a second run. Set per transaction
	// (idle_in_transaction_session_timeout). Defaults to 30 seconds.
	IdleInTransactionTimeout time.Duration

	// StatementTimeout and LockTimeout are set for the mutation's transaction
	// (statement_timeout, lock_timeout). Default to 0: what the server, database
	// or role is set to.
	StatementTimeout time.Duration
	LockTimeout      time.Duration

	// CommitTimeout bounds finishing the record and COMMIT, which do not end
	// when the caller's context does. Defaults to 10 seconds.
	CommitTimeout time.Duration

	// SettleTimeout bounds learning how an unanswered COMMIT ended, after which
	// the call returns [OutcomeUnknownError]. Defaults to 10 seconds.
	SettleTimeout time.Duration

	// BodyBytesMax and HeaderBytesMax bound the response that is recorded: the
	// body as it is, the headers as JSON. At most 64 MiB and 128 KiB.
	// Default to 1 MiB and 16 KiB.
	BodyBytesMax   int
	HeaderBytesMax int

	// ReplayCache lets Do and DoBatch answer retries from the memory of this
	// process, within the bounds of docs/guarantees.md: a record that is removed
	// before it expires, by a failover or by hand, may answer there until then.
	// Lookup, DoTx and DoMany do not use it. Defaults to nil: the database
	// answers.
	ReplayCache ReplayCache

	// Observer is told how each call ended. Defaults to nil: nobody is.
	Observer Observer
}

// Store runs mutations exactly once per (scope, key) on the database of one
// pool. It is safe for concurrent use, owns no goroutine, and needs no closing.
type Store struct {
	pool    *pgxpool.Pool
	config  Config
	begin   beginStatements
	flights flights
	hook    atomic.Pointer[failpoint.Hook] // set by tests alone
}

// New makes a Store on pool. It returns an error that names the field when
// config is out of its limits. It sends nothing to the database: the first call
// on a database without this library's schema returns [ErrSchema].
//
// The pool may point at PgBouncer in transaction mode, with any
// pgx.QueryExecMode that PgBouncer allows.
func New(pool *pgxpool.Pool, config Config) (*Store, error) {
	if pool == nil {
		return nil, errors.New("idem: New needs a pool, got nil: make one with pgxpool.New")
	}
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &Store{pool: pool, config: config, begin: newBeginStatements(config)}, nil
}

// Config returns the configuration in force, defaults filled in.
func (s *Store) Config() Config { return s.config }

func (c Config) withDefaults() Config {
	setDefault(&c.TTL, 24*time.Hour)
	setDefault(&c.AcquireTimeout, 10*time.Second)
	setDefault(&c.AttemptsMax, 5)
	setDefault(&c.IdleInTransactionTimeout, 30*time.Second)
	setDefault(&c.CommitTimeout, 10*time.Second)
	setDefault(&c.SettleTimeout, 10*time.Second)
	setDefault(&c.BodyBytesMax, 1<<20)
	setDefault(&c.HeaderBytesMax, 16<<10)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	for _, d := range []struct {
		field string
		value time.Duration
		max   time.Duration
	}{
		{"TTL", c.TTL, 100 * 365 * 24 * time.Hour},
		{"ClaimWait", c.ClaimWait, postgresTimeoutMax},
		{"AcquireTimeout", c.AcquireTimeout, postgresTimeoutMax},
		{"IdleInTransactionTimeout", c.IdleInTransactionTimeout, postgresTimeoutMax},
		{"StatementTimeout", c.StatementTimeout, postgresTimeoutMax},
		{"LockTimeout", c.LockTimeout, postgresTimeoutMax},
		{"CommitTimeout", c.CommitTimeout, postgresTimeoutMax},
		{"SettleTimeout", c.SettleTimeout, postgresTimeoutMax},
	} {
		if d.value != 0 && (d.value < time.Millisecond || d.value > d.max) {
			return fmt.Errorf("idem: Config.%s is %v: 1ms to %v, or 0 for the default", d.field, d.value, d.max)
		}
	}
	switch c.IsolationLevel {
	case "", pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable, pgx.ReadUncommitted:
	default:
		return fmt.Errorf("idem: Config.IsolationLevel is %q: use a constant of pgx, such as pgx.Serializable", c.IsolationLevel)
	}
	switch {
	case c.AttemptsMax < 1:
		return fmt.Errorf("idem: Config.AttemptsMax is %d: at least 1, or 0 for the default", c.AttemptsMax)
	case c.BodyBytesMax < 1 || c.BodyBytesMax > bodyBytesHardMax:
		return fmt.Errorf("idem: Config.BodyBytesMax is %d: 1 to %d, or 0 for the default", c.BodyBytesMax, bodyBytesHardMax)
	case c.HeaderBytesMax < 1 || c.HeaderBytesMax > headerBytesHardMax:
		return fmt.Errorf("idem: Config.HeaderBytesMax is %d: 1 to %d, or 0 for the default", c.HeaderBytesMax, headerBytesHardMax)
	}
	return nil
}
