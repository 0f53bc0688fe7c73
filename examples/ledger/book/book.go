// Package book is the double-entry book of the ledger: accounts, and the
// transfers that move money between them. Everything it writes, it writes on
// the transaction that its caller commits.
package book

import "github.com/idempg/idempg/examples/ledger/postgres"

// The limits of the ledger. The schema repeats them.
const (
	MinorUnitsMax     = 1 << 53 // exact in every JSON reader, and no sum of two overflows
	ReferenceCharsMax = 140
	MetadataBytesMax  = 4096
)

// Book is the book of one tenant. It works on the pool to read, and on the
// transaction it is given to write.
type Book struct {
	tenant string
	db     *postgres.Queries
	outbox Outbox
}

// New returns the book of tenant. Without an outbox it moves no money.
func New(tenant string, db postgres.DBTX) Book {
	return Book{tenant: tenant, db: postgres.New(db)}
}

// With returns the book whose events and jobs go to outbox.
func (b Book) With(outbox Outbox) Book {
	b.outbox = outbox
	return b
}
