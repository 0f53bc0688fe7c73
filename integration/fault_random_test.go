package integration

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/integration/faults"
)

// Goal: the same as [TestFaultsAtEveryMessage], where several faults follow each
// other: the settling after a lost COMMIT loses its own connection, and so on.
// Method: random kinds of calls, conditions and faults; IDEM_FAULT_ROUNDS says
// how many calls, IDEM_FAULT_SEED which.
func TestFaultsAtRandom(t *testing.T) {
	t.Parallel()
	rounds := max(faultRounds(), 48)
	seed, err := strconv.ParseUint(os.Getenv("IDEM_FAULT_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	random := rand.New(rand.NewPCG(seed, 0))
	var matrices []*faultMatrix
	for _, unit := range faultUnits() {
		condition := faultCondition{mode: pgx.QueryExecModeCacheStatement}
		if rounds < 1000 { // one that the matrices do not have, or all
			matrices = append(matrices, newFaultMatrix(t, unit, condition))
			continue
		}
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
			matrices = append(matrices, newFaultMatrix(t, unit, faultCondition{mode: mode}))
		}
	}
	var group sync.WaitGroup
	endings := [256]atomic.Int64{}
	for range rounds {
		m := matrices[random.IntN(len(matrices))]
		armed := m.randomFaults(random)
		group.Go(func() { endings[m.run(t, armed...)].Add(1) })
	}
	group.Wait()
	injected := int64(0)
	for _, m := range matrices {
		injected += m.injected.Load()
	}
	t.Logf("seed %d: %d faults injected in %d calls: %d answered, %d failed, %d unknown, %d held by half a pipeline, %d met no fault, %d violations",
		seed, injected, rounds, endings['='].Load(), endings['e'].Load(), endings['u'].Load(), endings['H'].Load(), endings['?'].Load(), endings['X'].Load())
}

// randomFaults picks a message of the good run, mostly one after the start-up,
// and then up to two more. Black holes are rarer: each takes seconds.
func (m *faultMatrix) randomFaults(random *rand.Rand) []faults.Fault {
	manners := []faults.Manner{faults.FIN, faults.RST, faults.FIN, faults.RST, faults.FIN, faults.RST, faults.BlackHole}
	places, _ := m.places(faults.Direction(random.IntN(2)))
	first := places[random.IntN(len(places))]
	for try := 0; first.Startup && try < 3; try++ {
		first = places[random.IntN(len(places))]
	}
	armed := make([]faults.Fault, 1+random.IntN(3))
	for i := range armed {
		armed[i] = faults.Fault{Direction: faults.Direction(random.IntN(2)), Index: random.IntN(60)}
		if i == 0 {
			armed[i] = first
		}
		armed[i].Manner = manners[random.IntN(len(manners))]
		if armed[i].Direction == faults.ToServer {
			armed[i].Point = faults.Point(random.IntN(3))
		}
	}
	return armed
}
