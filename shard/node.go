package shard

import (
	"math"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// node is a coordination node as this shard knows it.
type node struct {
	id       uint64
	revision uint64
	config   protocol.NodeConfig
	dropped  bool // it is being removed, and is not served any more
	snapMark uint32

	// A lowered grace period is not used by a take-over before the shard's log time has passed
	// graceFloorAt by the old one: until then a former leader may still trust the old one. floor is
	// 0 when nothing was lowered.
	graceFloor, graceFloorAt uint64
	formerGraces             []formerGrace

	homeSessions   container.Index[*homeSession]
	families       families
	remoteSessions container.Index[protocol.SessionID]
	semaphores     container.Index[*semaphore]               // by name, without those in semaphoreTable.ring
	semaphoreCount int                                       // those in that ring included
	objects        [kindCount]container.Index[*hostedObject] // by kind, by name
	usage
	busiest

	times      *Times      // nil: nothing was measured yet
	levelWaits *LevelWaits // nil: none was measured yet
}

// formerGrace is the grace period for the take-overs up to a generation that are not swept yet,
// kept when the config changed after them. It makes the deadline of a session a fixed number from
// the take-over on.
type formerGrace struct {
	generation uint64
	grace      uint64
}

// objectCount is what counts against the quota of semaphores.
func (n *node) objectCount() uint64 {
	count := n.semaphoreCount
	for kind := range n.objects {
		count += n.objects[kind].Len()
	}
	return uint64(count)
}

func nodeLess(a, b *node) bool { return a.id < b.id }

// grace is the grace period that the take-over with this generation, at this log time, gives to the
// node's sessions.
func (n *node) grace(generation, at uint64) uint64 {
	for _, f := range n.formerGraces {
		if generation <= f.generation {
			return f.grace
		}
	}
	return n.graceAt(at)
}

// graceAt is the grace period of a take-over at this log time by the present config.
func (n *node) graceAt(at uint64) uint64 {
	if n.graceFloor > n.config.GracePeriod && at <= addSaturated(n.graceFloorAt, n.graceFloor) {
		return n.graceFloor
	}
	return n.config.GracePeriod
}

func addSaturated(a, b uint64) uint64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxUint64
}

var (
	errNoNode      = protocol.Refuse(protocol.RefusalNoNode, textNoNode)
	errNodeDropped = protocol.Refuse(protocol.RefusalNoNode, textNodeDropped)
)

// noNode is the refusal of a node that is not known here.
func noNode(m *Machine, id uint64) error {
	if m.isDropped(id) {
		return errNodeDropped
	}
	return errNoNode
}

// applyNodePut makes a node known or changes its config.
func applyNodePut(m *Machine, c *rawCommand) {
	var x NodePutBody
	if !readBody(c.body, x.fields) || x.TokenFloor > maxTokenFloor || x.Node == 0 {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	if m.isDropped(x.Node) {
		m.replyError(errNodeDropped)
		return
	}
	m.bucketTable.raiseTokens(x.TokenFloor)
	n := m.nodes[x.Node]
	switch {
	case n == nil:
		n = &node{id: x.Node, revision: x.Revision, config: x.Config, snapMark: m.snapMark}
		m.nodes[x.Node] = n
		m.nodeIndex.Insert(n, nodeLess)
	case x.Revision > n.revision:
		m.touch(n)
		n.keepFormerGrace(&m.clock, x.Config.GracePeriod)
		n.revision, n.config = x.Revision, x.Config
		n.usage.copyCount = 0 // its shares are computed again
	}
	m.updatePeriods()
	m.reply(protocol.StatusOK, "")
}

// keepFormerGrace prepares a node for another grace period.
func (n *node) keepFormerGrace(c *clock, grace uint64) {
	if grace == n.config.GracePeriod {
		return
	}
	if t := &c.takeovers; t.sweeping {
		for _, o := range t.open {
			if len(n.formerGraces) == 0 || n.formerGraces[len(n.formerGraces)-1].generation < o.generation {
				n.formerGraces = append(n.formerGraces, formerGrace{o.generation, n.graceAt(o.at)})
			}
		}
	} else {
		n.formerGraces = nil
	}
	if grace < n.config.GracePeriod {
		n.graceFloor = n.graceAt(c.logTime)
		n.graceFloorAt = c.logTime
	}
}

// homeSessionAfter is the node's first home session with an id above id.
func (n *node) homeSessionAfter(id uint64) (s *homeSession) {
	n.homeSessions.Ascend(func(o *homeSession) bool { return o.id <= id }, func(o *homeSession) bool {
		s = o
		return false
	})
	return s
}

// homeSessionIn is the node's first home session above an id that is in one of the ranges.
func (n *node) homeSessionIn(ranges []idRange, after uint64) *homeSession {
	for _, r := range ranges {
		if r.high <= after {
			continue
		}
		if s := n.homeSessionAfter(max(after, r.low)); s == nil || s.id <= r.high {
			return s
		}
	}
	return nil
}

// nodeTable has the coordination nodes that this shard knows.
type nodeTable struct {
	nodes     map[uint64]*node       // known, not dropped
	nodeIndex container.Index[*node] // those and the ones being removed, by id
	dropping  []*node                // being removed, in order of their drop
	dropped   []nodeIDs              // ids refused for good, sorted; neighbours are in one range

	// The least periods of the nodes, in ms, 0 without any; they follow from the nodes.
	selfCheck uint64
	grace     uint64
}

// nodeIDs is a range of ids of nodes. The cluster counts ids upwards, so the ranges between the nodes
// that are there are few, however many nodes have gone.
type nodeIDs struct{ first, last uint64 }

// isDropped reports whether a node was known here, and is refused for good.
func (t *nodeTable) isDropped(id uint64) bool {
	_, found := t.findDropped(id)
	return found
}

// findDropped finds the range that has an id, or the place where it would be.
func (t *nodeTable) findDropped(id uint64) (at int, found bool) {
	return slices.BinarySearchFunc(t.dropped, id, func(r nodeIDs, id uint64) int {
		switch {
		case r.last < id:
			return -1
		case r.first > id:
			return 1
		}
		return 0
	})
}

// addDropped has an id refused for good. It is false if it was already.
func (t *nodeTable) addDropped(id uint64) bool {
	at, found := t.findDropped(id)
	if found {
		return false
	}
	after := at > 0 && t.dropped[at-1].last == id-1
	before := at < len(t.dropped) && t.dropped[at].first == id+1
	switch {
	case after && before:
		t.dropped[at-1].last = t.dropped[at].last
		t.dropped = slices.Delete(t.dropped, at, at+1)
	case after:
		t.dropped[at-1].last = id
	case before:
		t.dropped[at].first = id
	default:
		t.dropped = slices.Insert(t.dropped, at, nodeIDs{id, id})
	}
	return true
}

// nodeFrom is the first node whose id is not below id.
func (t *nodeTable) nodeFrom(id uint64) (n *node) {
	t.nodeIndex.Ascend(func(o *node) bool { return o.id < id }, func(o *node) bool {
		n = o
		return false
	})
	return n
}

// hasHomeSessions reports whether there are home sessions with an id above low and not above high,
// whatever the state of their bucket's copy.
func (t *nodeTable) hasHomeSessions(low, high uint64) (some bool) {
	t.nodeIndex.All(func(n *node) bool {
		s := n.homeSessionAfter(low)
		some = s != nil && s.id <= high
		return !some
	})
	return some
}

// updatePeriods is called when a node's config came, changed or went.
func (t *nodeTable) updatePeriods() {
	t.selfCheck, t.grace = 0, 0
	for _, n := range t.nodes { // the least of all: the order does not matter
		if p := n.config.SelfCheckPeriod; t.selfCheck == 0 || p < t.selfCheck {
			t.selfCheck = p
		}
		if p := n.config.GracePeriod; t.grace == 0 || p < t.grace {
			t.grace = p
		}
	}
}
