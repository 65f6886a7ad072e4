package replica

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard"
)

// fill makes semaphores, many at a time, over sessions of their own.
func (c *cluster) fill(records int) {
	c.t.Helper()
	l := c.leader()
	const callers, window = 16, 50
	data := make([]byte, 300)
	var wg sync.WaitGroup
	for k := range callers {
		wg.Go(func() {
			x := tryCaller(c.t, c.shards[l], c.recs[l], uint64(1+k)<<40, 600_000, testBuckets)
			for i := 0; x != nil && i < records/callers; i++ {
				x.request++
				x.seq++
				m := protocol.Create{
					Head: protocol.Head{Session: x.session, Seq: x.seq, Low: x.low},
					Name: fmt.Appendf(nil, "f%d-%d", k, i), Limit: 1, Data: data,
				}
				o := Origin{Conn: x.conn, Request: x.request}
				if c.shards[l].Submit(shard.Command{Kind: shard.CmdCreate, Node: testNode,
					Epoch: 1, Body: protocol.AppendBody(nil, &m)}, o) != protocol.StatusOK {
					return
				}
				if i%window == window-1 {
					c.recs[l].result(o)
					x.low = x.seq + 1
				}
			}
		})
	}
	wg.Wait()
}

// A replica joins a shard of many records, which come to it as a snapshot in many pieces, while the
// shard works.
func TestJoinALargeShard(t *testing.T) {
	t.Parallel()
	records := form.Of(12_000, 400_000)
	c := newClusterOf(t, 2, 1, func(cfg *ShardConfig) {
		cfg.SnapshotEntries, cfg.CompactionOverhead = 1_000_000, 1
		cfg.Sink.(*recorder).hash = false
	})
	c.populate()
	c.fill(records)
	c.snapshot(0)
	c.make("before")
	w := c.startWriters(1)
	start := time.Now()
	c.add(1, 2)
	c.run(1)
	c.caughtUp(1)
	took := time.Since(start)
	if r := c.recs[1]; c.shards[1].Stats().Restores == 0 {
		t.Errorf("the replica was not restored from a snapshot: %+v, %d entries", c.shards[1].Stats(), len(r.indexes))
	}
	c.promote(2)
	c.awaitRole(1, RoleVoter)
	ok, failed := w.checkWithout(false)
	bytes := c.shards[1].logTail.snapshot.Load()
	t.Logf("%d records, %d bytes, caught up after %v; meanwhile %d acknowledged, %d failed",
		records, bytes, took, ok, failed)
	if ok == 0 {
		t.Error("the shard did not work meanwhile")
	}
	if !exists(t, c.shards[1], "f3-77") {
		t.Error("a semaphore is missing")
	}
	// A tick may be applied on one of them and not yet on the other.
	eventually(t, "the replicas to be equal", func() bool { return c.shards[0].Digest() == c.shards[1].Digest() })
}
