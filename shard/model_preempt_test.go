package shard

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// modelPreemption is what an owner has where owners may be preempted.
type modelPreemption struct {
	granted, number, until uint64
	known, silent          bool
}

// preempts are the owners that a waiter needs back, and whom it is for. It counts free units and
// slots again for each set of owners that it looks at.
func (m *model) preempts(s *modelSemaphore) (chosen []*modelEntry, by *modelEntry) {
	q := s.queue
	if q.o.Preempt == protocol.PreemptOff {
		return nil, nil
	}
	var gone, owners []*modelEntry // those of ended sessions count as having given back
	for _, r := range s.entries {
		switch {
		case r.owner && m.alive(r.session):
			owners = append(owners, r)
		case r.owner:
			gone = append(gone, r)
		}
	}
	var heads []*modelEntry
	switch {
	case s.laned():
		heads = s.firsts(s.waiting())
	case s.head() != nil:
		heads = []*modelEntry{s.head()}
	}
	heads = slices.DeleteFunc(heads, m.overdue)
	claimed := map[*modelSlot]bool{}
	for _, h := range heads[:min(len(heads), 16)] {
		fits := func(without []*modelEntry) bool {
			without = append(slices.Clone(gone), without...)
			used := s.used()
			for _, r := range without {
				used -= r.count
			}
			if used > s.limit || h.count > s.limit-used {
				return false
			}
			n := uint64(0)
			for _, x := range q.slots {
				free := x.owner == nil || slices.Contains(without, x.owner)
				if free && !x.drained && !x.leaving && !claimed[x] && s.admits(h.ask, x) {
					n++
				}
			}
			return len(q.slots) == 0 || n >= h.count
		}
		var candidates []*modelEntry
		for _, r := range owners {
			if q.o.Preempt == protocol.PreemptAny || r.ask.level < h.ask.level {
				candidates = append(candidates, r)
			}
		}
		if !fits(candidates) {
			for _, x := range q.slots {
				claimed[x] = claimed[x] || s.admits(h.ask, x)
			}
			if len(q.slots) == 0 {
				return nil, nil
			}
			continue
		}
		slices.SortFunc(candidates, func(a, b *modelEntry) int {
			switch {
			case a.want.silent != b.want.silent:
				return order(b.want.silent)
			case (a.want.number != 0) != (b.want.number != 0):
				return order(a.want.number != 0)
			case q.o.Preempt == protocol.PreemptLower && a.ask.level != b.ask.level:
				return order(a.ask.level < b.ask.level)
			}
			return order(a.order > b.order)
		})
		for !fits(chosen) {
			chosen = append(chosen, candidates[len(chosen)])
		}
		for i := len(chosen) - 1; i >= 0; i-- {
			if less := slices.Delete(slices.Clone(chosen), i, i+1); fits(less) {
				chosen = less
			}
		}
		return chosen, h
	}
	return nil, nil
}

func order(first bool) int {
	if first {
		return -1
	}
	return 1
}

// updatePreempted notifies the owners whose preemption has changed, and again if it goes on.
func (m *model) updatePreempted(s *modelSemaphore, again *modelEntry) {
	if s.queue == nil || m.node(s.node) == nil {
		return
	}
	chosen, by := m.preempts(s)
	for _, r := range s.entries {
		is := slices.Contains(chosen, r)
		switch {
		case r.owner && is && r.want.number == 0:
			m.countRule("owner is preempted")
			if len(chosen) > 1 {
				m.countRule("several owners are preempted")
			}
			m.orders[m.bucketOf(s)]++
			r.want.number, r.want.until, r.want.known = m.orders[m.bucketOf(s)], 0, false
			if g := s.queue.o.Grace; g > 0 {
				if at := max(m.now, r.want.granted+s.queue.o.MinHold) + g; r.until == 0 || r.until > at {
					r.want.until = at
				} else {
					m.countRule("preempted owner has an earlier bound")
				}
			}
			m.notifyPreempted(s, r, r.want.number, by.session.id)
		case r.owner && !is && r.want.number != 0 && m.alive(r.session):
			m.withdraw(s, r)
		case is && r == again:
			m.countRule("silent owner is preempted still")
			m.notifyPreempted(s, r, r.want.number, by.session.id)
		}
	}
}

// withdraw takes a preemption back.
func (m *model) withdraw(s *modelSemaphore, r *modelEntry) {
	m.countRule("owner is preempted no more")
	number := r.want.number
	r.want.number, r.want.until, r.want.known = 0, 0, false
	m.notifyPreempted(s, r, number, 0)
}

func (m *model) notifyPreempted(s *modelSemaphore, r *modelEntry, number, by uint64) {
	if r.session.ended {
		return
	}
	m.emit(Event{Kind: EventLeasePreempted, Session: r.session.id, Seq: r.seq, Epoch: r.session.epoch, Node: s.node, Name: s.name,
		OrderID: r.order, Grant: &protocol.Grant{Now: m.now, Until: r.bound(), Preemption: number}, Flag: by == 0, Result: by})
}

// bound is when the hold of an owner ends, or is looked at; 0: never.
func (r *modelEntry) bound() uint64 {
	if r.want.until != 0 && (r.until == 0 || r.want.until < r.until) {
		return r.want.until
	}
	return r.until
}

// ends reports whether the owner's bound ends it.
func (r *modelEntry) ends() bool {
	return r.bound() != 0 && (r.bound() == r.until || r.want.known)
}

// silent is the bound of an owner that has not said that it knows it.
func (m *model) silent(s *modelSemaphore, r *modelEntry) {
	m.countRule("owner is silent")
	r.want.silent, r.want.until = true, 0
	if g := s.queue.o.Grace; g > 0 && (r.until == 0 || m.now+g < r.until) {
		r.want.until = m.now + g
	}
	m.updatePreempted(s, r)
}

// alterPreempt takes all wants back when the rule changes.
func (m *model) alterPreempt(s *modelSemaphore, was, next protocol.SemaphoreOptions) {
	if was.Preempt == next.Preempt && was.Grace == next.Grace && was.MinHold == next.MinHold {
		return
	}
	m.countRule("rule of preemption altered")
	for _, r := range s.entries {
		if r.owner && r.want.number != 0 {
			m.withdraw(s, r)
		}
		switch {
		case next.Preempt == protocol.PreemptOff:
			r.want = modelPreemption{}
		case r.owner && was.Preempt == protocol.PreemptOff:
			r.want.granted = m.now
		}
	}
}
