package governor

import (
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestChangeWaitsForMajority: a change of the cluster waits for the meta shard alone, one of a node
// for data shards of its tier too.
func TestChangeWaitsForMajority(t *testing.T) {
	c := newCluster(8, 1, 2, meta.TierSpec{Name: "cold", Buckets: 2, ShardsPerReplicaset: 1})
	c.join("b", "cold", "", "")
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
	create := func(path, tier string) {
		own, _ := c.machine.TierByName(tier)
		c.apply(&meta.NodeCreate{Path: path, Tier: own.ID, Config: protocol.DefaultNodeConfig()})
	}
	create("/b", "cold")
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
	wants(true, 0, "") // it is of another tier
	create("/a", "default")
	v.State = c.view(p).State
	wants(false, 0, "")
	wants(true, data, "has no majority: 0 of 1 voters up; start ")
	delete(v.Health[1].Shards, meta.MetaShardID)
	wants(false, meta.MetaShardID, "the meta shard has no majority")
	wants(true, meta.MetaShardID, "the meta shard has no majority")
}
