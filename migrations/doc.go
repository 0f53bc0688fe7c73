// Package migrations installs the tables that package idem works on, and tells
// whether a database has them.
//
// [Up] brings a database to the version this library needs, and [Check] only
// looks. Run Up from a deployment step or at start-up: concurrent calls are
// safe, one applies and the others wait. Everything lives in the schema idem,
// the version table idem.goose_db_version included, so the application's own
// migrations are not touched, with goose or without.
//
// # Rights
//
// Up creates the schema when it is missing, which needs CREATE on the database.
// Where the application's role must not have that, let an administrator run
// "create schema idem authorization <role>" once; Up then stays inside it.
// Serving requests needs less: usage on the schema, and select, insert, update
// and delete on idem.records.
//
// # Connection poolers
//
// Up holds a session-level advisory lock while it works. Give it a connection
// that stays on one server session: to Postgres itself, or through a pooler in
// session mode. PgBouncer in transaction mode would lose the lock.
// Check has no such need.
//
// # The goose command
//
// The files work with the goose command-line tool as well. It takes no lock and
// does not create the schema, so one person runs it, and creates the schema first:
//
//	psql "$DATABASE_URL" -c 'create schema if not exists idem'
//	go run github.com/pressly/goose/v3/cmd/goose@v3.30.1 \
//	    -dir "$(go list -m -f '{{.Dir}}' github.com/idempg/idempg)/migrations/sql" \
//	    -table idem.goose_db_version \
//	    postgres "$DATABASE_URL" up
package migrations
