package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/queue"
)

// queued is a semaphore's side of its queue, for changes of both together. It is nil for a plain
// semaphore, and all that only reads takes a nil one. The plain path calls, where it is not nil:
//
//	an acquire  -> ask     what the request asks for, and whether it is served at once
//	a waiter    -> wait    it waits
//	an owner    -> own     it owns, with its bound
//	a change    -> serve   waiters are granted, then owners are preempted or not
//	an end      -> ended   what the entry had is given back
//	a reply     -> reply   what it says beyond the token
type queued struct {
	*queue.Queue
	s       *semaphore
	charged queue.Usage // that the node counts
}

// laned reports whether waiters stand in lanes.
func (q *queued) laned() bool { return q != nil && q.Laned() }

// lateTokens reports whether an entry that is granted from the queue draws a token.
func (q *queued) lateTokens() bool { return q != nil && q.Late() }

// charge counts the entries' changes in the node.
func (q *queued) charge() {
	is, n := q.Usage(), q.s.node
	n.bytes += is.Bytes - q.charged.Bytes    // modulo 2^64
	n.silent += is.Silent - q.charged.Silent // likewise
	q.charged = is
}

func (q *queued) units() queue.Units { return queue.Units{Used: q.s.used, Limit: q.s.limit} }

// queueEntries gives a queue the entries of its semaphore.
type queueEntries struct {
	m *Machine
	s *semaphore
}

// Gone implements queue.Entries.
func (x *queueEntries) Gone(w *queue.Waiter) bool { return x.m.waiterEnded(w.Entry.(*entry)) }

// Touch implements queue.Entries.
func (x *queueEntries) Touch(owner uint64) { x.m.touch(x.s.owners.seekOrder(owner - 1)) }

// placeOf returns a waiter as queues know it.
func placeOf(e *entry) queue.Place {
	return queue.Place{Place: e.orderID, Waiter: queue.Waiter{Count: e.count, Session: e.session.id, Entry: e}}
}

// entries are good until the next call.
func (q *queued) entries(m *Machine) *queueEntries {
	m.batch.entries = queueEntries{m, q.s}
	return &m.batch.entries
}

// asked are the options of a request; nil is a plain request for a plain semaphore. It
// is good until the next one, as nothing is allocated for it.
type asked struct {
	ask    queue.Ask // once it is granted at once
	demand queue.Demand
	slots  []uint32 // that it gets at once
	laned  bool
	fits   bool
}

// ask looks at a request as if it waited. fits is the answer where there are no lanes.
func (q *queued) ask(m *Machine, r *request, x *protocol.Acquire, fits bool) *asked {
	a := &m.batch.asked
	*a = asked{demand: queue.DemandOf(x.Options), fits: fits}
	if q == nil || !q.Laned() {
		return a
	}
	c := queue.Request{Demand: a.demand, Count: x.Count, Place: math.MaxUint64, Arrival: m.bucketTime(q.s.bucket)}
	if r.entry != nil {
		c.Place, c.Arrival, c.Waiting = r.entry.orderID, q.Ask(r.entry.orderID).Arrival, true
	}
	a.laned = true
	a.slots, a.fits = q.Serves(q.units(), &c)
	return a
}

// bytes is the size that the entry counts beyond a plain one.
func (a *asked) bytes() uint64 {
	if a == nil {
		return 0
	}
	d := a.demand
	if !a.laned || a.fits {
		d.Selector = ""
	}
	return d.Bytes(len(a.slots), a.laned && !a.fits)
}

// refusal is why the request must not wait in the queue.
func (a *asked) refusal(q *queued, e *entry) outcome {
	token := uint64(0)
	if e != nil {
		token = e.orderID
	}
	if a != nil && a.laned && !a.fits && !q.HasLaneFor(a.demand, token) {
		return outcomeLanesLimit
	}
	return outcomeOK
}

// refusal is why a request with options, or on a semaphore with a queue, cannot be served whatever
// others have: no grant can be made with its labels or names, or its hold cannot have the bound
// that it asks for or would get.
func (q *queued) refusal(r *request, x *protocol.Acquire) outcome {
	if x.Options == nil && q == nil {
		return outcomeOK
	}
	o, owns := x.Options, r.entry != nil && !r.entry.waiting
	if o != nil && len(o.Labels)+len(o.Names) > 0 {
		switch {
		case q == nil || !q.HasSlots():
			return outcomeNoSlots
		case !owns && q.AdmitsFewer(o, x.Count): // an owner has its slots
			return outcomeFewSlots
		}
	}
	var longest, hold uint64
	var extend, knows, preempted bool
	if q != nil {
		of := q.Options()
		longest, extend = of.MaxHold, of.Extend
	}
	if o != nil {
		hold, knows = o.Hold, o.Flags&protocol.KnowsBounds != 0
	}
	bounded := longest != 0
	if owns {
		g := r.entry.grantOf()
		bounded, preempted = g.HasKnownBound(), g.Preempted() != 0
	}
	switch {
	case !owns && o != nil && o.Known != 0:
		return outcomeNotOwner
	case !knows && (hold != 0 || bounded):
		return outcomeBound
	case !owns && longest != 0 && hold > longest:
		return outcomeLongHold
	case owns && hold != 0 && preempted:
		return outcomeMustYield
	case owns && hold != 0 && longest != 0 && !extend:
		return outcomeNoExtension
	}
	return outcomeOK
}

// leave takes a waiter out of the queue, and returns its options.
func (q *queued) leave(e *entry) *queue.Ask {
	a := q.Leave(e.orderID, q.s.waiters.n)
	q.charge()
	return a
}

// queueOf is the queue that a request needs, nil for a plain one.
func (a *asked) queueOf(s *semaphore) *queued {
	if a == nil || s.queue() == nil && a.demand.IsPlain() {
		return nil
	}
	return s.ownQueue()
}

// wait adds a waiter, which has asked for this; nil is a plain one.
func (a *asked) wait(m *Machine, e *entry) {
	if q := a.queueOf(e.semaphore); q != nil {
		q.Wait(placeOf(e), a.demand, m.bucketTime(q.s.bucket))
		q.charge()
		q.s.updateStuck()
	}
}

// again replaces the options of a waiter; its entry has the new count.
func (a *asked) again(e *entry) {
	if q := a.queueOf(e.semaphore); q != nil {
		q.AskAgain(e.orderID, e.count, a.demand)
		q.charge()
	}
}

// request is what an acquire that is granted at once asks for, with its slots.
func (a *asked) request(m *Machine, e *entry) (*queue.Ask, []uint32) {
	q := a.queueOf(e.semaphore)
	if q == nil {
		return nil, nil
	}
	a.ask = q.Asked(a.demand, e.count, m.bucketTime(q.s.bucket), e.orderID)
	return &a.ask, a.slots
}

// grant grants to a waiter that asked again, and is served at once.
func (a *asked) grant(m *Machine, e *entry) {
	if a != nil && a.laned {
		e.semaphore.queue().grant(m, e, a.slots)
		return
	}
	e.grant(m)
}

// grant makes a waiter, which fits, an owner of these slots, where tokens are late. The token is
// above all that were granted before.
func (q *queued) grant(m *Machine, e *entry, slots []uint32) {
	a := e.leaveQueue(m)
	q.s.bucket.orderCounter++
	e.session.renumber(e, q.s.bucket.orderCounter)
	e.own(m, a, slots)
}

// own makes an entry an owner in the queue, of these slots if units have names.
func (q *queued) own(m *Machine, e *entry, a *queue.Ask, slots []uint32) {
	q.Own(e.orderID, a, slots, m.bucketTime(q.s.bucket))
	q.charge()
	q.s.updateStuck() // fair ranks a key that was granted behind others
	e.scheduleBound(m)
}

// regrant is what an owner asks for again; nil is a plain request of a plain owner. It is good
// until the next one.
type regrant struct{ queue.Regrant }

// regrantOf looks at an owner that asks again.
func regrantOf(m *Machine, e *entry, x *protocol.Acquire) (*regrant, outcome) {
	r, ok := &m.batch.regrant, false
	if r.Regrant, ok = queue.RegrantOf(e.semaphore.core(), e.orderID, x.Count, x.Options); !ok {
		return nil, outcomeOtherSlots
	}
	return r, outcomeOK
}

func (r *regrant) bytes() (is, was uint64) {
	if r == nil {
		return 0, 0
	}
	return r.Bytes()
}

func (r *regrant) changes() bool { return r != nil && r.Changes() }

func (r *regrant) apply(m *Machine, e *entry) {
	if r == nil || e.semaphore.queue() == nil && r.IsPlain() {
		return
	}
	q := e.semaphore.ownQueue()
	r.Apply(q.Queue, q.entries(m), m.bucketTime(q.s.bucket))
	q.charge()
	e.scheduleBound(m)
}

// serve grants to waiters, the first ones of the lanes where there are any, and then finds out
// which owners are preempted. When there are more waiters that are gone than this Apply may end,
// the queue stands still until their timers fire.
func (q *queued) serve(m *Machine) {
	s := q.s
	if !q.Laned() {
		s.grantNext(m)
		q.preempt(m, nil)
		return
	}
	for q.serveNext(m) {
	}
	q.preempt(m, nil)
}

// serveNext grants or ends the waiter that the queue names, and reports whether there was one.
func (q *queued) serveNext(m *Machine) bool {
	next, slots, fits := q.Next(q.entries(m), q.units())
	if next == nil || !fits && m.batch.releaseBudget <= 0 {
		return false
	}
	e := next.Entry.(*entry)
	if !fits {
		m.batch.releaseBudget--
		e.endWaiter(m)
		return true
	}
	q.grant(m, e, slots)
	emitGranted(m, e)
	m.noteHandOff(e)
	return true
}

// ended is called when an owner has left its semaphore.
func (q *queued) ended(m *Machine, e *entry, cause protocol.HoldEnd) {
	atBound := cause == protocol.HoldPreempted
	var how *protocol.Ending
	if e.session.ended {
		cause, how = protocol.HoldSessionEnded, e.session.ending
	}
	if q.Grant(e.orderID).Preempted() != 0 {
		outcome := PreemptionReleased
		if atBound {
			outcome = PreemptionEnded
		}
		m.preemptions[outcome]++
	}
	q.Keep(queue.Hold{Token: e.orderID, Session: e.session.id, Count: e.count, Since: e.since, Until: m.wall,
		Description: e.session.description, Cause: cause, Ending: how})
	q.disown(m, e)
}

// disown frees the slots of an owner that leaves; a plain semaphore has none.
func (q *queued) disown(m *Machine, e *entry) {
	if q != nil {
		q.Disown(q.entries(m), e.orderID)
		q.charge()
	}
}

// reply returns the part of a reply about an entry beyond its token.
func (q *queued) reply(m *Machine, e *entry) *protocol.Grant {
	now := m.bucketTime(q.s.bucket)
	if e.waiting {
		return q.Ask(e.orderID).Reply(now)
	}
	return q.Reply(q.Grant(e.orderID), now)
}

// details returns a description's details of a semaphore with options; nil for a plain one.
func (q *queued) details(slots bool) *protocol.SemaphoreDetails {
	if q == nil {
		return nil
	}
	o := q.Options()
	if o.Plain() {
		return nil
	}
	d := &protocol.SemaphoreDetails{Options: o}
	if slots {
		d.Slots = q.SlotInfos(func(token uint64, info *protocol.SlotInfo) {
			e := q.s.owners.seekOrder(token - 1)
			info.Session, info.Since = e.session.id, e.since
		})
	}
	return d
}

// describe gives the waiters lane by lane, from where the cursor stands.
func (q *queued) describe(cursor []byte, p *page, out *protocol.DescribeReply) error {
	var c queue.Cursor
	switch {
	case len(cursor) > 0 && cursor[0] == inLanes:
		var ok bool
		if c, ok = queue.ReadCursor(cursor[1:]); !ok {
			return badCursor()
		}
	case len(cursor) > 0 && cursor[0] == inWaiters: // behind this waiter, in its lane
		c = q.CursorBehind(binary.BigEndian.Uint64(cursor[1:]))
	}
	next, more := q.Walk(c, func(a *queue.Ask, rank uint64) bool {
		e := a.Entry.(*entry)
		if !p.takes(entrySize(e)) {
			return false
		}
		o := a.Options()
		o.Rank = rank
		out.Waiters = append(out.Waiters, describeWaiter(e, o))
		return true
	})
	if more {
		out.Cursor = next.Append([]byte{inLanes})
	}
	return nil
}

// level is that of an entry, with its key, for metrics and the log.
func (q *queued) level(e *entry) (level uint8, key string) {
	d := q.DemandOf(e.orderID)
	return d.Level, d.Key
}

// check reports an invariant that does not hold.
func (q *queued) check(m *Machine) error {
	s := q.s
	list := func(t *treap) (places []queue.Place) {
		for e := t.first; e != nil; e = next(e, byOrder) {
			places = append(places, placeOf(e))
		}
		return places
	}
	err := q.Check(q.units(), list(&s.owners), list(&s.waiters), s.bucket.orderCounter, s.bucket.state.isPartial())
	if err == nil && q.charged != q.Usage() {
		err = errCharged
	}
	if err == nil && q.Laned() && s.waiters.n > 0 && s.bucket.state == bucketActive && !s.node.dropped {
		if next, _, fits := q.Next(&queueEntries{m, s}, q.units()); fits {
			err = fmt.Errorf("waiter %d fits and waits", next.Entry.(*entry).orderID)
		}
	}
	return err
}

// mend leaves out what does not fit together in a semaphore whose entries are all here, waiters
// that need not wait included.
func (q *queued) mend(m *Machine) {
	s := q.s
	m.touch(s)
	q.Mend(q.entries(m), s.waiters.n)
	for s.waiters.n > 0 {
		e := s.waiters.first
		if q.Laned() {
			next, _, fits := q.Next(q.entries(m), q.units())
			if !fits { // what counts as gone is ended when the copy is active
				break
			}
			e = next.Entry.(*entry)
		} else if !s.fits(e.count) {
			break
		}
		m.unschedule(e)
		s.node.removeEntryUsage(e)
		s.dequeue(e)
		p := e.session
		p.dropEntry(e)
		if !p.hasReferences() && !p.ended && !m.atHome(p) {
			p.remoteIdle(m)
		}
	}
	q.charge()
}

// restoreEntry adds to the queue an entry that was read with this part, which fits.
func restoreEntry(m *Machine, e *entry, part *queue.Part) {
	if part == nil {
		return
	}
	q := e.semaphore.ownQueue()
	q.Restore(placeOf(e), part)
	q.charge()
	e.semaphore.updateStuck()
	if !e.waiting {
		e.scheduleBound(m)
	}
}

var errCharged = errors.New("the node counts something else than the queue uses")
