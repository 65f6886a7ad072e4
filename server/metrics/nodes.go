package metrics

import (
	"maps"
	"slices"
	"strconv"
	"sync"
)

// WaitOutcomes are the outcomes of queued acquires, in the order of NodeCounts.Ended.
var WaitOutcomes = [...]string{"granted", "timed_out", "aborted"}

// LossCauses are the causes of lost leases, in the order of Metrics.LeasesLost.
var LossCauses = [...]string{"expired", "killed", "node_dropped", "force_released", "deleted", "session_ended",
	"max_hold", "preempted"}

// PreemptionOutcomes are the outcomes of wants, in the order of Metrics.Preemptions.
var PreemptionOutcomes = [...]string{"released", "ended", "withdrawn"}

// SlotStates are the states of slots, in the order of shard.SlotCounts from protocol.SlotFree on.
var SlotStates = [...]string{"free", "held", "draining", "drained", "leaving"}

// NodeCounts is what happened in one coordination node: waits and holds by the bounds of
// WaitSeconds, with their sums in ms of log time.
type NodeCounts struct {
	Waits, Holds     []uint64
	WaitSum, HoldSum uint64
	Ended            [len(WaitOutcomes)]uint64
	Levels           []LevelCounts
}

// LevelCounts are waits of one level, by the bounds of PriorityWaitSeconds.
type LevelCounts struct {
	Level int
	Waits []uint64
	Sum   uint64
}

// NodeTimes are the waits and holds of coordination nodes. A node that comes first keeps its
// series; those beyond the limit share one, so that no series ever goes back.
type NodeTimes struct {
	mu     sync.Mutex
	byNode map[uint64]*nodeTimes
	other  *nodeTimes
}

type nodeTimes struct {
	waits, holds *distribution
	ended        [len(WaitOutcomes)]Counter
	levels       map[int]*distribution // those that were waited at
}

func newNodeTimes() *nodeTimes {
	return &nodeTimes{waits: newDistribution(WaitSeconds), holds: newDistribution(HoldSeconds)}
}

// Add adds what happened in a node. most is how many nodes have series of their own.
func (n *NodeTimes) Add(node uint64, c *NodeCounts, most int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.byNode[node]
	switch {
	case t != nil:
	case len(n.byNode) < most:
		if n.byNode == nil {
			n.byNode = make(map[uint64]*nodeTimes)
		}
		t = newNodeTimes()
		n.byNode[node] = t
	default:
		if n.other == nil {
			n.other = newNodeTimes()
		}
		t = n.other
	}
	t.waits.add(c.Waits, c.WaitSum*ms)
	t.holds.add(c.Holds, c.HoldSum*ms)
	for i, k := range c.Ended {
		t.ended[i].Add(int(k))
	}
	for _, l := range c.Levels {
		if t.levels[l.Level] == nil {
			if t.levels == nil {
				t.levels = make(map[int]*distribution)
			}
			t.levels[l.Level] = newDistribution(PriorityWaitSeconds)
		}
		t.levels[l.Level].add(l.Waits, l.Sum*ms)
	}
}

// OtherNodes is the label that the nodes beyond the cap share. No path of a node is like it.
const OtherNodes = "other"

// Write writes the series. label is what a node is called: "" for one whose name is not known,
// which has no series now. One that was dropped is forgotten.
func (n *NodeTimes) Write(p *Page, label func(node uint64) (label string, dropped bool)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(n.byNode)) {
		switch l, dropped := label(id); {
		case dropped:
			delete(n.byNode, id)
		case l != "":
			n.byNode[id].write(p, l)
		}
	}
	if n.other != nil {
		n.other.write(p, OtherNodes)
	}
}

func (t *nodeTimes) write(p *Page, label string) {
	p.writeDistribution(WaitSeconds, t.waits.snapshot(), label)
	p.writeDistribution(HoldSeconds, t.holds.snapshot(), label)
	for _, level := range slices.Sorted(maps.Keys(t.levels)) {
		p.writeDistribution(PriorityWaitSeconds, t.levels[level].snapshot(), label, strconv.Itoa(level))
	}
	for i := range t.ended {
		p.Write(WaitsEnded, t.ended[i].Get(), label, WaitOutcomes[i])
	}
}
