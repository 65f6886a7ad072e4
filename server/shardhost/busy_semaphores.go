package shardhost

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/shard"
)

const (
	// maxNamed is how many semaphores of a shard may be read by name: with more, those that are
	// waited for and those that are often granted are shown.
	maxNamed = 5_000
	// namedPage is how many of them are read while the log waits.
	namedPage = 500
)

// semaphoreKey names a semaphore.
type semaphoreKey struct {
	node uint64
	name string
}

// busySemaphore is a semaphore that is granted often, or wanted by many or for long.
type busySemaphore struct {
	shard.BusySemaphore // without a limit: it does not exist now
	grantsPerSecond     float64
}

// busySemaphores gathers what top and metrics show of the shards that are led here.
type busySemaphores struct {
	list   []busySemaphore
	at     map[semaphoreKey]int // in list
	oldest map[uint64]uint64    // wait by node, ms
	cut    bool                 // there are more than list has
}

func newBusySemaphores() *busySemaphores {
	return &busySemaphores{at: make(map[semaphoreKey]int), oldest: make(map[uint64]uint64)}
}

// add takes a semaphore in: one that has moved may come from two shards. A shard ranks its queues
// by the time of day, which may have been set since: of those that come here the oldest wait is the
// log's. idle is for how long, in ms, the log has had no entry.
func (b *busySemaphores) add(x shard.BusySemaphore, idle uint64) *busySemaphore {
	if x.Waiters > 0 {
		x.OldestWait += idle
		b.oldest[x.Node] = max(b.oldest[x.Node], x.OldestWait)
	}
	key := semaphoreKey{x.Node, string(x.Name)}
	i, ok := b.at[key]
	switch {
	case !ok:
		i = len(b.list)
		b.at[key] = i
		b.list = append(b.list, busySemaphore{BusySemaphore: x})
	case b.list[i].Limit == 0:
		b.list[i].BusySemaphore = x
	}
	return &b.list[i]
}

// busySource is a *replica.Shard.
type busySource interface {
	View(fn func(m *shard.Machine))
	LogTime() uint64
}

// view reads a shard, with the time since the last entry of its log.
func view(raft busySource, fn func(m *shard.Machine, idle uint64)) {
	raft.View(func(m *shard.Machine) {
		now := raft.LogTime() // 0 without a leadership
		fn(m, now-min(now, m.LogTime()))
	})
}

// readFirst reads the semaphores of a shard that are first by grants, by waiters and by the oldest
// wait: at most so many of each, of the nodes for which in is true. The log waits for look-ups of
// that many names, however many semaphores there are.
func (b *busySemaphores) readFirst(d *Shard, most int, in func(node uint64) bool) {
	grants := d.grants.Top(d.serving.Clock.Now(), most, in)
	b.readQueues(d.Replica(), most, in)
	view(d.Replica(), func(m *shard.Machine, idle uint64) {
		for _, g := range grants {
			l, ok := m.Load().Semaphore(g.Node, g.Name)
			if !ok {
				l = shard.BusySemaphore{Node: g.Node, Name: g.Name}
			}
			b.add(l, idle).grantsPerSecond += g.PerSecond
		}
	})
}

func (b *busySemaphores) readQueues(raft busySource, most int, in func(node uint64) bool) {
	view(raft, func(m *shard.Machine, idle uint64) {
		for _, l := range slices.Concat(m.Load().LongestQueues(most, in), m.Load().OldestWaits(most, in)) {
			b.add(l, idle)
		}
	})
}

// readAll reads what metrics show of a shard: all semaphores if they are few. It reports whether
// they are.
func (b *busySemaphores) readAll(raft busySource) (all bool) {
	var nodes []uint64
	raft.View(func(m *shard.Machine) {
		nodes, all = m.Nodes().IDs(), m.Metrics().Sizes().Semaphores <= maxNamed
	})
	for _, node := range nodes {
		raft.View(func(m *shard.Machine) {
			if ms, waits := m.Load().OldestWait(node, raft.LogTime()); waits {
				b.oldest[node] = max(b.oldest[node], ms)
			}
		})
		var name []byte
		for more := all; more; {
			view(raft, func(m *shard.Machine, idle uint64) {
				name, more = m.Load().SemaphoresFrom(node, name, namedPage, func(x shard.BusySemaphore) { b.add(x, idle) })
			})
		}
	}
	return all
}

// keep keeps those that exist and are the busiest: those with most waiters, then those that were
// granted most often.
func (b *busySemaphores) keep(most int) {
	b.list = slices.DeleteFunc(b.list, func(x busySemaphore) bool { return x.Limit == 0 })
	slices.SortFunc(b.list, func(x, y busySemaphore) int {
		return cmp.Or(cmp.Compare(y.Waiters, x.Waiters), cmp.Compare(y.Acquires, x.Acquires),
			cmp.Compare(x.Node, y.Node), slices.Compare(x.Name, y.Name))
	})
	if len(b.list) > most {
		b.cut = true
		clear(b.list[most:])
		b.list = b.list[:most]
	}
	clear(b.at)
	for i := range b.list {
		b.at[semaphoreKey{b.list[i].Node, string(b.list[i].Name)}] = i
	}
}

// metricsOf reads what metrics show of these shards, at most so many semaphores.
func metricsOf(shards []*Shard, most int) *busySemaphores {
	b := newBusySemaphores()
	for _, d := range shards {
		if !d.Replica().Leading() {
			continue
		}
		if !b.readAll(d.Replica()) {
			b.cut = true
			b.readFirst(d, min(most, maxNamed), func(uint64) bool { return true })
		}
		b.keep(most)
	}
	return b
}
