package governor

import (
	"context"
	"testing"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestLeaderSpreadLimit: one sixteenth of a replicaset's leaderships moves at a time, one
// at least; and none begins to move before the new leaders of those before it were heard.
func TestLeaderSpreadLimit(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ shards, most, moves int }{{4, 1, 2}, {16, 1, 10}, {40, 2, 26}, {64, 4, 42}} {
		c := newCluster(64, 3, uint32(x.shards))
		c.join("b", "default", "", "")
		c.join("c", "default", "", "")
		g, p := c.governor(), NewProgress()
		moves, together := 0, 0
		for quiet := 0; quiet < 4; {
			before := c.view(p)
			p.Update(before)
			steps := Plan(before)
			if quiet++; len(steps) > 0 {
				quiet = 0
			}
			moving, handed := 0, false
			for _, s := range c.machine.Shards() {
				if s.TargetMaster != 0 && s.TargetMaster != s.Master {
					moving++
				}
			}
			for _, s := range steps {
				answer, err := g.execute(context.Background(), &s)
				if err != nil {
					t.Fatalf("%s: %v", &s, err)
				}
				p.Done(&s, c.now, c.now, answer)
				switch s.Kind {
				case SetTargetMaster:
					moving++
					moves++
				case TransferLeader:
					handed = true
				}
			}
			if moving > x.most {
				t.Fatalf("of %d leaderships %d move at a time, want %d at most", x.shards, moving, x.most)
			}
			together = max(together, moving)
			if handed {
				after := c.view(p)
				after.Health = before.Health // those who took over were not heard since
				for _, s := range Plan(after) {
					if s.Kind == SetTargetMaster {
						t.Fatalf("%s, before the leaders of the shards that moved were heard", &s)
					}
				}
			}
			c.heartbeat()
			c.detectFailures()
		}
		loads := map[uint64]int{}
		for _, s := range c.machine.Shards() {
			if s.ID != meta.MetaShardID {
				loads[s.Master]++
			}
		}
		for id := uint64(1); id <= 3; id++ {
			if n := loads[id]; n < x.shards/3 || n > x.shards/3+1 {
				t.Errorf("instance %d leads %d of %d shards", id, n, x.shards)
			}
		}
		if together != x.most || moves != x.moves {
			t.Errorf("%d leaderships of %d moved, %d at a time; want %d, %d at a time", moves, x.shards, together, x.moves, x.most)
		}
	}
}
