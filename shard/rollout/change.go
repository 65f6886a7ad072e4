package rollout

import (
	"slices"
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

// change is one call that changes a track: its time, and where its events go.
type change struct {
	*Track
	now Now
	out *Events
}

func (c change) emit(e protocol.TrackEvent) {
	if c.out != nil {
		e.Log, e.Wall = c.clock, c.now.Wall
		c.out.List = append(c.out.List, e)
	}
}

// updateStates ends every call that changed something: it emits the state that each location is in
// now.
func (c change) updateStates() {
	c.dropGates()
	for _, l := range c.locations {
		if l.unreached == 0 {
			l.blockedSince = 0
		} else if l.blockedSince == 0 {
			l.blockedSince = c.clock
		}
		s, until := c.state(l, c.clock)
		if s == protocol.StateStalled && c.config.AutoDemote && c.demote(l) {
			if l.unreached == 0 {
				l.blockedSince = 0
			}
			s, until = c.state(l, c.clock)
		}
		if s == l.announced {
			continue
		}
		l.announced = s
		c.emit(protocol.TrackEvent{
			Kind: protocol.TrackEventState, Location: l.name, State: s, Until: until,
			Version: l.target, Generation: l.generation,
			Text: strconv.Itoa(l.counted-l.unreached) + " of " + strconv.Itoa(l.counted) + " leaders have it",
		})
		switch s {
		case protocol.StateStalled:
			c.emit(protocol.TrackEvent{Kind: protocol.TrackEventAlert, Location: l.name, State: s,
				Version: l.target, Text: "leaders do not load the target: " + l.blockers(maxBlockers)})
		case protocol.StateEmpty:
			c.emit(protocol.TrackEvent{Kind: protocol.TrackEventAlert, Location: l.name, State: s,
				Version: l.target, Text: "no instance is left; later locations stand still"})
		}
	}
}

// demote makes leaders that hang count as followers.
func (c change) demote(l *location) bool {
	var list []*instance
	for _, p := range l.members {
		if p.contribution.unreached && !p.reportsError() && c.clock >= c.demoteAt(p) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, byID)
	for _, p := range list {
		p.demoted = true
		p.updateCounts(&c.plan)
		c.emit(protocol.TrackEvent{Kind: protocol.TrackEventRole, Location: l.name, Instance: p.id,
			Text: "stalls, and counts as a follower"})
	}
	return len(list) > 0
}

func (c change) remove(p *instance, text string) {
	c.instances.remove(p)
	if l := p.loc; len(l.members) == 0 {
		l.emptySince = c.clock
	}
	c.emit(protocol.TrackEvent{Kind: protocol.TrackEventLeft, Location: p.loc.name, Instance: p.id,
		Generation: p.incarnation, Text: text})
}

func (c change) applyReport(p *instance, r *protocol.UpdateReport) {
	p.seq, p.report, p.reportGen, p.reportAt = r.Seq, *r, p.loc.generation, c.clock
	if p.demoted && p.reached(&c.plan) {
		p.demoted, p.roleAt = false, c.clock
		c.emit(protocol.TrackEvent{Kind: protocol.TrackEventRole, Location: p.loc.name, Instance: p.id,
			Text: "has caught up, and counts as a leader again"})
	}
	p.updateCounts(&c.plan)
}

func isReelection(r protocol.TrackReason) bool {
	return r >= protocol.ReasonExplicit && r <= protocol.ReasonOperator
}

// Events collects the output of a call, in order. The zero value is ready; Reset keeps the memory.
type Events struct {
	List []protocol.TrackEvent
}

// Reset forgets the changes and the references they hold.
func (e *Events) Reset() {
	clear(e.List)
	e.List = e.List[:0]
}
