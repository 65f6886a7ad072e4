package core

import "github.com/signalbox-dev/signalbox/protocol"

// want is what a lease knows of waiters that want its units back.
type want struct {
	number   uint64 // the present one; 0: nobody wants them
	by       uint64 // session that does, if it is known
	at       uint64 // server's time of the last event
	notified bool   // its program knows that they are wanted, or were
}

// wantEvent is what the server said about the wants of a lease, in an event or an answer.
type wantEvent struct {
	number, by, at uint64
	over           bool
}

// leaseWanted processes the event that a waiter wants a lease's units, or not any more.
func leaseWanted(e *Engine, s *Session, m *protocol.LeaseWanted) {
	v := wantEvent{number: m.Want, by: m.By, at: m.Now, over: m.Over}
	n := s.names.get(string(m.Name))
	switch {
	case n == nil:
	case n.lease != nil && n.lease.Token == m.OrderID:
		n.lease.wantChanged(e, v)
	case n.locked:
		n.early, n.earlyToken = v, m.OrderID // of a grant that was not processed yet
	}
}

// wantGranted takes in what an answer about the lease says, which makes up for events that were lost.
func (l *Lease) wantGranted(e *Engine, g *protocol.Grant) {
	if g != nil && g.Want != 0 {
		l.wantChanged(e, wantEvent{number: g.Want, at: g.Now})
	}
}

// wantChanged takes in an event. One that is older than the last says nothing.
func (l *Lease) wantChanged(e *Engine, v wantEvent) {
	w := &l.want
	if v.at < w.at || l.over != nil {
		return
	}
	w.at = v.at
	switch {
	case !v.over:
		if w.number != v.number {
			w.number, w.by = v.number, 0
		}
		if v.by != 0 {
			w.by = v.by
		}
		if !w.notified {
			w.notified = true
			e.ready.Event = append(e.ready.Event, Event{Kind: LeaseWanted, Session: l.Session, Lease: l})
		}
	case w.number == v.number:
		w.number, w.by = 0, 0
	}
}

// Wanted reports whether a waiter wants the units back, or wanted them before, and the session of the
// one that does now; 0 is none, or one that is not known.
func (l *Lease) Wanted() (notified bool, by uint64) { return l.want.notified, l.want.by }
