package cluster

import (
	"maps"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/server/governor"
)

const (
	// HeartbeatPeriod is the period of heartbeats.
	HeartbeatPeriod = 500 * time.Millisecond
	// heartbeatGap is the least time between two heartbeats.
	heartbeatGap = 50 * time.Millisecond
)

// healthTable is the last heartbeat of each instance. It is soft state: a new governor has heard
// from nobody, and decides nothing that depends on it until it has.
type healthTable struct {
	mu  sync.Mutex
	now func() time.Duration
	all map[uint64]governor.Heartbeat // copied on write: readers keep it
	seq map[uint64]uint64             // of the last heartbeat, by instance

	changed chan struct{} // closed when a heartbeat has changed something; nil without waiters
}

func newHealthTable(now func() time.Duration) *healthTable {
	return &healthTable{now: now, all: map[uint64]governor.Heartbeat{}, seq: map[uint64]uint64{}}
}

func (h *healthTable) snapshot() map[uint64]governor.Heartbeat {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all
}

// received stores a heartbeat, unless it is older than the last one or from an earlier process. A
// process that starts may have its predecessor's incarnation, and its numbers begin again: so a
// lower number counts once the predecessor has been silent for FreshLimit.
func (h *healthTable) received(b *heartbeat) {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	old, known := h.all[b.Instance]
	overtaken := b.Seq <= h.seq[b.Instance] && now-old.Heard <= governor.FreshLimit
	if known && (b.Incarnation < old.Incarnation || b.Incarnation == old.Incarnation && overtaken) {
		return
	}
	beat := governor.Heartbeat{Heard: now, Incarnation: b.Incarnation, Refusals: b.Refusals,
		Shards: make(map[uint64]governor.ShardReport, len(b.Shards))}
	for _, x := range b.Shards {
		beat.Shards[x.Shard] = governor.ShardReport{
			Replica: x.Replica, Leader: x.Leader, Term: x.Term, Applied: x.Applied, Members: x.Members, Sizes: x.Sizes,
		}
	}
	next := maps.Clone(h.all)
	next[b.Instance] = beat
	h.all = next
	h.seq[b.Instance] = b.Seq
	if h.changed != nil && (!known || now-old.Heard > governor.FreshLimit || healthDiffers(&old, &beat)) {
		close(h.changed)
		h.changed = nil
	}
}

// healthDiffers reports whether two heartbeats differ in something that a governor may wait for.
// The applied index and the sizes do not count: they differ each time.
func healthDiffers(before, now *governor.Heartbeat) bool {
	if before.Incarnation != now.Incarnation || len(before.Shards) != len(now.Shards) {
		return true
	}
	for id, x := range now.Shards {
		old, ok := before.Shards[id]
		if old.Applied, old.Sizes = x.Applied, x.Sizes; !ok || old != x {
			return true
		}
	}
	return false
}

// Changed implements governor.Instances.
func (h *healthTable) Changed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

// processExited marks the heartbeat of an instance whose process has ended as stale, until the next
// one.
func (h *healthTable) processExited(instance uint64) {
	stale := h.now() - governor.FreshLimit - 1
	h.mu.Lock()
	defer h.mu.Unlock()
	beat, known := h.all[instance]
	if !known || beat.Heard <= stale {
		return
	}
	beat.Heard = stale
	next := maps.Clone(h.all)
	next[instance] = beat
	h.all = next
}

// retain drops instances that are no longer in the cluster.
func (h *healthTable) retain(keep func(instance uint64) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := maps.Clone(h.all)
	maps.DeleteFunc(next, func(id uint64, _ governor.Heartbeat) bool { return !keep(id) })
	if len(next) != len(h.all) {
		h.all = next
		maps.DeleteFunc(h.seq, func(id uint64, _ uint64) bool { return !keep(id) })
	}
}

// newHeartbeat returns a heartbeat message.
func newHeartbeat(instance, incarnation, seq uint64, shards map[uint64]governor.ShardReport,
	refusals []string) *heartbeat {
	b := &heartbeat{Instance: instance, Incarnation: incarnation, Seq: seq, Refusals: refusals}
	for id, x := range shards {
		b.Shards = append(b.Shards, shardHeartbeat{
			Shard: id, Replica: x.Replica, Leader: x.Leader, Term: x.Term, Applied: x.Applied, Members: x.Members,
			Sizes: x.Sizes,
		})
	}
	return b
}
