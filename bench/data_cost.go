package bench

import (
	"context"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// dataSize of the pairs that tell what a byte costs: enough to stand out, as much as fits into many
// batches.
const dataSize = 1 << 10

// dataCost: what a pair costs with data and without, on one server; the difference is what the data
// costs in the log. Pairs without come before and after, because a server that has just started has
// yet to touch its memory.
func (v *trial) dataCost(ctx context.Context) error {
	return v.withServer(ctx, v.peer, func(s Server) error {
		plan, err := s.Plan(LockPairs)
		if err != nil {
			return err
		}
		var o [3]*outcome
		for i, size := range []int{0, dataSize, 0} {
			if o[i], err = v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: v.Callers, DataSize: size}); err != nil {
				return err
			}
			if o[i].perCPU == 0 {
				return errTooShort
			}
		}
		v.record("data-cpu", Microseconds, 1e6/o[1].perCPU-(1e6/o[0].perCPU+1e6/o[2].perCPU)/2)
		v.record("data-written", Bytes, (o[1].written-(o[0].written+o[2].written)/2)/dataSize)
		return nil
	})
}
