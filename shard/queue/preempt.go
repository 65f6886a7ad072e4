package queue

import "github.com/signalbox-dev/signalbox/protocol"

// preemption is an owner's state where owners may be preempted.
//
// Invariant: an owner that is not preempted has no bound from it, and has not said that it knows
// one. A lease ends at this bound only if its holder has said so: then the holder has stopped
// before.
type preemption struct {
	granted uint64 // when it was granted, or owners became preemptible
	number  uint64 // from the bucket's counter; 0: it is not preempted
	yieldBy uint64 // bound, or 0. Of a silent owner, when it is looked at again
	known   bool   // the holder has said that it knows this bound
	silent  bool   // it has not said so by its bound, and nothing since
}

// Preempted returns the number of an owner's preemption, 0 if it is not preempted.
func (g *Grant) Preempted() uint64 {
	if g == nil {
		return 0
	}
	return g.number
}

// Silent reports whether the holder let the bound of its preemption pass without saying that it
// knows it.
func (g *Grant) Silent() bool { return g != nil && g.silent }

// HasKnownBound reports whether the holder relies on a bound.
func (g *Grant) HasKnownBound() bool { return g != nil && (g.Expires != 0 || g.known) }

// says notes which preemption a holder says that it knows: it is not silent any more, whichever it
// is.
func (p *preemption) says(known uint64) {
	if known != 0 {
		p.silent = false
		p.known = p.known || known == p.number
	}
}

// MayPreempt reports whether Choose can find anything.
func (q *holdings) MayPreempt(waiters int) bool {
	return q.usage.Preempted > 0 || q.rule.Preempt != protocol.PreemptOff && waiters > 0
}

// Preempt preempts an owner. With a grace it has a bound, unless its lease ends before.
func (q *holdings) Preempt(token, number, now uint64) {
	g, o := q.changed(token), q.rule
	g.number, g.yieldBy, g.known = number, 0, false
	if o.Grace > 0 {
		until := addSaturated(max(now, addSaturated(g.granted, o.MinHold)), o.Grace)
		if g.Expires == 0 || g.Expires > until {
			g.yieldBy = until
		}
	}
	q.setGrant(token, g)
}

// Withdraw withdraws the preemption of an owner, with its bound. It returns its number.
func (q *holdings) Withdraw(token uint64) (number uint64) {
	g := q.changed(token)
	number = g.number
	g.number, g.yieldBy, g.known = 0, 0, false
	q.setGrant(token, g)
	return number
}

// StaySilent is called when the bound of a preemption passes that the holder has not said that it
// knows. The owner keeps its lease, and comes last among those that may be preempted. It is looked
// at again a grace later.
func (q *holdings) StaySilent(token, now uint64) {
	g := q.changed(token)
	g.silent, g.yieldBy = true, 0
	if grace := q.rule.Grace; grace > 0 {
		g.yieldBy = addSaturated(now, grace)
	}
	if g.Expires != 0 && g.Expires <= g.yieldBy {
		g.yieldBy = 0
	}
	q.setGrant(token, g)
}

// Restart is called for each owner, which is not preempted, after whether owners may be preempted
// has changed.
func (q *holdings) Restart(token uint64, was protocol.PreemptMode, now uint64) {
	g := q.changed(token)
	switch {
	case q.rule.Preempt == protocol.PreemptOff:
		g.preemption = preemption{}
	case was == protocol.PreemptOff:
		g.granted = now
	}
	q.setGrant(token, g)
}

// Choice decides which owners are preempted. Its memory is used again. The caller begins with
// Reset, names all owners in order of token, then the waiters, and calls Choose.
type Choice struct {
	choice
	q     *Queue
	e     Entries
	first Waiter // where there are no lanes
}

// Reset begins a choice. The owners and waiters of before are forgotten.
func (c *Choice) Reset(q *Queue, e Entries, u Units) {
	c.q, c.e = q, e
	c.choice = choice{higher: q.rule.Preempt == protocol.PreemptLower, slots: len(q.slots) > 0, limit: u.Limit,
		used: u.Used, heads: c.heads[:0], owners: c.owners[:0], claimed: c.claimed, order: c.order, taken: c.taken}
	if c.slots {
		c.free, c.usable = q.slots.available(), newSlotSet(len(q.slots))
		for i := range q.slots {
			if x := &q.slots[i]; !x.drained && !x.leaving {
				c.usable.add(i)
			}
		}
	}
}

// Owner adds an owner. One whose session is gone counts as having given back.
func (c *Choice) Owner(token, count uint64, alive bool) {
	o := choiceOwner{token: token, count: count, level: plainDemand.Level}
	if g := c.q.grants[token]; g != nil {
		o.level, o.preempted, o.silent, o.slots = g.Level, g.number != 0, g.silent, g.Slots
	}
	if alive {
		c.owners = append(c.owners, o)
		return
	}
	c.used -= count
	for _, i := range o.slots {
		if c.usable.has(int(i)) {
			c.free.add(int(i))
		}
	}
}

// Waiters adds the waiters that did not fit, in the order of the policy: the first one where there
// are no lanes. Those that count as gone are left out.
func (c *Choice) Waiters(first Place) {
	if c.q.rule.Preempt == protocol.PreemptOff {
		return
	}
	if !c.q.Laned() {
		if c.first = first.Waiter; !c.e.Gone(&c.first) {
			level := plainDemand.Level
			if a := c.q.asks[first.Place]; a != nil {
				level = a.Level
			}
			c.heads = append(c.heads, choiceHead{count: first.Count, level: level, session: first.Session})
		}
		return
	}
	for _, l := range c.q.inOrder() {
		if a := l.first; !c.e.Gone(&a.Waiter) {
			c.heads = append(c.heads, choiceHead{count: a.Count, level: a.Level, admits: l.admits, session: a.Session})
		}
		if len(c.heads) == maxChoiceHeads {
			return
		}
	}
}

// Choose yields the owners, in order of token, that are preempted now or were before, and whether
// each is chosen. by is the session of the waiter that needs the units.
func (c *Choice) Choose(yield func(token uint64, was, is bool, by uint64)) {
	head, chosen := c.choose()
	by := uint64(0)
	if head >= 0 {
		by = c.heads[head].session
	}
	for _, i := range chosen {
		c.owners[i].chosen = true
	}
	for i := range c.owners {
		if o := &c.owners[i]; o.chosen || o.preempted {
			yield(o.token, o.preempted, o.chosen, by)
		}
	}
}
