package core

import "github.com/signalbox-dev/signalbox/protocol"

// preemption is a lease's knowledge of the waiters that preempt it.
type preemption struct {
	number   uint64 // the present one; 0: none
	by       uint64 // session that does, if it is known
	past     uint64 // the last one that is known to be over
	said     uint64 // the last one whose bound the server knows to be known here, or is told so
	notified bool   // its program knows that it is preempted, or was
}

// earlyReport is of a grant that was not processed yet when it came.
type earlyReport struct {
	report
	token uint64
}

// leasePreempted processes the event that a waiter preempts a lease, or not any more.
func leasePreempted(e *Engine, s *Session, m *protocol.LeasePreempted) {
	v := report{now: m.Now, until: m.Until, preemption: m.Preemption, by: m.By, over: m.Over}
	n := s.names.get(string(m.Name))
	switch {
	case n == nil:
	case n.lease != nil && n.lease.Token == m.OrderID:
		n.lease.learn(e, v, reading{})
	case n.locked:
		n.early = &earlyReport{v, m.OrderID}
	}
}

// preemptionChanged takes in what a report says about preemptions. Numbers rise.
func (b *bound) preemptionChanged(e *Engine, v report, newer bool) {
	w := &b.preempt
	switch {
	case v.preemption == 0 || v.over:
		w.past = max(w.past, v.preemption)
		if newer || w.number <= w.past {
			w.number, w.by = 0, 0
		}
		return
	case v.preemption < w.number || v.preemption <= w.past:
		return
	case v.preemption != w.number:
		w.number, w.by = v.preemption, 0
	}
	if v.by != 0 {
		w.by = v.by
	}
	if !w.notified {
		w.notified = true
		e.ready.Event = append(e.ready.Event, Event{Kind: LeasePreempted, Session: b.l.Session, Lease: b.l})
	}
}

// say has the server know that the bound of the present preemption is known here, once it is: from
// then on it may end the lease there.
func (b *bound) say(e *Engine) {
	b.preempt.said = b.preempt.number
	x := &Change{known: b.preempt.number}
	x.begin(e, b.l)
}

// unsaid notes that the server may not have heard it: the next report has it said again.
func (b *bound) unsaid(known uint64) {
	if b != nil && b.preempt.said == known {
		b.preempt.said = 0
	}
}

// Preempted reports whether a waiter preempts the lease, or did before, and the session of the
// one that does now; 0 is none, or one that is not known.
func (l *Lease) Preempted() (notified bool, by uint64) {
	if l.bound == nil {
		return false, 0
	}
	return l.bound.preempt.notified, l.bound.preempt.by
}
