package integration

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/shardhost"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// TestReadConsistency: RELAXED is answered from memory, STRICT never, and so no read of sessions;
// without a fresh self-check RELAXED asks for one.
func TestReadConsistency(t *testing.T) {
	t.Parallel()
	var clock *replica.ManualClock
	s := start(t, func(c *server.Config) { clock = manual(c); c.Shards = 1 })
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	if _, err := c.lock(node, r.Session, "a", 0); err != nil {
		t.Fatal(err)
	}
	var d *shardhost.Shard
	for _, d = range s.Serving.Shards.All() {
	}
	barriers := func(consistency protocol.Consistency, index uint64) uint64 {
		t.Helper()
		before := d.Replica().Stats().Barriers
		m := &protocol.Describe{Node: node, Name: []byte("a"), Consistency: consistency, MinIndex: index}
		c.must(protocol.KindDescribe, c.bucket(node, "a"), m, &protocol.DescribeReply{})
		return d.Replica().Stats().Barriers - before
	}
	if n := barriers(protocol.Strict, 0); n != 1 {
		t.Errorf("STRICT made %d barriers", n)
	}
	if n := barriers(protocol.Relaxed, 0); n != 0 {
		t.Errorf("RELAXED made %d barriers", n)
	}
	if n := barriers(protocol.ConsistencyDefault, 0); n != 0 {
		t.Errorf("a read of a node that is RELAXED by default made %d barriers", n)
	}
	if n := barriers(protocol.Relaxed, 1<<40); n != 1 {
		t.Errorf("RELAXED with an index from the future made %d barriers", n)
	}
	before := d.Replica().Stats().Barriers
	c.must(protocol.KindSessionDescribe, uint64(protocol.SessionBucket(r.Session)),
		&protocol.SessionDescribe{Session: r.Session, Node: node}, &protocol.SessionInfo{})
	c.must(protocol.KindSessionList, 0, &protocol.SessionList{Shard: d.ID(), Node: node, Limit: 1}, &protocol.SessionListReply{})
	if n := d.Replica().Stats().Barriers - before; n != 2 {
		t.Errorf("two reads of sessions made %d barriers", n)
	}
	clock.Jump(11 * time.Second)
	if n := barriers(protocol.Relaxed, 0); n != 1 {
		t.Errorf("RELAXED a grace period after the last self-check made %d barriers", n)
	}
	c.must(protocol.KindNodeAlter, 0, &protocol.NodeAlter{Path: "/default", Config: protocol.NodeConfig{
		Fields: protocol.FieldReadConsistency, ReadConsistency: protocol.Strict,
	}}, &protocol.NodeInfo{})
	if n := barriers(protocol.ConsistencyDefault, 0); n != 1 {
		t.Errorf("a read of a node that is STRICT made %d barriers", n)
	}
	if n := barriers(protocol.Relaxed, 0); n != 0 {
		t.Errorf("a request that asks for RELAXED made %d barriers", n)
	}
}
