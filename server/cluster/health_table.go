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

func (t *healthTable) snapshot() map[uint64]governor.Heartbeat {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// received stores a heartbeat, unless it is older than the last one or from an earlier process. A
// process that starts may have its predecessor's incarnation, and its numbers begin again: so a
// lower number counts once the predecessor has been silent for FreshLimit.
func (t *healthTable) received(b *heartbeat) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.all[b.Instance]
	overtaken := b.Seq <= t.seq[b.Instance] && now-old.Heard <= governor.FreshLimit
	if known && (b.Incarnation < old.Incarnation || b.Incarnation == old.Incarnation && overtaken) {
		return
	}
	h := governor.Heartbeat{Heard: now, Incarnation: b.Incarnation, Shards: make(map[uint64]governor.ShardReport, len(b.Shards))}
	for _, x := range b.Shards {
		h.Shards[x.Shard] = governor.ShardReport{
			Replica: x.Replica, Leader: x.Leader, Term: x.Term, Applied: x.Applied, Members: x.Members, Sizes: x.Sizes,
		}
	}
	next := maps.Clone(t.all)
	next[b.Instance] = h
	t.all = next
	t.seq[b.Instance] = b.Seq
	if t.changed != nil && (!known || now-old.Heard > governor.FreshLimit || healthDiffers(&old, &h)) {
		close(t.changed)
		t.changed = nil
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
func (t *healthTable) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.changed
}

// processExited marks the heartbeat of an instance whose process has ended as stale, until the next
// one.
func (t *healthTable) processExited(instance uint64) {
	stale := t.now() - governor.FreshLimit - 1
	t.mu.Lock()
	defer t.mu.Unlock()
	h, known := t.all[instance]
	if !known || h.Heard <= stale {
		return
	}
	h.Heard = stale
	next := maps.Clone(t.all)
	next[instance] = h
	t.all = next
}

// retain drops instances that are no longer in the cluster.
func (t *healthTable) retain(keep func(instance uint64) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := maps.Clone(t.all)
	maps.DeleteFunc(next, func(id uint64, _ governor.Heartbeat) bool { return !keep(id) })
	if len(next) != len(t.all) {
		t.all = next
		maps.DeleteFunc(t.seq, func(id uint64, _ uint64) bool { return !keep(id) })
	}
}

// newHeartbeat returns a heartbeat message.
func newHeartbeat(instance, incarnation, seq uint64, shards map[uint64]governor.ShardReport) *heartbeat {
	b := &heartbeat{Instance: instance, Incarnation: incarnation, Seq: seq}
	for id, x := range shards {
		b.Shards = append(b.Shards, shardHeartbeat{
			Shard: id, Replica: x.Replica, Leader: x.Leader, Term: x.Term, Applied: x.Applied, Members: x.Members, Sizes: x.Sizes,
		})
	}
	return b
}
