package governor

import (
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestChangeWaitsForMajority: a change of the cluster waits for the meta shard alone, one of a node
// for data shards too.
func TestChangeWaitsForMajority(t *testing.T) {
	c := newCluster(8, 1, 2)
	c.heartbeat()
	g, p := c.governor(), NewProgress()
	for range 20 { // until the shards are ready
		for _, s := range Plan(c.view(p)) {
			if answer, err := g.execute(t.Context(), &s); err == nil {
				p.Done(&s, c.now, c.now, answer)
			}
		}
		c.heartbeat()
	}
	v := c.view(p)
	wants := func(ofNodes bool, shard uint64, text string) {
		t.Helper()
		if at, why := lostQuorum(v, ofNodes); at != shard || !strings.Contains(why, text) || (why == "") != (text == "") {
			t.Errorf("nodes %t: shard %d, %q", ofNodes, at, why)
		}
	}
	wants(false, 0, "")
	wants(true, 0, "")
	data := c.machine.Shards()[0].ID
	delete(v.Health[1].Shards, data)
	wants(false, 0, "")
	wants(true, data, "has no majority: 0 of 1 voters take part; start ")
	delete(v.Health[1].Shards, meta.MetaShardID)
	wants(false, meta.MetaShardID, "the meta shard has no majority")
	wants(true, meta.MetaShardID, "the meta shard has no majority")
}
