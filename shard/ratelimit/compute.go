package ratelimit

import (
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Shares are computed at most every 50 ms, or the second interval with more clients: of ten
// thousand the demand of some changes all the time, and a computation looks at all. While somebody
// has less than its share, leases that end are looked for at the second interval, in ms.
const (
	computeEvery     = 50
	expireEvery      = 250
	callingPerMillis = 50
)

// every is the least time between two computations.
func (l *Leases) every() uint64 {
	if len(l.nodes) == 0 {
		return computeEvery
	}
	return min(max(computeEvery, l.nodes[0].calling/callingPerMillis), expireEvery)
}

// leastUnits is what a lease is worth at least: with less in its whole length a client would ask
// the leader for nearly every call anyway.
const leastUnits = 10

// needMemory is how long the largest amount of a call decides how a leaf is served, in ms.
const needMemory = 3_000

// liveLate is how late a client may ask again, in ms, before it is taken for one that is gone.
const liveLate = 300

// due reports whether the shares are to be computed now. They are computed now and then even if
// nothing is known to have changed: clients that are gone without a word have no demand.
func (l *Leases) computeDue() bool {
	since := lessBy(l.now, l.computed)
	return !l.learning && (l.dirty && since >= l.every() || since >= l.length/3 ||
		(l.shortages > 0 || l.growing) && since >= expireEvery)
}

// live reports whether a holding's client asks for something. One that is idle has no share.
func (l *Leases) live(h *holding) bool {
	return h.leaf && !h.member.gone && l.now < h.liveUntil && l.wants(h) > 0
}

// least is the rate below which a lease is not worth its refreshes, or its burst too small for the
// client's calls.
func (l *Leases) least(h *holding) uint64 {
	n := &l.nodes[h.node]
	rate := n.leastRate
	if h.need > 1000 {
		rate = max(rate, (h.need*1000+n.leastTime-1)/n.leastTime)
	}
	return rate
}

// wants is the demand of a holding that others have to leave to it. The demand that a client
// reports is a fifth above the average of its calls: that fifth it has only as far as nobody else
// wants it. A session that began a moment ago is to show first that it lives.
func (l *Leases) wants(h *holding) uint64 { return min(l.asks(h), l.newRate(h)) }

// asks is what its client asks for, however new it is.
func (l *Leases) asks(h *holding) uint64 {
	switch {
	case h.waiting == 0 && h.remote: // an average of few calls may be low, and there is no lease to make up for it
		return min(h.demand, maxRate)
	case h.waiting == 0:
		return min(h.demand-h.demand/6, maxRate)
	case !l.knownFew(h):
		return maxRate
	case h.last().Rate > 0: // its bucket fills meanwhile
		return min(h.demand+mulDiv(h.waiting, 1000, leasedTime), maxRate)
	}
	return min(h.demand+mulDiv(h.waiting, 1000, backlogTime), maxRate)
}

// Bounds of what a session that is known for few calls asks for; times are in ms. Its calls that
// wait are a backlog of known size, which is to be gone within backlogTime.
const (
	fewCalls    = 10 // a second
	backlogTime = 200
	leasedTime  = 500    // the same for one that has a lease
	fewAfter    = 1_000  // it is known from then on
	fewMemory   = 10_000 // until so long after its last call
)

// knownFew reports whether a holding's client calls little, and has done so for a while.
func (l *Leases) knownFew(h *holding) bool {
	return l.now < h.fewUntil && l.now >= h.fewSince+fewAfter && !l.many(h)
}

// many reports whether a client asks for more than a session that is served remotely has, and for
// more than a few of its calls each second.
func (l *Leases) many(h *holding) bool {
	return h.demand >= max(2*l.nodes[h.node].leastRate, fewCalls*max(h.need, 1000))
}

// calledFew notes that all calls of a holding have what they asked for, by units or by its lease.
func (l *Leases) calledFew(h *holding) {
	if l.now >= h.fewUntil {
		h.fewSince = l.now
	}
	h.fewUntil = l.now + fewMemory
}

// maxPasses bounds how often one computation turns leaves into remote ones. What is left over is
// for the next.
const maxPasses = 4

// compute divides the rates of the tree again: demands upward, then shares downward.
func (l *Leases) compute(tree *Tree) {
	l.dirty, l.computed = false, l.now
	l.expire(tree)
	if len(l.nodes) == 0 {
		return
	}
	for _, m := range l.members {
		for _, t := range m.turns {
			for _, h := range t.holdings { // it may wait for longer than the amount is remembered
				h.needs(t.calls[0].amount, l.now)
			}
		}
	}
	steady := 0
	l.growing = false
	for i := len(l.nodes) - 1; i >= 0; i-- { // children come behind their parents
		n := &l.nodes[i]
		n.demand, n.calling = 0, 0
		for _, h := range n.holdings {
			if h.needUntil <= l.now {
				h.need = 0
			}
			if h.waiting > 0 && h.liveUntil <= l.now && !h.member.gone { // its client is gone, or cut off
				h.waiting, h.lacksSince = 0, 0
			}
			h.cramped, h.wanted = false, 0
			if l.live(h) {
				n.calling++
				h.wanted = l.wants(h)
				if h.refreshed >= h.member.joined+newAge {
					steady++
				}
				l.growing = l.growing || l.newRate(h) < maxRate
				n.demand = addUpTo(n.demand, h.wanted, n.rate)
			}
		}
		for _, c := range n.children {
			n.calling += l.nodes[c].calling
			n.demand = addUpTo(n.demand, l.nodes[c].demand, n.rate)
		}
	}
	l.steady = steady
	root := &l.nodes[0]
	root.target, root.fair = root.demand, root.rate
	for i := range l.nodes {
		l.shareNode(&l.nodes[i])
	}
	for range maxPasses {
		l.chooseRemote()
		if l.shareBursts() {
			break
		}
	}
	l.lowerTags()
	switch {
	case l.blocked == 0:
		l.short = 0
	case l.short == 0:
		l.short = l.now
	}
	l.freed = l.shortages > 0
}

// shareNode divides what a node has among its children.
func (l *Leases) shareNode(n *node) {
	l.parts = l.parts[:0]
	for k, c := range n.children {
		child := &l.nodes[c]
		l.parts = append(l.parts, part{demand: child.demand, guarantee: child.guarantee, weight: child.weight, index: k})
	}
	share(n.target, l.parts)
	for i := range l.parts {
		child := &l.nodes[n.children[l.parts[i].index]]
		child.target = l.parts[i].gets
		child.fair = min(l.parts[i].fair+n.fair-n.target, child.rate)
	}
}

// shareLeaf divides what a leaf has among its clients.
func (l *Leases) shareLeaf(n *node) {
	l.parts = l.parts[:0]
	for k, h := range n.holdings {
		if h.target, h.fair = 0, 0; h.wanted > 0 {
			l.parts = append(l.parts, part{demand: h.wanted, weight: 1, index: k})
		}
	}
	share(n.target, l.parts)
	for i := range l.parts {
		h := n.holdings[l.parts[i].index]
		h.target, h.fair = l.parts[i].gets, l.parts[i].fair+n.fair-n.target
	}
}

// chooseRemote decides which leaves are served remotely, and sums up what is leased and what is
// not.
func (l *Leases) chooseRemote() {
	for i := range l.nodes {
		n := &l.nodes[i]
		l.accrue(n)
		n.leasedTarget, n.remoteTarget, n.need = 0, 0, 0
	}
	l.needWaiting()
	for i := range l.nodes {
		n := &l.nodes[i]
		if len(n.children) > 0 {
			for _, h := range n.holdings {
				h.target, h.leased, h.remote = 0, 0, false
			}
			continue
		}
		l.shareLeaf(n)
		leased, remote, need := uint64(0), uint64(0), uint64(0)
		for _, h := range n.holdings {
			h.leased = 0
			switch {
			case h.wanted == 0:
				h.remote = false
			case h.cramped || l.lasting(h) < l.least(h):
				h.remote = true
				remote, need = remote+h.target, max(need, h.need, 1000)
			default:
				h.remote, h.leased = false, h.target
				leased += h.target
			}
		}
		for k := i; k >= 0; k = l.nodes[k].parent {
			above := &l.nodes[k]
			above.remoteTarget += remote
			above.leasedTarget += leased
			above.need = max(above.need, need)
		}
	}
}

// needWaiting notes what calls that wait need at the resources above two of their leaves: a multiple of what they need
// at each.
func (l *Leases) needWaiting() {
	for _, m := range l.members {
		for _, t := range m.turns {
			if len(t.holdings) == 1 {
				continue
			}
			for i, times := range l.above(t.holdings) {
				if n := &l.nodes[i]; times > 1 {
					n.need = max(n.need, t.calls[0].amount*times)
				}
			}
		}
	}
}

// lasting is the share of a holding without what it has to be rid of a few calls that wait. These
// have their units soonest from the leader's own bucket: a lease begins empty, and ends with them.
func (l *Leases) lasting(h *holding) uint64 {
	if h.remote && l.knownFew(h) {
		return min(h.target, h.demand)
	}
	return h.target
}

// shareBursts gives each holding a burst in proportion to its rate. What the leader's own buckets
// need is set aside. It is false if that leaves a leaf too little to be leased. It finds who has less
// than its share, because others have more.
func (l *Leases) shareBursts() (enough bool) {
	enough = true
	l.shortages, l.blocked = 0, 0
	for i := range l.nodes {
		n := &l.nodes[i]
		n.leasedBurst = n.burst
		if n.need > 0 {
			n.leasedBurst = lessBy(n.burst, max(n.need, mulDiv(n.remoteTarget, n.burstTime, 1000)))
			if above(n.remoteTarget, n.ownRate()) || lessBy(n.burst, n.countedBurst) < n.need {
				l.shortages++
				l.blocked++
			}
		}
		for _, h := range n.holdings {
			h.leasedBurst, h.short, h.blocked = 0, false, false
			if h.leased == 0 {
				continue
			}
			h.leasedBurst = mulDiv(h.leased, n.leastTime, 1000)
			for k := i; k >= 0; k = l.nodes[k].parent {
				if above := &l.nodes[k]; above.need > 0 {
					h.leasedBurst = min(h.leasedBurst, mulDiv(above.leasedBurst, h.leased, max(above.leasedTarget, 1)))
				}
			}
			l.lacking(h, h.last())
			if h.leasedBurst < max(h.need, 1000) {
				h.cramped, enough = true, false
			}
		}
	}
	return enough
}

// lacks reports whether a lease is less than what the holding is to have of its demand. For what is
// lent to it beyond that nobody has to shrink: as demands change a little all the time, somebody
// always would.
func (l *Leases) lacks(h *holding, g *Lease) bool {
	rate, burst := h.leased, h.leasedBurst
	if wants := l.wants(h); wants < rate {
		rate, burst = wants, mulDiv(burst, wants, rate)
	}
	return above(rate, g.Rate) || above(burst, g.Burst)
}

// lacking notes whether a holding with a lease lacks something, and whether it has to wait for
// others. Where there is room for its share nobody has to shrink: its next refresh gives it. Of ten
// thousand clients always some have a demand that has just risen.
func (l *Leases) lacking(h *holding, g *Lease) {
	if h.short {
		l.shortages--
	}
	if h.blocked {
		l.blocked--
	}
	h.short, h.blocked = l.lacks(h, g), false
	if !h.short {
		return
	}
	l.shortages++
	rate, burst := l.room(h)
	if h.blocked = l.lacks(h, &Lease{Rate: rate, Burst: burst}); h.blocked {
		l.blocked++
	}
}

// above reports whether a rate is more than 5 % above another: less is not worth a message.
func above(rate, than uint64) bool { return rate > than && rate-than > than/20 }

// expire drops leases that have ended, and members of whom nothing is left.
func (l *Leases) expire(tree *Tree) {
	keep := l.members[:0]
	for _, m := range l.members {
		if l.joinsChanged && !m.gone {
			if epoch, ok := tree.Joined(m.session); !ok || epoch != m.epoch {
				m.gone = true
			}
		}
		l.expireHoldings(m)
		if !m.gone || len(m.holdings) > 0 {
			keep = append(keep, m)
		} else if l.bySession[m.session] == m {
			delete(l.bySession, m.session)
		}
	}
	clear(l.members[len(keep):])
	l.members, l.joinsChanged = keep, false
}

func (l *Leases) expireHoldings(m *member) {
	for m.gone && len(m.turns) > 0 {
		l.endTurn(m.turns[0], math.MaxUint64, protocol.Errorf(protocol.StatusPreconditionFailed, "session %d takes part in the rate limit no more", m.session))
	}
	m.keep(func(h *holding) bool {
		if l.recount(h); !m.gone && h.node >= 0 || h.countedRate > 0 || h.countedBurst > 0 || h.unused > 0 {
			return true
		}
		l.remove(h)
		return false
	})
	if m.former != nil && len(m.former.holdings) == 0 {
		m.former = nil
	}
}
