package core

import "github.com/signalbox-dev/signalbox/protocol"

// want is what a lease knows of waiters that want its units back.
type want struct {
	number   uint64 // the present one; 0: nobody wants them
	by       uint64 // session that does, if it is known
	past     uint64 // the last one that is known to be over
	said     uint64 // the last one whose bound the server knows to be known here, or is told so
	notified bool   // its program knows that they are wanted, or were
}

// earlyReport is of a grant that was not processed yet when it came.
type earlyReport struct {
	report
	token uint64
}

// leaseWanted processes the event that a waiter wants a lease's units, or not any more.
func leaseWanted(e *Engine, s *Session, m *protocol.LeaseWanted) {
	v := report{now: m.Now, until: m.Until, want: m.Want, by: m.By, over: m.Over}
	n := s.names.get(string(m.Name))
	switch {
	case n == nil:
	case n.lease != nil && n.lease.Token == m.OrderID:
		n.lease.learn(e, v, reading{})
	case n.locked:
		n.early = &earlyReport{v, m.OrderID}
	}
}

// wantChanged takes in what a report says about wants. Numbers rise.
func (b *bound) wantChanged(e *Engine, v report, newer bool) {
	w := &b.want
	switch {
	case v.want == 0 || v.over:
		w.past = max(w.past, v.want)
		if newer || w.number <= w.past {
			w.number, w.by = 0, 0
		}
		return
	case v.want < w.number || v.want <= w.past:
		return
	case v.want != w.number:
		w.number, w.by = v.want, 0
	}
	if v.by != 0 {
		w.by = v.by
	}
	if !w.notified {
		w.notified = true
		e.ready.Event = append(e.ready.Event, Event{Kind: LeaseWanted, Session: b.l.Session, Lease: b.l})
	}
}

// say has the server know that the bound of the present want is known here, once it is: from then on
// it may end the lease there.
func (b *bound) say(e *Engine) {
	b.want.said = b.want.number
	x := &Change{known: b.want.number}
	x.begin(e, b.l)
}

// unsaid notes that the server may not have heard it: the next report has it said again.
func (b *bound) unsaid(known uint64) {
	if b != nil && b.want.said == known {
		b.want.said = 0
	}
}

// Wanted reports whether a waiter wants the units back, or wanted them before, and the session of the
// one that does now; 0 is none, or one that is not known.
func (l *Lease) Wanted() (notified bool, by uint64) {
	if l.bound == nil {
		return false, 0
	}
	return l.bound.want.notified, l.bound.want.by
}
