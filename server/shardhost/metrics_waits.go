package shardhost

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// leaderCounts carries to the instance's metrics what a shard counts: waits and holds, lost leases,
// refusals by quotas. Every replica's machine counts them as it applies the log, and only the
// leader's are taken over: the difference from one collection to the next, begun when the
// leadership begins. So a cluster counts each of them once, no counter goes back when a leadership
// moves or a replica goes, and an operation costs two additions in the machine.
type leaderCounts struct {
	mu      sync.Mutex
	leading bool
	former  machineCounts // as of the last collection
}

// machineCounts are the counts of a machine, by node if they have one.
type machineCounts struct {
	times   map[uint64]*shard.Times
	levels  map[uint64]*shard.LevelWaits
	refused map[uint64][quotaWatchers]uint64
	lost    [len(metrics.LossCauses)]uint64

	transfers   uint64
	preemptions [len(metrics.PreemptionOutcomes)]uint64
}

// collect adds what happened since the last collection, if this instance leads. The caller holds
// the machine. most is how many nodes have times of their own.
func (l *leaderCounts) collect(m *shard.Machine, s *Serving, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leading {
		return
	}
	now := machineCounts{times: make(map[uint64]*shard.Times, len(l.former.times))}
	m.Metrics().Times(func(node uint64, t *shard.Times) bool {
		was := l.former.times[node]
		if was == nil {
			was = new(shard.Times)
		}
		if *t != *was {
			s.Metrics.Nodes.Add(node, timesSince(was, t), most)
			*was = *t
		}
		now.times[node] = was
		return true
	})
	now.countRest(m)
	for node, t := range now.levels {
		if c := levelsSince(l.former.levels[node], t); len(c.Levels) > 0 {
			s.Metrics.Nodes.Add(node, c, most)
		}
	}
	for node, n := range now.refused {
		s.refusals.add(node, n, l.former.refused[node])
	}
	for i, n := range now.lost {
		s.Metrics.LeasesLost[i].Add(int(n - l.former.lost[i]))
	}
	s.Metrics.LeaseTransfers.Add(int(now.transfers - l.former.transfers))
	for i, n := range now.preemptions {
		s.Metrics.Preemptions[i].Add(int(n - l.former.preemptions[i]))
	}
	l.former = now
}

// countRest reads all but the times.
func (c *machineCounts) countRest(m *shard.Machine) {
	c.transfers, c.preemptions = m.Metrics().LeaseTransfers(), m.Metrics().Preemptions()
	c.levels = make(map[uint64]*shard.LevelWaits)
	m.Metrics().LevelWaits(func(node uint64, t *shard.LevelWaits) bool {
		was := *t
		c.levels[node] = &was
		return true
	})
	c.lost, c.refused = m.Metrics().LeasesLost(), make(map[uint64][quotaWatchers]uint64)
	m.Metrics().Refusals(func(node uint64, n [quotaWatchers]uint64) bool {
		c.refused[node] = n
		return true
	})
}

// lead begins or ends the leadership, at the place of the log that the machine shows. The caller
// holds the machine.
func (l *leaderCounts) lead(m *shard.Machine, s *Serving, leads bool, most int) {
	l.collect(m, s, most)
	l.mu.Lock()
	defer l.mu.Unlock()
	if leads && !l.leading {
		l.former = machineCounts{times: make(map[uint64]*shard.Times)}
		m.Metrics().Times(func(node uint64, t *shard.Times) bool {
			was := *t
			l.former.times[node] = &was
			return true
		})
		l.former.countRest(m)
	}
	l.leading = leads
}

// restart is called when a snapshot has replaced the machine: its counts begin from 0.
func (l *leaderCounts) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.former = machineCounts{}
}

// timesSince is what happened between two moments.
func timesSince(was, now *shard.Times) *metrics.NodeCounts {
	c := &metrics.NodeCounts{
		Waits: make([]uint64, len(now.Waits.Counts)), Holds: make([]uint64, len(now.Holds.Counts)),
		WaitSum: now.Waits.Sum - was.Waits.Sum, HoldSum: now.Holds.Sum - was.Holds.Sum,
	}
	for i := range c.Waits {
		c.Waits[i] = now.Waits.Counts[i] - was.Waits.Counts[i]
		c.Holds[i] = now.Holds.Counts[i] - was.Holds.Counts[i]
	}
	for i := range c.Ended {
		c.Ended[i] = now.Ended[i] - was.Ended[i]
	}
	return c
}

// levelsSince is timesSince for the levels that were waited at; was may be nil.
func levelsSince(was, now *shard.LevelWaits) *metrics.NodeCounts {
	c := new(metrics.NodeCounts)
	if was == nil {
		was = new(shard.LevelWaits)
	}
	for level := range now {
		if now[level] == was[level] {
			continue
		}
		l := metrics.LevelCounts{Level: level, Sum: now[level].Sum - was[level].Sum}
		for i, n := range now[level].Counts {
			l.Waits = append(l.Waits, n-was[level].Counts[i])
		}
		c.Levels = append(c.Levels, l)
	}
	return c
}

// nodesWithTimes is how many nodes have histograms of their own: one has a line for each bucket.
func nodesWithTimes(maxSeries int) int { return max(1, maxSeries/(len(shard.TimeBounds())+3)) }

// collect takes over what the shards that are led here have counted.
func (s *Serving) collect(shards []*Shard, series int) {
	for _, d := range shards {
		d.Replica().View(func(m *shard.Machine) { d.counts.collect(m, s, nodesWithTimes(series)) })
	}
}

// writeTimes shows waits, holds and lost leases.
func (s *Serving) writeTimes(p *metrics.Page, state *meta.State, paths bool) {
	for i, cause := range metrics.LossCauses {
		p.Write(metrics.LeasesLost, s.Metrics.LeasesLost[i].Get(), cause)
	}
	p.Write(metrics.LeaseTransfers, s.Metrics.LeaseTransfers.Get())
	for i, outcome := range metrics.PreemptionOutcomes {
		p.Write(metrics.Preemptions, s.Metrics.Preemptions[i].Get(), outcome)
	}
	s.Metrics.Nodes.Write(p, func(id uint64) (label string, dropped bool) {
		n, ok := state.Node(id)
		if !ok {
			return "", state.NodeDropped(id)
		}
		return nodeLabel(&n, paths), false
	})
}

// writeOldestWaits shows how long the oldest waiter of each node has waited, the longest first:
// those beyond the cap are left out. Beside them it shows the slow-wait of nodes that have it, for
// an alert that compares the two: those with a wait come first.
func writeOldestWaits(p *metrics.Page, l *busySemaphores, state *meta.State, paths bool) {
	nodes := slices.SortedFunc(maps.Keys(l.oldest), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(l.oldest[b], l.oldest[a]), cmp.Compare(a, b))
	})
	for _, node := range nodes {
		if n, ok := state.Node(node); ok {
			p.Write(metrics.NodeOldestWait, logSeconds(l.oldest[node]), nodeLabel(&n, paths))
		}
	}
	slowWait := func(n *meta.Node) {
		if n.Config.SlowWait != 0 {
			p.Write(metrics.NodeSlowWait, logSeconds(n.Config.SlowWait), nodeLabel(n, paths))
		}
	}
	for _, node := range nodes {
		if n, ok := state.Node(node); ok {
			slowWait(&n)
		}
	}
	for n := range state.Nodes("", "") {
		if _, waits := l.oldest[n.ID]; !waits {
			slowWait(&n)
		}
	}
}

// slowWaitsASecond bounds the log lines of slow waits: a queue of a million may time out at once.
const slowWaitsASecond = 20

// slowWaitLog writes slow waits to the log. It belongs to the goroutine that applies a shard.
type slowWaitLog struct {
	second time.Duration
	lines  int
	missed int
}

// write logs the slow waits of an entry. The leader's instance does.
func (l *slowWaitLog) write(
	log *slog.Logger, ev *shard.Events, shardID uint64, routes *request.Routes, now time.Duration,
) {
	if second := now.Truncate(time.Second); second != l.second {
		if l.missed > 0 {
			log.Warn("slow waits not logged", "count", l.missed, "shard", shardID)
		}
		l.second, l.lines, l.missed = second, 0, 0
	}
	l.missed += ev.MoreSlowWaits
	for i := range ev.SlowWaits {
		if l.lines++; l.lines > slowWaitsASecond {
			l.missed++
			continue
		}
		log.LogAttrs(context.Background(), slog.LevelWarn, "slow wait", slowWaitAttrs(&ev.SlowWaits[i], shardID, routes)...)
	}
}

// slowWaitAttrs says what was waited for, who waited, how long, and who held meanwhile.
func slowWaitAttrs(w *shard.SlowWait, shardID uint64, routes *request.Routes) []slog.Attr {
	path, _ := routes.NodePath(w.Node)
	owners := make([]any, 0, len(w.Owners)+1)
	for i := range w.Owners {
		o := &w.Owners[i]
		owners = append(owners, slog.Group(fmt.Sprint("owner", i+1),
			"session", o.Session, "description", o.Description, "token", o.OrderID, "held_ms", o.Held))
	}
	if w.MoreOwners > 0 {
		owners = append(owners, slog.Int("more_owners", w.MoreOwners))
	}
	attrs := []slog.Attr{
		slog.String("node", path), audit.Name("semaphore", w.Name), slog.Uint64("shard", shardID),
		slog.Uint64("session", w.Session), slog.String("description", w.Description), slog.Uint64("token", w.OrderID),
		slog.Uint64("count", w.Count),
		slog.Uint64("waited_ms", w.Waited), slog.String("outcome", metrics.WaitOutcomes[w.Outcome]),
	}
	if w.Priority > 0 {
		attrs = append(attrs, slog.Int("priority", int(w.Priority)-1), slog.String("key", w.Key))
	}
	return append(attrs, slog.Group("held", owners...))
}
