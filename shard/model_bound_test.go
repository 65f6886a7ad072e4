package shard

import "github.com/signalbox-dev/signalbox/protocol"

// longest is the semaphore's longest hold, 0 for none.
func (s *modelSemaphore) longest() uint64 {
	if s == nil || s.queue == nil {
		return 0
	}
	return s.queue.o.MaxHold
}

// boundRefused says why the hold of a request cannot have the bound that it asks for, or would get.
func (m *model) boundRefused(s *modelSemaphore, r *modelEntry, o *protocol.AcquireOptions) protocol.Status {
	hold, knows := uint64(0), false
	if o != nil {
		hold, knows = o.Hold, o.Flags&protocol.KnowsBounds != 0
	}
	owns := r != nil && r.owner
	switch {
	case !owns && o != nil && o.Known != 0:
		m.countRule("known of somebody else than an owner")
		return protocol.StatusBadRequest
	case !knows && (hold > 0 || owns && (r.until > 0 || r.want.known) || !owns && s.longest() > 0):
		m.countRule("bound for a client that knows of none")
		return protocol.StatusPreconditionFailed
	case !owns && s.longest() > 0 && hold > s.longest():
		m.countRule("hold above the longest")
		return protocol.StatusBadRequest
	case owns && hold > 0 && r.want.number != 0:
		m.countRule("owner that is preempted asks for more time")
		return protocol.StatusPreconditionFailed
	case owns && hold > 0 && s.longest() > 0 && !s.queue.o.Extend:
		m.countRule("extension where there is none")
		return protocol.StatusPreconditionFailed
	}
	return protocol.StatusOK
}

// bind gives an entry that is granted its bound.
func (m *model) bind(s *modelSemaphore, r *modelEntry) {
	hold := r.ask.hold
	r.ask.hold = 0
	switch {
	case s.longest() > 0 && (hold == 0 || hold > s.longest()):
		hold = s.longest()
	}
	if hold > 0 && r.ask.flags&protocol.KnowsBounds == 0 {
		m.countRule("granted without a bound, for it knows of none")
	} else if hold > 0 {
		r.until = saturated(m.now, hold)
	}
}

// extend gives an owner more time.
func (m *model) extend(s *modelSemaphore, r *modelEntry, hold uint64) {
	if r.until == 0 || hold == 0 {
		return
	}
	if s.longest() > 0 && s.longest() < hold {
		hold = s.longest()
	}
	if until := saturated(m.now, hold); until > r.until {
		m.countRule("bound extended")
		r.until = until
	} else {
		m.countRule("extension that is no later than the bound")
	}
}

// endAtBound takes a lease away whose bound has passed.
func (m *model) endAtBound(s *modelSemaphore, r *modelEntry) {
	if !r.ends() {
		m.silent(s, r)
		return
	}
	cause := protocol.HoldMaxHold
	if r.bound() != r.until {
		cause = protocol.HoldPreempted
		m.countRule("preempted owner ends at its bound")
	} else if m.now == r.until+1 {
		m.countRule("hold ends at its first moment")
	}
	if m.alive(r.session) && s.head() != nil {
		m.countRule("hold ends at its bound, and others wait")
	}
	if m.node(s.node) != nil && !r.session.ended {
		m.emit(Event{Kind: EventLeaseLost, Session: r.session.id, Seq: r.seq, Epoch: r.session.epoch,
			Node: s.node, Name: s.name, OrderID: r.order, Cause: cause})
		m.recall(r, Event{State: protocol.Acquired, OrderID: r.order})
	}
	m.bounded = cause
	m.remove(s, r, true)
	m.bounded = 0
}

// described is an owner as a description has it.
func (m *model) described(s *modelSemaphore, r *modelEntry) protocol.Owner {
	o := s.asOwner(r)
	if o.Options != nil {
		at := r.bound()
		if r.want.silent { // it ends at no want's bound
			at = r.until
		}
		if at > 0 {
			o.Options.Left = max(1, at-min(at, m.now))
		}
		o.Options.Preempted, o.Options.Silent = r.want.number != 0, r.want.silent
	}
	return o
}
