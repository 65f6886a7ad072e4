package shard

import "github.com/signalbox-dev/signalbox/protocol"

// A bound is a moment of bucket time at which a hold ends by itself. It stands still without a
// leader and in a frozen bucket, is never restarted, and moves with its bucket. The lease exists at
// its bound, and is gone a millisecond later.
//
// Invariant: only a holder that has said that it knows bounds has one. Such a holder stops before,
// so nobody is granted what another one still believes in.

// bound is when the hold of an owner ends, 0 for never, and why.
func (p *place) bound() (at uint64, cause protocol.HoldEnd) {
	if p == nil {
		return 0, 0
	}
	if p.want.until != 0 && (p.until == 0 || p.want.until < p.until) {
		return p.want.until, protocol.HoldWanted
	}
	return p.until, protocol.HoldMaxHold
}

// ends reports whether the lease ends at its bound: its holder knows it.
func (p *place) ends() bool {
	at, cause := p.bound()
	return at != 0 && (cause != protocol.HoldWanted || p.want.known)
}

// knowsBounds reports whether the holder ends by itself before a bound.
func (d *demand) knowsBounds() bool { return d.flags&protocol.KnowsBounds != 0 }

// longestHold is the semaphore's, in ms, 0 for none, and whether owners may ask for more time.
func longestHold(s *semaphore) (longest uint64, extend bool) {
	if q := s.queue(); q != nil {
		return q.maxHold, q.extend
	}
	return 0, false
}

// startHold gives an entry that is granted now the bound that it asked for, or that of its
// semaphore. A waiter from before an alter may not know bounds: it gets none.
func startHold(m *Machine, e *entry) {
	if q := e.semaphore.queue(); q != nil {
		startWant(m, e, q)
	}
	p := e.place()
	if p == nil {
		return
	}
	hold := p.hold
	if longest, _ := longestHold(e.semaphore); longest != 0 && (hold == 0 || hold > longest) {
		hold = longest
	}
	if p.hold = 0; hold != 0 && p.knowsBounds() {
		p.until = addSaturated(m.bucketTime(e.semaphore.bucket), hold)
		scheduleBound(m, e)
	}
}

// scheduleBound sets the timer of an owner to its bound.
func scheduleBound(m *Machine, e *entry) {
	if at, _ := e.place().bound(); at != 0 {
		m.schedule(e, at)
	} else {
		m.unschedule(e)
	}
}

// overBound reports whether an owner's hold has passed its bound. For requests of its own session
// it counts as gone then, fired or not.
func (c *clock) overBound(e *entry) bool {
	return !e.waiting && e.timer.pos > 0 && c.bucketTime(e.semaphore.bucket) > e.timer.at && e.place().ends()
}

// boundRefusal is why the hold of a request cannot have the bound that it asks for or would get.
func boundRefusal(q *request, o *protocol.AcquireOptions) outcome {
	var longest, hold uint64
	var extend, knows bool
	if q.semaphore != nil {
		longest, extend = longestHold(q.semaphore)
	}
	if o != nil {
		hold, knows = o.Hold, o.Flags&protocol.KnowsBounds != 0
	}
	owns := q.entry != nil && !q.entry.waiting
	bounded := longest != 0
	wanted := false
	if owns {
		p := q.entry.place()
		bounded = p != nil && (p.until != 0 || p.want.known)
		wanted = p != nil && p.want.number != 0
	}
	switch {
	case !owns && o != nil && o.Known != 0:
		return outcomeNotOwner
	case !knows && (hold != 0 || bounded):
		return outcomeBound
	case !owns && longest != 0 && hold > longest:
		return outcomeLongHold
	case owns && hold != 0 && wanted:
		return outcomeMustYield
	case owns && hold != 0 && longest != 0 && !extend:
		return outcomeNoExtension
	}
	return outcomeOK
}

// extendedBound is the bound of an owner that asks for so much more time, or 0 if it has none.
func extendedBound(m *Machine, q *request, hold uint64) uint64 {
	until := q.entry.place().until
	if until == 0 || hold == 0 {
		return until
	}
	if longest, _ := longestHold(q.semaphore); longest != 0 {
		hold = min(hold, longest)
	}
	return max(until, addSaturated(m.bucketTime(q.bucket), hold))
}

// endAtBound takes a lease away at its bound, as a force release does, and does not look at the
// queue.
func endAtBound(m *Machine, e *entry) {
	p, s := e.session, e.semaphore
	_, cause := e.place().bound()
	if !e.place().ends() {
		staySilent(m, e)
		return
	}
	if !p.ended && !s.node.dropped { // no event follows the end of a session
		m.batch.out.List = append(m.batch.out.List, Event{
			Kind: EventLeaseLost, Session: p.id, Seq: e.seq, Epoch: p.epoch, Node: s.node.id,
			Name: s.name, OrderID: e.orderID, Text: boundTexts[cause], Cause: cause,
		})
		e.rememberOutcome(m, outcomeOK, protocol.Acquired)
		m.lost[boundLosses[cause]]++
	}
	m.batch.boundCause = cause
	e.remove(m, true)
	m.batch.boundCause = 0
}

// boundTexts and boundLosses are by the cause of a bound.
var (
	boundTexts = map[protocol.HoldEnd]string{
		protocol.HoldMaxHold: "hold reached the longest that it may last",
		protocol.HoldWanted:  "a waiter wanted the units, and the time to yield is over",
	}
	boundLosses = map[protocol.HoldEnd]LossCause{protocol.HoldMaxHold: LostMaxHold, protocol.HoldWanted: LostWanted}
)

// timeLeft is how long the hold of an owner lasts from this moment of its bucket on, in ms; 0: it
// has no bound. Nothing ends the hold of a silent owner but its longest hold.
func timeLeft(e *entry, now uint64) uint64 {
	p := e.place()
	at, _ := p.bound()
	if p != nil && p.want.silent {
		at = p.until
	}
	if at == 0 {
		return 0
	}
	return max(1, at-min(at, now))
}
