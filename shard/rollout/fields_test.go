package rollout

import (
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/shard/fieldtest"
)

// TestEveryFieldIsKept: each field of a track, its config, locations, versions and instances is in
// the record, which snapshots and exports of buckets carry, and comes back from it.
func TestEveryFieldIsKept(t *testing.T) {
	var x *Track
	law := &fieldtest.Law{
		Derived: map[string]string{
			"instanceTable.sessions": "follows from the instances", "instanceTable.bytes": "counted again",
			"Track.versionBytes": "counted again", "Track.configBytes": "counted again",
			"location.pos": "its place in the list", "location.members": "follows from the instances",
			"location.leaders": "counted again", "location.counted": "counted again",
			"location.unreached": "counted again", "location.explicit": "counted again",
			"location.suspects": "counted again",
			"instance.loc":      "a link, by its place in the list", "instance.contribution": "counted again",
			"instance.atSession": "its place in a list", "instance.atLocation": "its place in a list",
		},
		Write: func() []byte { return x.Append(nil) },
		Read:  func(b []byte) (any, error) { return Decode(b) },
	}
	rare := [3]int{} // states with a target for a share only, a second gate, a gate that does not run
	for seed := range uint64(16) {
		r := newRandomRun(t, seed, false)
		for i := range 300 {
			r.step()
			r.invariants()
			x = r.track
			look := i == 299
			for k, is := range [3]func(*location) bool{
				func(l *location) bool { return l.shareOnly },
				func(l *location) bool { return l.gate.index > 0 },
				func(l *location) bool { return l.gate.state != gateRunning },
			} {
				if rare[k] < 3 && slices.ContainsFunc(x.locations, is) {
					rare[k]++
					look = true
				}
			}
			if look {
				law.Look(t, x)
			}
		}
	}
	law.Whole(t)
}
