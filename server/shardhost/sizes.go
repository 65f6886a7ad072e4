package shardhost

import (
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// sizeCounter counts what is in a shard, now and then.
type sizeCounter struct{ last atomic.Pointer[countedSizes] } // nil before the first count

// countedSizes is what was in a shard at a moment.
type countedSizes struct {
	at    time.Duration
	sizes governor.ShardSizes
}

// countPeriod is how often the contents of a shard are counted. That takes time in proportion to
// the number of coordination nodes, while the log waits.
const countPeriod = 5 * time.Second

// count is what is in the shard, counted at most countPeriod ago.
func (c *sizeCounter) count(rep *replica.Shard, now time.Duration) *governor.ShardSizes {
	last := c.last.Load()
	if last == nil || now-last.at >= countPeriod {
		var z shard.Sizes
		rep.View(func(m *shard.Machine) { z = m.Metrics().Sizes() })
		last = &countedSizes{at: now, sizes: governor.ShardSizes{
			Sessions: uint64(z.Sessions), RemoteSessions: uint64(z.RemoteSessions),
			Semaphores: uint64(z.Semaphores), Bytes: z.Bytes,
		}}
		c.last.Store(last)
	}
	return &last.sizes
}
