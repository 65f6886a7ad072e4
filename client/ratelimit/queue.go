package ratelimit

import (
	"errors"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// mostOpen is how many calls of one queue wait at the server at a time.
const mostOpen = 8

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
			m.finish(now, c, l.err)
			continue
		}
		if l.part.err != nil {
			m.finish(now, c, l.part.err)
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
			m.finish(now, c, nil)
			continue
		}
		if b := l.deciding(now); b == nil || b.rate == 0 {
			m.askFor(now, at)
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

// askFor asks the server for the units of calls of one leaf, from a place of the queue on.
func (m *machine) askFor(now int64, from *place) {
	open := 0
	for _, c := range from.calls {
		if open == mostOpen {
			break
		}
		if open++; len(c.leaves) > 1 {
			continue
		}
		if m.request(now, c, c.askOf(c.leaves)); c.spent { // requests may overtake each other
			break
		}
	}
}

// open is the amount of the calls that wait at the server.
func (l *leaf) open() (amount uint64) {
	n := 0
	for _, c := range l.queue.first.calls {
		if n++; n > mostOpen {
			break
		}
		if len(c.asks) > 0 && c.asks[0].open {
			amount += c.amount
		}
	}
	return amount
}

// tryBehind answers a call that does not wait, where nobody else does: it has a lease, whose units it lacks, or so many
// calls before it that its place would not be looked at.
func (m *machine) tryBehind(now int64, l *leaf, c *call) {
	a := c.askOf(c.leaves)
	b := l.deciding(now)
	leased := b != nil && b.rate > 0
	if !leased && l.queued.Load() <= mostOpen {
		return
	}
	if !leased {
		m.request(now, c, a)
	}
	if !a.open {
		c.hear()
	}
}

// askOf finds or makes what a call of one leaf asks.
func (c *call) askOf(leaves []*leaf) *ask {
	if len(c.asks) == 0 {
		c.asks = append(c.asks, &ask{part: leaves[0].part, leaves: leaves})
	}
	return c.asks[0]
}

// leased reports whether a lease of one of the leaves of an ask has the amount by now, or all leaves have leases.
func (c *call) leased(now int64, a *ask) bool {
	all := true
	for _, l := range a.leaves {
		b := l.deciding(now)
		if b == nil || b.rate == 0 {
			all = false
		} else if ns, ok := b.delay(now, c.amount); ok && ns == 0 {
			return true
		}
	}
	return all
}

// asked reports whether units of a leaf are asked for, or granted.
func (c *call) asked(l *leaf) bool {
	return slices.ContainsFunc(c.asks, func(a *ask) bool { return (a.open || a.granted || a.seq > 0) && slices.Contains(a.leaves, l) })
}

func (l *leaf) needs(now int64) protocol.LimitNeed {
	d := &l.demand
	return protocol.LimitNeed{Path: []byte(l.path), Demand: demandOf(d.next(now, l.attempted(), l.largest()))}
}

// together tries a call of several leaves. Where the server gives out the units, they are asked for first: of one
// tree, and when that has granted them of the others. What one has granted and another one does not in time is
// given back, and that tree is waited for. Then the call takes of the leases at once. It returns after how
// many ns it can be tried again, and whether it waits for units of this leaf's lease.
func (m *machine) together(now int64, c *call, at *leaf) (waits int64, here bool) {
	c.changed()
	for _, l := range c.leaves { // what it has of the same tree alone would keep a resource above both from giving more
		if b := l.deciding(now); (b == nil || b.rate == 0) && !l.shadow.Load() && !c.asked(l) {
			c.asks = slices.DeleteFunc(c.asks, func(a *ask) bool {
				if a.part == l.part {
					m.withdraw(now, a)
				}
				return a.part == l.part
			})
		}
	}
	granted, open := 0, false
	c.asks = slices.DeleteFunc(c.asks, func(a *ask) bool {
		if a.granted && !a.part.usable(now, &a.grant) || a.open && c.leased(now, a) {
			m.withdraw(now, a)
		}
		if open = open || a.open; a.granted {
			granted++
		}
		return !a.open && !a.granted && now >= a.at
	})
	asks := len(c.asks)
	for i, l := range c.leaves {
		c.places[i].spare = false
		if l.err != nil {
			m.finish(now, c, l.err)
			return 0, false
		}
		if l.shadow.Load() || c.asked(l) {
			continue
		}
		b := l.deciding(now)
		if b == nil || b.rate == 0 {
			i := asks + slices.IndexFunc(c.asks[asks:], func(a *ask) bool { return a.part == l.part })
			if i < asks {
				i = len(c.asks)
				c.asks = append(c.asks, &ask{part: l.part})
			}
			c.asks[i].leaves = append(c.asks[i].leaves, l)
			continue
		}
		ns, ok := b.delay(now, c.amount)
		if !ok {
			ns = demandGap // the lease is too small; its next one may not be
		}
		c.places[i].spare = ns == 0
		waits = max(waits, ns)
		here = here || ns > 0 && l == at
	}
	if granted < len(c.asks) {
		for _, a := range c.asks {
			if !a.granted && (granted > 0 || !open) {
				m.request(now, c, a)
				open = true
			}
		}
		return demandGap, false
	}
	if waits > 0 {
		return waits, here
	}
	took := make([]*bucket, 0, len(c.leaves))
	for _, l := range c.leaves {
		if b := l.deciding(now); b != nil && b.rate > 0 && !l.shadow.Load() && !c.asked(l) {
			if b.take(now, c.amount) != admitted { // an Allow was quicker
				for _, t := range took {
					t.giveBack(c.amount)
				}
				return 1e6, l == at
			}
			took = append(took, b)
		}
	}
	for _, a := range c.asks {
		m.used(a)
	}
	m.finish(now, c, nil)
	return 0, false
}

// acquired takes the answer to a request for units.
func (m *machine) acquired(now int64, a *action, reply protocol.Message, err error) {
	var r protocol.LimitAcquireReply
	c, x := a.call, a.ask
	p := x.part
	q := a.msg.(*protocol.LimitAcquire)
	seq := q.Seq
	if err == nil {
		r = *reply.(*protocol.LimitAcquireReply)
	}
	g := grant{gen: a.gen, seq: seq, bucketEpoch: r.BucketEpoch, leaderEpoch: r.LeaderEpoch}
	switch {
	case compareLeaders(r.BucketEpoch, r.LeaderEpoch, p.clock.bucketEpoch, p.clock.leaderEpoch) == 0:
		g.until = p.clock.time(r.Until)
	case r.Granted:
		p.due = now // nothing is known of this leader's clock
	}
	granted := r.Granted
	if !x.open || x.seq != seq { // it was withdrawn, and the server hears so
		return
	}
	x.closed()
	x.granted, x.grant = granted, g
	if !granted {
		m.unwant(p, x.seq)
	} else if !p.usable(now, &g) {
		m.withdraw(now, x)
		granted = false
	}
	l := x.leaves[0]
	switch {
	case granted:
	case err != nil:
		x.at = now + demandGap
		if errors.Is(err, protocol.StatusPreconditionFailed) || errors.Is(err, protocol.StatusNotFound) ||
			errors.Is(err, protocol.StatusBadRequest) {
			for _, l := range x.leaves {
				l.stale = true
			}
			p.due = now // the refresh says what is wrong
		}
	case r.Retry > 0:
		x.at = now + min(int64(r.Retry)*1e6, demandGap)
		if !q.Hold && !c.try { // too many wait at the server
			x.at = now + min(max(int64(r.Retry)*1e6, demandGap), retryAfter)
		}
		l.unitsAt = now + int64(r.Retry)*1e6
	}
	if c == l.restocks {
		m.stocked(now, l, granted)
		return
	}
	if c.hear(); c.finished {
		m.withdraw(now, x)
		return
	}
	for _, l := range c.leaves {
		l.lately = l.lately || l.lacking()
	}
	switch {
	case errors.Is(err, protocol.StatusBadRequest): // an alter came between
		m.finish(now, c, err)
	case granted && len(c.leaves) == 1:
		m.used(x)
		m.finish(now, c, nil)
	}
}

// stockTime is for how many ns units for a call of Allow that is to come are kept here.
const stockTime = int64(100e6)

// restock has units here for the next call of Allow, as long as there were some lately: one request is open at the
// server for them, and what nobody uses in time is given back.
func (m *machine) restock(now int64, l *leaf) {
	wanted := l.units > 0 && now < l.unitsBy && !l.leased(now) && l.queued.Load() == 0 && l.users > 0
	if c := l.stock; c != nil {
		b := l.bucket.Load()
		if !wanted || b.rate > 0 || now >= b.until.Load() || b.full.Load() != int64(c.amount) {
			m.unstock(now, l)
		}
	}
	if c := l.restocks; c != nil && (!wanted || c.amount < l.units) {
		m.withdraw(now, c.asks[0])
		l.restocks = nil
	}
	if !wanted {
		l.units = 0
		return
	}
	if l.stock != nil {
		return
	}
	if l.restocks == nil {
		c := &call{leaves: []*leaf{l}, amount: l.units}
		c.askOf(c.leaves)
		l.restocks = c
	}
	m.request(now, l.restocks, l.restocks.asks[0])
}

// unstock takes the units for Allow away. What was not used goes back to the server.
func (m *machine) unstock(now int64, l *leaf) {
	c, level := l.stock, int64(0)
	l.stock = nil
	if l.bucket.Load().rate == 0 {
		level = l.empty(now)
	}
	if level == int64(c.amount) {
		m.withdraw(now, c.asks[0])
	} else {
		m.used(c.asks[0])
		l.unitsBy = now + unitsWanted
	}
}

// stocked puts units here for the next call of Allow.
func (m *machine) stocked(now int64, l *leaf, granted bool) {
	if granted && !l.leased(now) {
		c := l.restocks
		l.stock, l.restocks = c, nil
		l.bucket.Load().close(now)
		l.bucket.Store(newBucket(now, 0, c.amount, int64(c.amount), min(c.asks[0].grant.until, now+stockTime)))
	}
	m.restock(now, l)
}
