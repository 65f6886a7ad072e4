package process

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/fieldtest"
)

// TestEveryFieldIsKept: each field of a process, its round, its members and all else is in the
// record, which snapshots and exports of buckets carry, and comes back from it.
func TestEveryFieldIsKept(t *testing.T) {
	var p *Process
	law := &fieldtest.Law{
		Derived: map[string]string{"Process.cachedMembers": "made from the members"},
		Write:   func() []byte { return p.Append(nil) },
		Read:    func(b []byte) (any, error) { return Decode(b) },
	}
	for seed := range uint64(6) {
		w := newSimulation(t, seed, protocol.ProcessOptions{Election: protocol.ProcessElection(seed % 3),
			Debounce: 50 * (seed % 2), RoundTimeout: 2_000, Return: 5_000})
		for i := range 300 {
			w.step()
			if i%60 == 0 {
				p = w.p
				law.Look(t, p)
			}
		}
	}
	p = sampleProcess(t)
	law.Look(t, p)
	law.Whole(t)
}
