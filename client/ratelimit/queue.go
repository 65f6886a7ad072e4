package ratelimit

import (
	"errors"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// pump admits what can be admitted from the head of a leaf's queue on, and asks for units of what
// the server gives out. A call of several leaves that waits for another one does not hold up those
// behind it: they leave it what it needs here by then.
func (m *machine) pump(now int64, l *leaf) {
	reserved, looked := uint64(0), 0
	for at, c := range l.queue.first.calls {
		if looked == lookAhead {
			break
		}
		l.part.looks++
		if l.err != nil {
			m.finish(c, l.err)
			continue
		}
		if l.part.err != nil {
			m.finish(c, l.part.err)
			continue
		}
		if len(c.leaves) > 1 {
			looked++
			waits, here := m.together(now, c, l)
			if c.finished {
				continue
			}
			if here { // it lacks units of this leaf: it is its turn
				c.hear()
				break
			}
			reserved += left(c.amount, l, now, waits)
			continue
		}
		if l.shadow.Load() || l.takeBeside(now, c.amount, reserved) {
			m.finish(c, nil)
			continue
		}
		if b := l.deciding(now); b == nil || b.rate == 0 {
			m.ask(now, l, at)
		} else {
			heard := 0
			for _, c := range at.calls {
				if c.hear(); heard == lookAhead {
					break
				}
				heard++
			}
		}
		break
	}
}

// hear notes that the first answer to a call has come.
func (c *call) hear() {
	if c.heard {
		return
	}
	if c.heard = true; c.answered != nil {
		close(c.answered)
	}
}

// left is what a call that waits for others has to find here when they are there.
func left(amount uint64, l *leaf, now, waits int64) uint64 {
	b := l.deciding(now)
	if b == nil || b.rate == 0 {
		return 0
	}
	comes := float64(b.rate) * float64(waits) / 1e9
	if comes >= float64(amount) {
		return 0
	}
	return amount - uint64(comes)
}

// takeBeside takes an amount if as much as is reserved is left.
func (l *leaf) takeBeside(now int64, amount, reserved uint64) bool {
	if reserved > 0 {
		b := l.deciding(now)
		if b == nil {
			return false
		}
		if ns, ok := b.delay(now, amount+reserved); !ok || ns > 0 {
			return false
		}
	}
	return l.decide(now, amount)
}

// ask asks the server for the units of the calls of one leaf, from a place of the queue on.
func (m *machine) ask(now int64, l *leaf, from *place) {
	p := l.part
	if l.asking || now < l.askAt || !p.joined || p.session == 0 {
		return
	}
	if l.burst > 0 { // units that are held here are too few, and would be in the way of those that are asked for
		l.drop(now)
		p.due = now
	}
	q := &protocol.LimitAcquire{Session: p.session, Path: []byte(p.root), Wait: true,
		Leaves: []protocol.LimitNeed{l.needs(now)}}
	a := action{kind: doAcquire, part: p, msg: q, leaves: []*leaf{l}}
	sum := uint64(0)
	for _, c := range from.calls {
		if len(c.leaves) > 1 {
			continue
		}
		if len(q.Calls) == protocol.MaxLimitCalls {
			break
		}
		if sum += c.amount; len(q.Calls) > 0 && sum > l.most.Load() {
			break
		}
		q.Calls = append(q.Calls, protocol.LimitCall{Amount: c.amount})
		a.calls = append(a.calls, c)
	}
	if len(q.Calls) == 0 {
		return
	}
	l.asking = true
	a.grant = m.acquire(now, p, q)
	m.send(now, a)
}

func (l *leaf) needs(now int64) protocol.LimitNeed {
	d := &l.demand
	return protocol.LimitNeed{Path: []byte(l.path), Demand: demandOf(d.next(now, l.attempted(), l.largest()))}
}

// together tries a call of several leaves: it takes of those with a lease, and asks for units of
// the others. It returns after how many ns it can be tried again, and whether it waits for units of
// this leaf's lease.
func (m *machine) together(now int64, c *call, at *leaf) (waits int64, here bool) {
	if c.asking {
		return demandGap, false
	}
	c.changed()
	var remote []*leaf
	for _, l := range c.leaves {
		if l.err != nil {
			m.finish(c, l.err)
			return 0, false
		}
		if l.shadow.Load() {
			continue
		}
		b := l.deciding(now)
		if b == nil || b.rate == 0 {
			if b != nil {
				if _, ok := b.delay(now, c.amount); ok {
					continue // it has units of its own
				}
			}
			remote = append(remote, l)
			continue
		}
		ns, ok := b.delay(now, c.amount)
		if !ok {
			ns = demandGap // the lease is too small; its next one may not be
		}
		if ns > waits {
			waits = ns
		}
		if ns > 0 && l == at {
			here = true
		}
	}
	if len(remote) > 0 && now < c.askAt {
		return max(waits, c.askAt-now), false
	}
	if waits > 0 {
		return waits, here
	}
	c.took = c.took[:0]
	for _, l := range c.leaves {
		if l.shadow.Load() || slices.Contains(remote, l) {
			continue
		}
		if b := l.deciding(now); b != nil && b.take(now, c.amount) == admitted {
			c.took = append(c.took, taken{l, b})
			continue
		}
		m.giveBack(c) // an Allow was quicker
		return 1e6, l == at
	}
	if len(remote) == 0 {
		m.finish(c, nil)
		return 0, false
	}
	c.asking, c.asked = true, nil
	c.try++
	for _, l := range remote {
		i := slices.IndexFunc(c.asked, func(x []*leaf) bool { return x[0].part == l.part })
		if i < 0 {
			c.asked = append(c.asked, []*leaf{l})
		} else {
			c.asked[i] = append(c.asked[i], l)
		}
	}
	m.askTogether(now, c)
	return demandGap, false
}

// askTogether asks the next tree for the units of a call.
func (m *machine) askTogether(now int64, c *call) {
	leaves := c.asked[len(c.grants)]
	p := leaves[0].part
	if !p.joined || p.session == 0 {
		m.giveBack(c)
		c.askAt = now + demandGap
		return
	}
	q := &protocol.LimitAcquire{Session: p.session, Path: []byte(p.root), Wait: true,
		Calls: []protocol.LimitCall{{Amount: c.amount}}}
	for _, l := range leaves {
		q.Leaves = append(q.Leaves, l.needs(now))
	}
	left := uint64(len(c.asked) - len(c.grants)) // trees that have to answer until it can use the units
	g := m.acquire(now, p, q)
	q.Within = min(q.Within*left, protocol.MaxLimitWithin)
	g.until = usable(now, q.Within)
	m.send(now, action{kind: doAcquire, part: p, msg: q, leaves: leaves, call: c, try: c.try, grant: g})
}

// giveBack returns what a call has taken of leases, and of trees that have granted it.
func (m *machine) giveBack(c *call) {
	c.changed()
	for _, t := range c.took {
		t.bucket.giveBack(c.amount)
	}
	for i := range c.grants {
		m.back(&c.grants[i])
	}
	c.asking, c.took, c.asked, c.grants = false, c.took[:0], nil, nil
}

// complete uses what a call has of leases, and of the trees that have granted it. A lease that has
// ended or is another one now has to have the amount.
func (m *machine) complete(now int64, c *call) {
	for i := range c.grants {
		if !c.grants[i].usable(now) {
			m.giveBack(c)
			return
		}
	}
	for i, t := range c.took {
		b := t.leaf.deciding(now)
		if b == t.bucket {
			continue
		}
		if b == nil || b.take(now, c.amount) != admitted {
			m.giveBack(c)
			return
		}
		c.took[i].bucket = b
	}
	for i := range c.grants {
		c.grants[i].done()
	}
	c.asking, c.took, c.asked, c.grants = false, nil, nil, nil
	m.finish(c, nil)
}

// acquired takes the answer to a request for units.
func (m *machine) acquired(now int64, a *action, reply protocol.Message, err error) {
	var r protocol.LimitAcquireReply
	g := &a.grant
	if err == nil {
		r = *reply.(*protocol.LimitAcquireReply)
		g.bucketEpoch, g.leaderEpoch = r.BucketEpoch, r.LeaderEpoch
		g.part.took(now - a.sent)
	}
	if r.Granted > 0 && !g.usable(now) {
		m.back(g)
		r.Granted, r.Retry = 0, 0
	}
	wait := demandGap
	if err == nil {
		wait = min(int64(r.Retry)*1e6, maxAskGap)
	}
	if errors.Is(err, protocol.StatusPreconditionFailed) || errors.Is(err, protocol.StatusNotFound) {
		for _, l := range a.leaves {
			l.stale = true
		}
		a.part.due = now // the refresh says what is wrong
	}
	if a.call != nil {
		m.acquiredTogether(now, a, r.Granted > 0, wait, err)
		return
	}
	l := a.leaves[0]
	l.asking = false
	defer g.done()
	defer func() {
		for _, c := range a.calls {
			c.hear()
		}
		l.lately = l.lately || l.lacking()
	}()
	if l.askAt = now + wait; err != nil {
		if errors.Is(err, protocol.StatusBadRequest) { // an alter came between
			for _, c := range a.calls {
				if most := l.most.Load(); c.amount > most {
					m.finish(c, err)
				}
			}
			l.stale, a.part.due = true, now
		}
		return
	}
	if r.Retry > 0 {
		l.unitsAt = now + int64(r.Retry)*1e6
	}
	granted := uint64(0)
	for _, c := range a.calls[:min(int(r.Granted), len(a.calls))] {
		granted += c.amount
	}
	unused := granted
	for _, c := range l.queue.first.calls { // those that gave up leave their units to others
		if unused == 0 {
			break
		}
		if len(c.leaves) == 1 && c.amount <= unused {
			unused -= c.amount
			m.finish(c, nil)
		}
	}
	if granted > 0 && unused == granted {
		m.back(g)
	}
}

// acquiredTogether takes the answer of one tree to a call of several leaves.
func (m *machine) acquiredTogether(now int64, a *action, granted bool, wait int64, err error) {
	c := a.call
	if !c.asking || a.try != c.try { // it was given back meanwhile
		if granted {
			m.back(&a.grant)
		}
		a.grant.done()
		return
	}
	if granted {
		c.grants = append(c.grants, a.grant)
		switch {
		case c.finished:
			m.giveBack(c)
		case len(c.grants) < len(c.asked):
			m.askTogether(now, c)
		default:
			m.complete(now, c)
		}
		return
	}
	a.grant.done()
	m.giveBack(c)
	c.hear()
	for _, l := range c.leaves {
		l.lately = l.lately || l.lacking()
	}
	c.askAt = now + wait
	if errors.Is(err, protocol.StatusBadRequest) {
		m.finish(c, err)
	}
}
