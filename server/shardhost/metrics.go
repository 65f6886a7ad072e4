package shardhost

import (
	"cmp"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// logSeconds is a number of ms, as log time has them, in seconds.
func logSeconds(ms uint64) float64 { return float64(ms) / 1000 }

// writeShards shows the shards that have a replica here.
func writeShards(p *metrics.Page, shards []*Shard) {
	led, silent := 0, 0
	for _, d := range shards {
		st, hub := d.Replica().Stats(), d.hubs.Semaphores.Stats()
		var size shard.Sizes
		d.Replica().View(func(machine *shard.Machine) { size = machine.Metrics().Sizes() })
		if st.Leading {
			led += size.Sessions
			silent += size.Silent
		}
		shard := metrics.ID(d.ID())
		p.Write(metrics.ShardLeading, st.Leading, shard)
		p.Write(metrics.ShardLeader, st.Leader, shard)
		p.Write(metrics.ShardTerm, st.Epoch>>16, shard)
		p.Write(metrics.ShardInFlight, st.InFlight, shard)
		p.Write(metrics.ShardAppliedIndex, st.AppliedIndex, shard)
		p.Write(metrics.ShardLogTime, logSeconds(st.LogTime), shard)
		p.Write(metrics.ShardBatches, st.Batches, shard)
		p.Write(metrics.ShardCommands, st.Commands, shard)
		p.Write(metrics.ShardCommandBytes, st.Bytes, shard)
		p.Write(metrics.ShardRefused, st.Refused, shard)
		p.Write(metrics.ShardDropped, st.Dropped, shard)
		p.Write(metrics.ShardUndetermined, st.Undetermined, shard)
		p.Write(metrics.ShardTakeovers, st.TakeOvers, shard)
		p.Write(metrics.ShardOverloaded, st.Overloaded, shard)
		p.Write(metrics.ShardBarriers, st.Barriers, shard)
		p.Write(metrics.ShardBarrierFailures, st.BarrierFails, shard)
		p.Write(metrics.ShardSnapshots, st.Snapshots, shard)
		p.Write(metrics.ShardWaitingBytes, st.WaitingBytes, shard)
		p.Write(metrics.ShardSessions, size.Sessions, shard)
		p.Write(metrics.ShardRemoteSessions, size.RemoteSessions, shard)
		p.Write(metrics.ShardSemaphores, size.Semaphores, shard)
		p.Write(metrics.ShardContended, size.Contended, shard)
		p.Write(metrics.ShardStuckQueues, size.Stuck, shard)
		p.Write(metrics.ShardStreams, hub.Streams, shard)
		p.Write(metrics.ShardWatches, hub.OneShots, shard)
		p.Write(metrics.ShardWatchesFired, hub.Fired+hub.Invalidated, shard)
		p.Write(metrics.ShardDeltas, hub.Deltas, shard)
		p.Write(metrics.ShardStreamsResumed, hub.Resumed, shard)
		p.Write(metrics.ShardPages, hub.Pages, shard)
		p.Write(metrics.ShardStreamsBehind, hub.FellBehind, shard)
		p.Write(metrics.ShardStreamsCut, hub.Cut, shard)
	}
	p.Write(metrics.Sessions, led)
	p.Write(metrics.PreemptedSilent, silent)
}

// writeSemaphores shows the hottest semaphores of the shards that are led here, and in nodes with
// detailed counters the counters of their owner sessions.
func writeSemaphores(p *metrics.Page, shards []*Shard, l *busySemaphores, state *meta.State) {
	for i := range l.list {
		x := &l.list[i]
		n, _ := state.Node(x.Node)
		labels := []string{n.Path, string(x.Name)}
		p.Write(metrics.SemaphoreOwners, x.Owners, labels...)
		p.Write(metrics.SemaphoreWaiters, x.Waiters, labels...)
		p.Write(metrics.SemaphoreOldestWait, logSeconds(x.OldestWait), labels...)
		if x.Stuck {
			p.Write(metrics.SemaphoreStuck, true, labels...)
		}
		writeSlots(p, &x.Slots, labels)
		labels = append(labels, "")
		p.Write(metrics.SemaphoreAcquires, x.Acquires, labels...)
		p.Write(metrics.SemaphoreWaits, x.Waits, labels...)
		p.Write(metrics.SemaphoreReleases, x.Releases, labels...)
	}
	writeGrants(p, shards, state)
	cut := writeOwnerSessions(p, shards, state, p.MaxSeries()-len(l.list))
	p.Write(metrics.SemaphoresTruncated, l.cut || cut)
}

// writeSlots shows how many slots are in each state, where there are any.
func writeSlots(p *metrics.Page, slots *shard.SlotCounts, labels []string) {
	if *slots == (shard.SlotCounts{}) {
		return
	}
	for i, state := range metrics.SlotStates {
		p.Write(metrics.SemaphoreSlots, slots[int(protocol.SlotFree)+i], labels[0], labels[1], state)
	}
}

// writeGrants shows how often the busiest semaphores of the shards that are led here are granted.
// The rate of the counter of an ephemeral semaphore does not say it: the counter ends with it.
func writeGrants(p *metrics.Page, shards []*Shard, state *meta.State) {
	rates := make(map[semaphoreKey]float64) // a semaphore that has moved is in two shards for a while
	for _, d := range shards {
		if !d.Replica().Leading() {
			continue
		}
		for _, g := range d.grants.Top(d.serving.Clock.Now(), p.MaxSeries(), func(uint64) bool { return true }) {
			rates[semaphoreKey{g.Node, string(g.Name)}] += g.PerSecond
		}
	}
	busiest := slices.SortedFunc(maps.Keys(rates), func(a, b semaphoreKey) int {
		return cmp.Or(cmp.Compare(rates[b], rates[a]), cmp.Compare(a.node, b.node), cmp.Compare(a.name, b.name))
	})
	for _, x := range busiest {
		if n, ok := state.Node(x.node); ok {
			p.Write(metrics.SemaphoreGrants, rates[x], n.Path, x.name)
		}
	}
}

// writeOwnerSessions shows the counters of owner sessions in nodes with detailed counters, of at
// most so many; cut: there are more.
func writeOwnerSessions(p *metrics.Page, shards []*Shard, state *meta.State, most int) (cut bool) {
	budget := metrics.Budget{Left: most}
	for _, d := range shards {
		if !d.Replica().Leading() {
			continue
		}
		var rows []shard.CounterRow
		d.Replica().View(func(m *shard.Machine) {
			cut = m.Metrics().SessionCounters(maxNamed, func(r shard.CounterRow) bool {
				if !budget.Take(1) {
					return false
				}
				rows = append(rows, r)
				return true
			}) || cut
		})
		for i := range rows {
			r := &rows[i]
			n, _ := state.Node(r.Node)
			labels := []string{n.Path, string(r.Name), metrics.ID(r.Session)}
			p.Write(metrics.SemaphoreAcquires, r.Acquires, labels...)
			p.Write(metrics.SemaphoreWaits, r.Waits, labels...)
			p.Write(metrics.SemaphoreReleases, r.Releases, labels...)
		}
	}
	return cut || budget.Cut
}
