package idem

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// SweepOptions bound one call of [Store.Sweep].
type SweepOptions struct {
	// BatchRows is how many records one transaction forgets. Defaults to 1000.
	BatchRows int

	// BatchesMax is after how many transactions Sweep returns, although more
	// records may have expired. Defaults to 100.
	BatchesMax int
}

// SweepResult says what a sweep did.
type SweepResult struct {
	Records int64 // records forgotten
	Batches int   // transactions committed
	More    bool  // BatchesMax ended the sweep: call again soon
}

// Sweep forgets expired records, in short transactions that skip rows locked by
// others, so any number of sweepers and the traffic go on beside it. Correctness
// does not need it: an expired record answers nobody, swept or not. Run it from
// a timer or a periodic job, every few minutes.
//
// On an error the result tells what had been committed before it. It returns an
// error that names the field when an option is negative.
func (s *Store) Sweep(ctx context.Context, options SweepOptions) (SweepResult, error) {
	setDefault(&options.BatchRows, 1000)
	setDefault(&options.BatchesMax, 100)
	if options.BatchRows < 0 {
		return SweepResult{}, fmt.Errorf("idem: SweepOptions.BatchRows is %d: at least 1, or 0 for the default", options.BatchRows)
	}
	if options.BatchesMax < 0 {
		return SweepResult{}, fmt.Errorf("idem: SweepOptions.BatchesMax is %d: at least 1, or 0 for the default", options.BatchesMax)
	}

	result := SweepResult{More: true}
	since := pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	for result.More && result.Batches < options.BatchesMax {
		records, err := s.sweepBatch(ctx, options.BatchRows, &since)
		if err != nil {
			return result, explain(err)
		}
		result.Records += records
		result.Batches++
		result.More = records == int64(options.BatchRows)
	}
	return result, nil
}

// sweepBatch forgets at most rows records in one transaction, from the expiry
// since on, and moves since to the latest of them. Whatever the database's
// default is, it reads committed rows: under a snapshot it would fail on a record
// that is taken over beside it.
func (s *Store) sweepBatch(ctx context.Context, rows int, since *pgtype.Timestamptz) (records int64, err error) {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	err = pgx.BeginTxFunc(ctx, s.pool, options, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sweepSQL, rows, *since).Scan(&records, since)
	})
	return records, err
}
