package shard

import (
	"math"

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
