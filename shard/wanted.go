package shard

import "github.com/signalbox-dev/signalbox/protocol"

// wantedRule is which owners of a semaphore waiters may want units back from, and how soon.
type wantedRule struct {
	mode    protocol.WantedMode
	grace   uint64 // ms; 0: owners are only told
	minHold uint64 // ms
}

func ruleOf(o *protocol.SemaphoreOptions) wantedRule { return wantedRule{o.Wanted, o.Grace, o.MinHold} }

// wantState is what an owner has where owners may be wanted.
//
// Invariant: an owner that is not wanted has no bound from it, and has not said that it knows one. A
// lease ends at this bound only if its holder has said so: then the holder has stopped before.
type wantState struct {
	granted uint64 // bucket time of the grant, or of the alter that made owners wanted
	number  uint64 // from the bucket's counter; 0: nobody wants it
	until   uint64 // bound, in bucket time; 0: none. Of a silent owner, when it is looked at again
	known   bool   // the holder has said that it knows this bound
	silent  bool   // it has not said so by its bound, and nothing since
}

// WantOutcome is what became of a want.
type WantOutcome uint8

const (
	WantReleased  WantOutcome = iota // its owner gave the units back, or its session ended, before the bound
	WantEnded                        // the lease ended at the bound
	WantWithdrawn                    // the units were not wanted any more

	wantOutcomes = iota
)

// startWant notes the time of a grant where owners may be wanted.
func startWant(m *Machine, e *entry, q *queue) {
	if q.wanted.mode == protocol.WantedOff {
		return
	}
	x := placeCopy(e)
	x.want = wantState{granted: m.bucketTime(e.semaphore.bucket)}
	e.setPlace(&x)
}

// placeCopy is the entry's place, to be changed and set again.
func placeCopy(e *entry) place {
	if p := e.place(); p != nil {
		return *p
	}
	return place{demand: plainDemand}
}

// updateWanted finds out which owners are wanted, and notifies those of which that has changed,
// in order of token. Only a change of the waiters, of an owner or of the options can change it. It is
// called after each examination, and after other changes of those.
func updateWanted(m *Machine, s *semaphore) {
	if q := s.queue(); q != nil {
		(&wantedOwners{m, s, q}).update(nil)
	}
}

// wantedOwners changes which owners of a semaphore are wanted.
type wantedOwners struct {
	m *Machine
	s *semaphore
	q *queue
}

// update is updateWanted that notifies the owner again, if it is wanted still.
func (w *wantedOwners) update(again *entry) {
	m, s, q := w.m, w.s, w.q
	if q.wants == 0 && (q.wanted.mode == protocol.WantedOff || s.waiters.n == 0) || s.node.dropped {
		return
	}
	c := &m.batch.want
	c.set(m, s, q)
	head, chosen := c.choose()
	by := uint64(0)
	if head >= 0 {
		by = c.heads[head].entry.session.id
	}
	for _, i := range chosen {
		c.owners[i].chosen = true
	}
	for i := range c.owners {
		switch o := &c.owners[i]; {
		case o.chosen && !o.wanted:
			w.become(o.entry, by)
		case !o.chosen && o.wanted:
			w.withdraw(o.entry)
		case o.chosen && o.entry == again:
			w.notify(again, again.place().want.number, false, by)
		}
	}
}

// set takes in the owners, and the waiters that did not fit, in the order of the policy. An owner
// whose session is gone counts as having given back. A waiter that counts as gone is none.
func (c *wantChoice) set(m *Machine, s *semaphore, q *queue) {
	*c = wantChoice{higher: q.wanted.mode == protocol.WantedHigher, slots: s.hasSlots(), limit: s.limit, used: s.used,
		heads: c.heads[:0], owners: c.owners[:0], claimed: c.claimed, order: c.order, taken: c.taken}
	if c.slots {
		c.free, c.usable = q.slots.available(), newSlotSet(len(q.slots.list))
		for i := range q.slots.list {
			if x := &q.slots.list[i]; !x.drained && !x.leaving {
				c.usable.add(i)
			}
		}
	}
	for e := s.owners.first; e != nil; e = next(e, byOrder) {
		p := placeCopy(e)
		if m.alive(e.session) {
			c.owners = append(c.owners, wantOwner{token: e.orderID, count: e.count, level: p.level,
				wanted: p.want.number != 0, silent: p.want.silent, slots: p.slots, entry: e})
			continue
		}
		c.used -= e.count
		for _, i := range p.slots {
			if c.usable.has(int(i)) {
				c.free.add(int(i))
			}
		}
	}
	if q.wanted.mode == protocol.WantedOff {
		return
	}
	add := func(e *entry, admits slotSet) {
		if !m.waiterEnded(e) {
			c.heads = append(c.heads, wantHead{count: e.count, level: e.demand().level, admits: admits, entry: e})
		}
	}
	if !q.laned() {
		if s.waiters.first != nil {
			add(s.waiters.first, nil)
		}
		return
	}
	for _, l := range q.inOrder() {
		if add(l.first, l.admits); len(c.heads) == maxWantHeads {
			return
		}
	}
}

// become has an owner know that a waiter of the session by wants its units. With a grace it has
// a bound, unless its lease ends before.
func (w *wantedOwners) become(e *entry, by uint64) {
	m, q := w.m, w.q
	m.touch(e)
	b := e.semaphore.bucket
	b.orderCounter++
	x := placeCopy(e)
	x.want.number, x.want.until, x.want.known = b.orderCounter, 0, false
	if q.wanted.grace > 0 {
		until := addSaturated(max(m.bucketTime(b), addSaturated(x.want.granted, q.wanted.minHold)), q.wanted.grace)
		if x.until == 0 || x.until > until {
			x.want.until = until
		}
	}
	e.setPlace(&x)
	scheduleBound(m, e)
	w.notify(e, x.want.number, false, by)
}

// withdraw takes a want back, with its bound.
func (w *wantedOwners) withdraw(e *entry) {
	m := w.m
	m.touch(e)
	x := placeCopy(e)
	number := x.want.number
	x.want.number, x.want.until, x.want.known = 0, 0, false
	e.setPlace(&x)
	scheduleBound(m, e)
	m.wanted[WantWithdrawn]++
	w.notify(e, number, true, 0)
}

// wantEnded counts the want of an owner that leaves, if it is wanted.
func wantEnded(m *Machine, e *entry) {
	switch p := e.place(); {
	case p == nil || p.want.number == 0:
	case m.batch.boundCause == protocol.HoldWanted:
		m.wanted[WantEnded]++
	default:
		m.wanted[WantReleased]++
	}
}

// notify emits what the holder learns. No event follows the end of a session.
func (w *wantedOwners) notify(e *entry, number uint64, over bool, by uint64) {
	p, s, m := e.session, w.s, w.m
	if p.ended {
		return
	}
	g := &protocol.Grant{Now: m.bucketTime(s.bucket), Want: number}
	g.Until, _ = e.place().bound()
	m.batch.out.List = append(m.batch.out.List, Event{Kind: EventLeaseWanted, Session: p.id, Seq: e.seq, Epoch: p.epoch,
		Node: s.node.id, Name: s.name, OrderID: e.orderID, Grant: g, Flag: over, Result: by})
}

// staySilent is the bound of a want that the holder has not said that it knows. The owner keeps its
// lease, and comes last among those that may be wanted. If it is wanted still, it is told again, and
// looked at a grace later.
func staySilent(m *Machine, e *entry) {
	m.touch(e)
	s := e.semaphore
	x := placeCopy(e)
	x.want.silent, x.want.until = true, 0
	if grace := s.rare.queue.wanted.grace; grace > 0 {
		x.want.until = addSaturated(m.bucketTime(s.bucket), grace)
	}
	if x.until != 0 && x.until <= x.want.until {
		x.want.until = 0
	}
	e.setPlace(&x)
	scheduleBound(m, e)
	(&wantedOwners{m, s, s.rare.queue}).update(e)
}

// says notes which want a holder says that it knows: it is not silent any more, whichever it is.
func (w *wantState) says(known uint64) {
	if known != 0 {
		w.silent = false
		w.known = w.known || known == w.number
	}
}

// setWanted replaces the rule. All wants are taken back; those that the new rule has are drawn again.
func setWanted(m *Machine, s *semaphore, rule wantedRule) {
	q := s.rare.queue
	was := q.wanted.mode
	q.wanted = rule
	for e := s.owners.first; e != nil; e = next(e, byOrder) {
		if placeCopy(e).want.number != 0 {
			(&wantedOwners{m, s, q}).withdraw(e)
		}
		m.touch(e)
		x := placeCopy(e)
		switch {
		case rule.mode == protocol.WantedOff:
			x.want = wantState{}
		case was == protocol.WantedOff:
			x.want.granted = m.bucketTime(s.bucket)
		}
		e.setPlace(&x)
	}
}

// countWant counts the wanted and the silent owners as a place is replaced by another; nil is none.
func countWant(s *semaphore, q *queue, was, is *place) {
	if was != nil {
		q.wants -= bit(was.want.number != 0)
		s.node.silent -= bit(was.want.silent)
	}
	if is != nil {
		q.wants += bit(is.want.number != 0)
		s.node.silent += bit(is.want.silent)
	}
}

func bit(is bool) uint64 {
	if is {
		return 1
	}
	return 0
}
