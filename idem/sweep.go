package idem

import (
	"context"
	"fmt"
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
	for result.More && result.Batches < options.BatchesMax {
		tag, err := s.pool.Exec(ctx, sweepSQL, options.BatchRows)
		if err != nil {
			return result, explain(err)
		}
		result.Records += tag.RowsAffected()
		result.Batches++
		result.More = tag.RowsAffected() == int64(options.BatchRows)
	}
	return result, nil
}
