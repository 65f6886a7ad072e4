package core

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// bound is what a lease has beyond a plain one: the moment at which it ends by itself, and a
// preemption.
//
// The moment is one of the bucket's time, in which the server thinks. That goes on no faster than the
// clock here, but for 1 %, and may stand still. Clock means the engine's, with all that it has
// jumped ahead.
//
// Invariant: where the server ends the lease at a bound, the lease is over here before. While the
// bucket's time stands still it goes on here: the lease lasts no longer than the report that
// brought the bound said.
type bound struct {
	l       *Lease
	timer   timer
	reading reading
	now     uint64 // of the last report
	until   uint64 // bucket time; 0: the lease does not end by itself
	hold    uint64 // at its longest hold; 0: there is none
	yield   uint64 // because of a preemption, 0: of none

	set    time.Duration // clock, when until became what it is
	left   time.Duration // bucket time from then to until
	ends   time.Duration // clock: the lease ends
	gone   time.Duration // clock: nobody relies on the units any more, and they are given back
	ending bool          // the program knows that little time is left
	asks   bool          // the server is asked about the lease, if it can be

	preempt preemption
}

// Shares of the time that is left when a bound is set.
const (
	stopShare   = 20              // the lease ends that part before the units are given back
	maxStopTime = 5 * time.Second // and not more than this
	endingParts = 5               // the program is notified when but the last of so many is over
)

// reading is one look at a bucket's time: it was now at the most at a moment of the clock.
type reading struct {
	ok  bool
	at  time.Duration
	now uint64 // ms
}

// readingOf is what the answer to a request says: its Now was taken after the request was sent. Not
// every answer has one.
func readingOf(r *Request, g *protocol.Grant) reading {
	v, ok := reportOf(g)
	return reading{ok: ok, at: r.sent, now: v.now}
}

// maxAhead bounds a difference of bucket times: what is further away never comes.
const maxAhead = 1 << 38 // ms, about 9 years

// before is a moment of the clock at which the bucket's time is not past until yet.
func (r reading) before(until uint64) time.Duration {
	return r.at + between(r.now, until)/100*99
}

// between is the time from one moment of a bucket to another; 0 if that is not later.
func between(now, until uint64) time.Duration {
	return time.Duration(min(max(until, now)-now, maxAhead)) * time.Millisecond
}

// report is a server's statement about a lease, in an answer or an event.
type report struct {
	now, until uint64
	preemption uint64 // its number; 0: none
	by         uint64 // session that does, if it is known
	over       bool   // of an event: the preemption is over
}

// reportOf is what the answer to an acquire says; false: nothing.
func reportOf(g *protocol.Grant) (v report, ok bool) {
	if g == nil || g.Now == 0 && g.Until == 0 && g.Preemption == 0 {
		return v, false
	}
	return report{now: g.Now, until: g.Until, preemption: g.Preemption}, true
}

// answered takes in the answer to a request about the lease.
func (l *Lease) answered(e *Engine, r *Request, g *protocol.Grant) {
	l.grantedBy(r)
	if l.bound != nil {
		l.bound.asks = false
	}
	if v, ok := reportOf(g); ok {
		l.learn(e, v, readingOf(r, g))
	}
}

// learn takes in a report. One that is older than the last says nothing but the time.
func (l *Lease) learn(e *Engine, v report, r reading) {
	if l.Over() != nil {
		return
	}
	first := l.bound == nil
	if first {
		l.bound = &bound{l: l}
		l.bound.timer.of = l.bound
	}
	b := l.bound
	if r.ok && (!b.reading.ok || r.now >= b.reading.now && r.at > b.reading.before(r.now)) {
		b.reading = r
	}
	if newer := first || v.now > b.now; newer || v.now == b.now {
		b.now = v.now
		b.preemptionChanged(e, v, newer)
		b.changed(v, newer)
		if until := earlier(b.hold, b.yield); until != b.until {
			b.until, b.set, b.left, b.ending = until, e.clock(), between(v.now, until), false
		}
		if b.yield != 0 && b.preempt.number == 0 && !r.ok { // an event that cannot lift it: ask for newer ones
			l.ask(e)
		}
	}
	b.arm(e)
	switch {
	case b.until == 0:
	case !b.reading.ok:
		l.ask(e)
	case b.preempt.number != 0 && b.preempt.said != b.preempt.number && !l.ignoresPreemption:
		b.say(e)
	}
}

// changed takes in what a report says about bounds. The longest hold never becomes shorter at the
// server, so of two reports of a moment the longer one is right. A preemption may have come before
// or after the other reports of its moment: only newer ones lift its bound, and any lowers it.
func (b *bound) changed(v report, newer bool) {
	preempted := v.preemption != 0 && !v.over
	if preempted && b.hold != 0 {
		b.hold = max(b.hold, v.until)
	}
	switch {
	case newer && !preempted:
		b.hold, b.yield = v.until, 0
	case !preempted:
		b.hold = max(b.hold, v.until)
	case b.l.ignoresPreemption:
	case v.until == 0 || v.until == b.hold: // the preemption has no bound, or a later one
		if newer {
			b.yield = 0
		}
	case newer || b.yield == 0 || v.until < b.yield:
		b.yield = v.until
	}
}

// earlier is the first of two moments; 0 is never.
func earlier(a, b uint64) uint64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// isSet reports whether the lease ends by itself.
func (b *bound) isSet() bool { return b.until != 0 && b.reading.ok }

// arm finds out when the lease ends, and sets the timer. Without a reading it does not: the bound is
// a preemption's, and the server does not end the lease before the holder has said that it knows
// that.
func (b *bound) arm(e *Engine) {
	if !b.isSet() {
		e.timers.stop(&b.timer)
		return
	}
	b.gone = min(b.reading.before(b.until), b.set+b.left)
	left := max(0, b.gone-b.set)
	b.ends = b.gone - min(left/stopShare, maxStopTime)
	next := b.ends
	if !b.ending {
		next = min(next, b.set+left/endingParts*(endingParts-1))
	}
	e.timers.set(&b.timer, next-e.jumped)
}

// due has the program notified that the lease ends soon, and the server asked for a better reading,
// or ends the lease.
func (b *bound) due(e *Engine) {
	l := b.l
	if l.bound != b || l.Over() != nil || b.check(e) {
		return
	}
	if !b.ending {
		b.endSoon(e)
		l.ask(e)
	}
	b.arm(e)
}

// endSoon has the program notified that the lease ends soon, once for each bound.
func (b *bound) endSoon(e *Engine) {
	if !b.ending {
		b.ending = true
		e.ready.Event = append(e.ready.Event, Event{Kind: LeaseEnding, Session: b.l.Session, Lease: b.l})
	}
}

// check ends the lease if it is time. The units are given back once work that depends on them has
// had the time to stop.
func (b *bound) check(e *Engine) (over bool) {
	if !b.isSet() || e.clock() < b.ends {
		return false
	}
	l, at := b.l, protocol.HoldMaxHold
	if b.until == b.yield {
		at = protocol.HoldPreempted
	}
	n, s := l.name, l.Session
	err := s.lossOf(e, at, "")
	b.endSoon(e) // at the latest
	l.end(e, err)
	e.ready.Event = append(e.ready.Event, Event{Kind: LeaseEnded, Session: s, Lease: l, Err: err})
	n.releaseNext(e, s, l.bucket, l.Token, max(0, b.gone-e.clock())).Msg.Bound = at
	if !n.locked {
		n.locked = true
		n.unlock(e)
	}
	return true
}

// check ends a lease whose time is over, however late the timer.
func (l *Lease) check(e *Engine) {
	if l.bound != nil && l.Over() == nil {
		l.bound.check(e)
	}
}

// ask has the server asked about the lease. Where it cannot be, the next attach asks.
func (l *Lease) ask(e *Engine) {
	if l.bound.asks = true; l.Session.attachment != nil {
		l.name.asks = true
		l.name.enqueue(e)
	}
}

// HeldAt reports whether the lease may be relied on now.
func (l *Lease) HeldAt(e *Engine, now time.Duration) bool {
	l.CheckAt(e, now)
	held := l.Over() == nil && l.Session.held(e)
	e.resolve()
	return held
}

// OverAt is why the lease is over by the clock, or nil.
func (l *Lease) OverAt(e *Engine, now time.Duration) error {
	if l.CheckAt(e, now); l.Over() == nil {
		l.Session.due(e)
		e.resolve()
	}
	return l.Over()
}

// CheckAt ends the lease if its time is over by the clock.
func (l *Lease) CheckAt(e *Engine, now time.Duration) {
	e.enter(now)
	l.check(e)
	e.resolve()
}

// EndsAt is how long it takes until the lease ends by itself, and how long after that work that
// depends on it may take to stop; false: the lease does not end by itself.
func (l *Lease) EndsAt(e *Engine, now time.Duration) (in, toStop time.Duration, ok bool) {
	e.enter(now)
	b := l.bound
	if b == nil || !b.isSet() {
		return 0, 0, false
	}
	return b.ends - e.clock(), b.gone - b.ends, true
}

// Ending reports whether but a fifth of the time is left that the lease had until its bound.
func (l *Lease) Ending() bool { return l.bound != nil && l.bound.ending }

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
