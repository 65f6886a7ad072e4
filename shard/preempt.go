package shard

import "github.com/signalbox-dev/signalbox/protocol"

// PreemptionOutcome is what became of a preemption.
type PreemptionOutcome uint8

const (
	PreemptionReleased  PreemptionOutcome = iota // its owner gave the units back, or its session ended, before the bound
	PreemptionEnded                              // the lease ended at the bound
	PreemptionWithdrawn                          // no waiter needs the units any more

	preemptionOutcomes = iota
)

// preempt finds out which owners are preempted, and notifies those of which that has changed, in
// order of token. Only a change of the waiters, of an owner or of the options can change it. It is
// called after each examination, and after other changes of those. The owner again, if it is not
// nil and preempted still, is notified again.
func (q *queued) preempt(m *Machine, again *entry) {
	if q == nil || !q.MayPreempt(q.s.waiters.n) || q.s.node.dropped {
		return
	}
	s := q.s
	c := &m.batch.choice
	c.Reset(q.Queue, q.entries(m), q.units())
	for e := s.owners.first; e != nil; e = next(e, byOrder) {
		c.Owner(e.orderID, e.count, m.alive(e.session))
	}
	if e := s.waiters.first; e != nil {
		c.Waiters(placeOf(e))
	}
	c.Choose(func(token uint64, was, is bool, by uint64) {
		switch e := s.owners.seekOrder(token - 1); {
		case is && !was:
			m.touch(e)
			s.bucket.orderCounter++
			q.Preempt(token, s.bucket.orderCounter, m.bucketTime(s.bucket))
			q.preempted(m, e, s.bucket.orderCounter, false, by)
		case !is:
			q.withdraw(m, e)
		case e == again:
			q.preempted(m, e, q.Grant(token).Preempted(), false, by)
		}
	})
}

// withdraw withdraws the preemption of an owner.
func (q *queued) withdraw(m *Machine, e *entry) {
	m.touch(e)
	m.preemptions[PreemptionWithdrawn]++
	q.preempted(m, e, q.Withdraw(e.orderID), true, 0)
}

// preempted notifies the holder of a change of its preemption, and sets its bound. No event follows
// the end of a session.
func (q *queued) preempted(m *Machine, e *entry, number uint64, over bool, by uint64) {
	q.charge()
	e.scheduleBound(m)
	p, s := e.session, q.s
	if p.ended {
		return
	}
	g := &protocol.Grant{Now: m.bucketTime(s.bucket), Preemption: number}
	g.Until, _ = q.Grant(e.orderID).Bound()
	m.batch.out.List = append(m.batch.out.List, Event{Kind: EventLeasePreempted, Session: p.id, Seq: e.seq,
		Epoch: p.epoch,
		Node:  s.node.id, Name: s.name, OrderID: e.orderID, Grant: g, Flag: over, Result: by})
}

// staySilent is called at the bound of a preemption that the holder has not confirmed. If the owner
// is still preempted, it is notified again.
func (q *queued) staySilent(m *Machine, e *entry) {
	m.touch(e)
	q.StaySilent(e.orderID, m.bucketTime(q.s.bucket))
	q.charge()
	e.scheduleBound(m)
	q.preempt(m, e)
}

// restartPreemption withdraws all preemptions after the rule has changed. Those that the new rule
// has are drawn again.
func (q *queued) restartPreemption(m *Machine, was protocol.PreemptMode) {
	for e := q.s.owners.first; e != nil; e = next(e, byOrder) {
		if q.Grant(e.orderID).Preempted() != 0 {
			q.withdraw(m, e)
		}
		m.touch(e)
		q.Restart(e.orderID, was, m.bucketTime(q.s.bucket))
	}
	q.charge()
}

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
