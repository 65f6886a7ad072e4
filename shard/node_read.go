package shard

import (
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Nodes reads coordination nodes.
type Nodes struct{ reader }

// IDs are the ids of the nodes that are known here and not dropped, in order of id.
func (r Nodes) IDs() []uint64 { return slices.Sorted(maps.Keys(r.m.nodes)) }

// Config is that of a node which is known here and was not dropped.
func (r Nodes) Config(id uint64) (protocol.NodeConfig, bool) {
	n := r.m.nodes[id]
	if n == nil {
		return protocol.NodeConfig{}, false
	}
	return n.config, true
}

// Usage is a node's use of its quotas in this shard, by Quota.
type Usage struct {
	Used  [quotas]uint64
	Limit [quotas]uint64 // what of the quota this shard admits
}

// Usage of a node that is known here and was not dropped.
func (r Nodes) Usage(id uint64) (Usage, bool) {
	n := r.m.nodes[id]
	if n == nil {
		return Usage{}, false
	}
	c := &n.config
	return Usage{
		Used: [quotas]uint64{QuotaSessions: uint64(n.homeSessions.Len()), QuotaSemaphores: n.objectCount(),
			QuotaBytes: n.bytes, QuotaWaiters: n.waiters},
		Limit: [quotas]uint64{
			QuotaSessions: r.m.quotaShare(c.MaxSessions), QuotaSemaphores: r.m.quotaShare(c.MaxSemaphores),
			QuotaBytes:   r.m.quotaShareOf(c.MaxBytes, quotaValueBytes),
			QuotaWaiters: r.m.quotaShare(c.MaxWaiters),
		},
	}, true
}

// Contents counts a node's objects in this shard. Copies that come and go with buckets count too;
// deleted rate limits that are still remembered do not.
type Contents struct {
	Sessions, Semaphores, Owners, Waiters, Processes, Tracks, Limits uint64
}

// Contents of a node that is known here and was not dropped.
func (r Nodes) Contents(id uint64) (Contents, bool) {
	n := r.m.nodes[id]
	if n == nil {
		return Contents{}, false
	}
	limits := uint64(0)
	n.objects[kindLimit].All(func(x *hostedObject) bool {
		if !limitOf(x).Deleted() {
			limits++
		}
		return true
	})
	return Contents{
		Sessions: uint64(n.homeSessions.Len()), Semaphores: uint64(n.semaphoreCount),
		Owners: n.entries - n.waiters, Waiters: n.waiters,
		Processes: uint64(n.objects[kindProcess].Len()), Tracks: uint64(n.objects[kindTrack].Len()),
		Limits: limits,
	}, true
}

// MaxWatchers is what this shard admits of the node's quota of watchers; 0 for a node that is not
// known here. The holder of the watches counts them.
func (r Nodes) MaxWatchers(node uint64) uint64 {
	n := r.m.nodes[node]
	if n == nil {
		return 0
	}
	return r.m.quotaShare(n.config.MaxWatchers)
}
