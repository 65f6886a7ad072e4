package shard

import "github.com/signalbox-dev/signalbox/protocol"

// A bound is a moment of bucket time at which a hold ends by itself. It stands still without a
// leader and in a frozen bucket, is never restarted, and moves with its bucket. The lease exists at
// its bound, and is gone a millisecond later.
//
// Invariant: only a holder that has said that it knows bounds has one. Such a holder stops before,
// so units are not granted while another client still believes that it holds them.

// scheduleBound sets the timer of an owner to its bound.
func (e *entry) scheduleBound(m *Machine) {
	if at, _ := e.grantOf().Bound(); at != 0 {
		m.schedule(e, at)
	} else {
		m.unschedule(e)
	}
}

// overBound reports whether an owner's hold has passed its bound. For requests of its own session
// it counts as gone then, fired or not.
func (c *clock) overBound(e *entry) bool {
	return !e.waiting && e.timer.pos > 0 && c.bucketTime(e.semaphore.bucket) > e.timer.at && e.grantOf().Ends()
}

// boundHolds reports whether an owner's timer is at its bound, and the owner knows of it.
func boundHolds(e *entry) bool {
	g := e.grantOf()
	at, _ := g.Bound()
	return e.timer.at == at && (e.timer.pos > 0) == (at != 0) && (g == nil || g.Expires == 0 || g.KnowsBounds())
}

// endAtBound takes a lease away at its bound, as a force release does, and does not look at the
// queue.
func endAtBound(m *Machine, e *entry) {
	p, s, g := e.session, e.semaphore, e.grantOf()
	if !g.Ends() {
		s.queue().staySilent(m, e)
		return
	}
	_, cause := g.Bound()
	if !p.ended && !s.node.dropped { // no event follows the end of a session
		m.batch.out.List = append(m.batch.out.List, Event{
			Kind: EventLeaseLost, Session: p.id, Seq: e.seq, Epoch: p.epoch, Node: s.node.id,
			Name: s.name, OrderID: e.orderID, Text: boundTexts[cause], Cause: cause,
		})
		e.rememberOutcome(m, outcomeOK, protocol.Acquired)
		m.lost[boundLosses[cause]]++
	}
	e.remove(m, true, cause)
}

// boundTexts and boundLosses are by the cause of a bound.
var (
	boundTexts = map[protocol.HoldEnd]string{
		protocol.HoldMaxHold:   "hold reached the longest that it may last",
		protocol.HoldPreempted: "a waiter preempted it, and the time to yield is over",
	}
	boundLosses = map[protocol.HoldEnd]LossCause{protocol.HoldMaxHold: LostMaxHold,
		protocol.HoldPreempted: LostPreempted}
)
