package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// When a shard gets another leader, requests may still wait for an answer of the one before. Most
// of the time it answers them: it refuses what it cannot decide any more. One that hangs, or is cut
// off, answers nothing, and one that is cut off from the other instances only cannot know what
// became of them. So a request is sent to the new leader when the old one has had
// formerLeaderTimeout to answer, with the number that it had: it takes effect once. The instance
// itself is suspected, and what it says of other shards is waited for no longer than minSilence.

// formerLeaderTimeout is how long the answers of a shard's former leader are waited for.
const formerLeaderTimeout = 250 * time.Millisecond

// leaderMoved is called when another instance leads a shard. The caller holds no locks.
func (c *cluster) leaderMoved(shard, leader uint64) {
	for _, cn := range c.otherConns(leader) {
		cn.probe()
		if cn.waitsFor(shard) {
			time.AfterFunc(formerLeaderTimeout, func() { c.reroute(cn, shard) })
		}
	}
}

func (c *cluster) otherConns(instance uint64) (list []*conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.connectors {
		if cn := l.live(); cn != nil && cn.instance != instance {
			list = append(list, cn)
		}
	}
	return list
}

// reroute sends what waits on a connection for a shard to the shard's leader, unless that is here
// again.
func (c *cluster) reroute(cn *conn, shard uint64) {
	r := c.routes.Load()
	if w := r.byShard[shard]; c.ctx.Err() != nil || cn.isLost() || w == nil || w.master.Load() == cn.instance {
		return
	}
	cn.failShardCalls(shard)
	// The new leader's first entry has detached the sessions that are at home there: what this
	// connection says does not keep them alive.
	cn.detachFromHome(shard)
}

// findLeader asks another instance who leads: an instance that calls wait for is silent, and there
// may be no connection to one that would announce it. Others may be away as well, so none of them
// is waited for long.
func (c *cluster) findLeader(silent uint64) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, dialTimeout,
		fmt.Errorf("%w: no other instance answered in time", ErrUnreachable))
	defer cancel()
	r := c.routes.Load()
	if r == nil {
		return
	}
	var others []uint64 // those that the client is connected to first
	for _, cn := range c.otherConns(silent) {
		others = append(others, cn.instance)
	}
	for instance := range r.instances {
		if instance != silent && !slices.Contains(others, instance) {
			others = append(others, instance)
		}
	}
	for _, instance := range others {
		if c.askLeaders(ctx, r, instance) {
			return
		}
	}
}

// askLeaders asks an instance who leads the shards. False: it has not answered.
func (c *cluster) askLeaders(ctx context.Context, r *routeTable, instance uint64) bool {
	cn, err := c.connWithin(ctx, r, instance, nil)
	if err != nil {
		return false
	}
	within, cancel := context.WithTimeout(ctx, minSilence)
	defer cancel()
	var reply protocol.MapReply
	if _, err := cn.roundTrip(within, protocol.KindMap, 0, 0, &protocol.MapRequest{}, &reply); err != nil {
		return false
	}
	if reply.Version > r.version {
		_, _ = c.refreshMap(ctx, r)
	}
	r = c.routes.Load()
	for _, s := range reply.Shards {
		if w := r.byShard[s.ID]; w != nil {
			c.learnMaster(w, cn.instance, s.Master, s.Term)
		}
	}
	return true
}
