package storm

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/idempg/idempg/examples/ledger/postgres"
)

// evidence is what the database has.
type evidence struct {
	effects map[string][]effect // by the reference of the transfer
	holds   map[uuid.UUID]postgres.Hold
}

// effect is a transfer that was posted.
type effect struct {
	id      uuid.UUID
	changes map[string]int64 // by account
}

// gather reads the evidence.
func (s *Storm) gather(ctx context.Context) (found evidence, err error) {
	found = evidence{effects: map[string][]effect{}, holds: map[uuid.UUID]postgres.Hold{}}
	transfers, err := postgres.New(s.pool).Effects(ctx, tenant)
	if err != nil {
		return found, err
	}
	for _, row := range transfers {
		e := effect{id: row.ID}
		if err := json.Unmarshal(row.Changes, &e.changes); err != nil {
			return found, err
		}
		found.effects[row.Reference] = append(found.effects[row.Reference], e)
	}
	holds, err := postgres.New(s.pool).HoldEffects(ctx, tenant)
	for _, row := range holds {
		found.holds[row.ID] = row
	}
	return found, err
}
