package idem

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/internal/failpoint"
)

func init() {
	failpoint.Open = func(store any) failpoint.Store {
		s := store.(*Store)
		return failpoint.Store{Pool: s.pool, Waits: s.flights.count, SetHook: func(hook failpoint.Hook) {
			if hook == nil {
				s.hook.Store(nil)
			} else {
				s.hook.Store(&hook)
			}
		}}
	}
}

// at is a step at which a test may have the call fail. err says how the
// mutation ended.
func (s *Store) at(ctx context.Context, step failpoint.Step, conn *pgxpool.Conn, err error) error {
	hook := s.hook.Load()
	if hook == nil {
		return nil
	}
	event := failpoint.Event{Step: step, Err: err}
	if conn != nil {
		event.Conn = conn.Conn()
	}
	return (*hook)(ctx, event)
}

// count is how many waits are kept.
func (f *flights) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open)
}
