package storm

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	calmMin     = 200 * time.Millisecond
	calmMax     = 1200 * time.Millisecond
	backendsMax = 4 // that end at once
)

// wreak does damage until ctx ends, a piece at a time.
func (s *Storm) wreak(ctx context.Context) {
	random := rand.New(rand.NewPCG(s.config.Seed, 0)) // the clients are counted from 1
	for pause(ctx, calmMin+time.Duration(random.Int64N(int64(calmMax-calmMin)))) {
		instance := s.instances[random.IntN(len(s.instances))]
		switch random.IntN(5) {
		case 0, 1:
			if instance.Kill() {
				s.kills.Add(1)
			}
		case 2:
			if instance.Restart() {
				s.restarts.Add(1)
			}
		default:
			s.terminate(ctx, 1+random.IntN(backendsMax))
		}
	}
}

// terminate ends backends of the service, those first that are at work.
func (s *Storm) terminate(ctx context.Context, most int) {
	tag, err := s.pool.Exec(ctx, `
		select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and application_name = $1
		order by state = 'idle', random() limit $2`, applicationName, most)
	if err == nil { // else ctx has ended
		s.backends.Add(tag.RowsAffected())
	}
}
