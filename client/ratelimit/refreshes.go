package ratelimit

import (
	"errors"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// refreshAt is when the next refresh is due.
func (p *part) refreshAt(now int64) int64 {
	at := p.sent + idleRefresh
	if p.leaving && len(p.closed) == 0 || slices.ContainsFunc(p.closed, p.canClose) {
		at = p.sent
	}
	for _, l := range p.active {
		switch {
		case l.stale:
			at = min(at, p.sent+refreshGap)
		case l.burst > 0 || l.demand.reported > 0 || l.demand.waiting:
			at = min(at, p.sent+int64(l.length)*1e6/3)
		}
		if l.asks > 0 {
			at = min(at, p.sent+clockGap)
		}
	}
	if p.due > 0 {
		at = min(at, max(p.due, p.sent+refreshGap))
	}
	return max(at, p.tryAt, 1)
}

// lookAt is when to look whether a demand has changed; 0: never.
func (p *part) lookAt() (at int64) {
	if p.poked {
		return max(p.sent, p.looked) + demandGap
	}
	for _, l := range p.active {
		if t := l.demand.patience(); t > 0 && (at == 0 || max(p.sent, p.looked)+t < at) {
			at = max(p.sent, p.looked) + t
		}
	}
	return at
}

// lookAtDemands finds out whether the server is to hear at once of a demand.
func (m *machine) lookAtDemands(now int64, p *part) {
	for _, l := range p.active {
		if amount := l.refused.Swap(0); amount > 0 {
			if most := l.most.Load(); most != unknown && amount <= most && !l.leased(now) && l.queued.Load() == 0 {
				l.units, l.unitsBy = max(l.units, amount), now+unitsWanted
			}
		}
	}
	if at := p.lookAt(); at == 0 || now < at {
		return
	}
	p.looked, p.poked = now, false
	for _, l := range p.active {
		l.poked.Store(false)
		if l.demand.changed(now, l) {
			p.due = now
		}
	}
}

// describe asks the server to describe leaves that were opened. It asks for no leases, so the
// server takes it at any time: limiters that are opened one after the other cost a request each.
func (m *machine) describe(now int64, p *part) {
	q := &protocol.LimitRefresh{Session: p.session, Path: []byte(p.root),
		BucketEpoch: p.knows[0], LeaderEpoch: p.knows[1]}
	a := action{kind: doRefresh, part: p, msg: q}
	for len(p.opening) > 0 && len(q.Leaves) < protocol.MaxLimitLeaves {
		l := p.opening[0]
		p.opening = p.opening[1:]
		if l.users > 0 && !l.active { // of any other a refresh says more
			a.leaves = append(a.leaves, l)
			f := l.report(now)
			if q.Leaves = append(q.Leaves, f); f.Demand > 0 || f.Waiting > 0 {
				p.activate(l)
			}
		}
	}
	if len(q.Leaves) == 0 {
		return
	}
	m.seq++
	q.Seq, q.Open, p.refreshing, p.wakeKnown = m.seq, p.wantsFrom(m.seq), true, false
	p.refreshes++
	m.send(now, a)
}

// refresh asks for the leases of leaves: of those that want some or have some, and those that the
// server has not described. What does not fit goes into the next one.
func (m *machine) refresh(now int64, p *part) {
	m.seq++
	p.sent, p.due, p.refreshing = now, 0, true
	p.refreshes++
	q := &protocol.LimitRefresh{Session: p.session, Path: []byte(p.root), Seq: m.seq, Open: p.wantsFrom(m.seq)}
	a := action{kind: doRefresh, part: p, msg: q}
	some := min(len(p.opening), protocol.MaxLimitLeaves)
	for _, l := range p.opening[:some] {
		p.activate(l)
	}
	p.opening = p.opening[some:]
	p.active = slices.DeleteFunc(p.active, func(l *leaf) bool {
		l.sees(now)
		if l.resting(now) || l.users == 0 {
			l.active = false
		}
		return !l.active
	})
	for _, l := range p.active {
		if len(q.Leaves) == protocol.MaxLimitLeaves {
			p.due = now
			break
		}
		a.leaves = append(a.leaves, l)
		q.Leaves = append(q.Leaves, l.report(now))
	}
	p.closed = slices.DeleteFunc(p.closed, func(x closedLeaf) bool {
		if len(q.Leaves) == protocol.MaxLimitLeaves || !p.canClose(x) {
			return false
		}
		if p.byPath[string(x.Path)] == nil {
			q.Leaves = append(q.Leaves, x.LimitLeaf)
		}
		return true
	})
	// A leader that is named waits for no lease of this session any more: the last ones are in
	// here.
	rest := p.active[len(a.leaves):]
	if !slices.ContainsFunc(rest, func(l *leaf) bool { return l.stale && l.burst > 0 }) {
		p.knows = [2]uint64{p.bucketEpoch, p.leaderEpoch}
	}
	q.BucketEpoch, q.LeaderEpoch = p.knows[0], p.knows[1]
	if n := len(a.leaves); len(rest) > 0 { // the next one begins with the others
		p.active = append(slices.Clone(rest), p.active[:n]...)
	}
	m.send(now, a)
}

// reached notes that the server has answered.
func (p *part) reached(now int64) {
	p.contact = now
	if !p.floored {
		return
	}
	p.floored = false
	for _, l := range p.leaves {
		l.floor.Store(nil)
	}
}

// refused notes a failure.
func (m *machine) refused(now int64, p *part, err error) {
	p.wakeKnown = false
	p.failed++
	switch {
	case errors.Is(err, protocol.StatusPreconditionFailed):
		p.joined, p.tryAt = false, now+refreshGap // the session was attached again
	case final(err):
		p.joined, p.tryAt = p.joined && !errors.Is(err, protocol.StatusNotFound), now+retryAfter
		for _, l := range p.leaves {
			l.err = err
			l.drop(now)
			m.fail(now, l, err)
		}
		p.notifyOpened()
		if p.leaving {
			m.gone(p)
		}
	default:
		if p.tryAt = now + demandGap; now-p.contact > int64(p.length)*1e6/beliefDen*beliefNum {
			p.floored = true
			for _, l := range p.leaves {
				l.unreachable(now)
			}
		}
	}
}

// refreshed takes the leases.
func (m *machine) refreshed(now int64, a *action, r *protocol.LimitRefreshReply) error {
	p, q := a.part, a.msg.(*protocol.LimitRefresh)
	if len(r.Leaves) != len(q.Leaves) {
		return protocol.Errorf(protocol.StatusInternal, "a refresh of %d leaves was answered with %d",
			len(q.Leaves), len(r.Leaves))
	}
	if (p.bucketEpoch != r.BucketEpoch || p.leaderEpoch != r.LeaderEpoch) && p.leaderEpoch > 0 {
		p.outdated() // the leader does not know who uses them
		p.due = now
		for _, l := range p.leaves {
			m.askAgain(now, l)
		}
	}
	p.bucketEpoch, p.leaderEpoch, p.length = r.BucketEpoch, r.LeaderEpoch, r.Length
	p.sample(r.BucketEpoch, r.LeaderEpoch, r.Clock, a.sent)
	if r.Again {
		p.due = now
	}
	for i, l := range a.leaves {
		if p.byPath[l.path] == l {
			m.leaseTaken(now, l, &q.Leaves[i], &r.Leaves[i], a.sent)
		}
	}
	p.notifyOpened()
	return nil
}

// leaseTaken gives a leaf its lease.
func (m *machine) leaseTaken(now int64, l *leaf, q *protocol.LimitLeaf, x *protocol.LimitLease, sent int64) {
	l.stale = false
	switch x.State {
	case protocol.LimitMissing, protocol.LimitInner:
		l.err = protocol.Refuse(protocol.RefusalNoLimit, "there is no resource %s; create it first", l.path)
		if x.State == protocol.LimitInner {
			l.err = protocol.Refuse(protocol.RefusalHasChildren,
				"resource %s has children; use one of them", l.path)
		}
		l.drop(now)
		m.fail(now, l, l.err)
		l.demand.reported, l.length = 0, uint64(retryAfter/1e6)*3
		return
	}
	l.err = nil
	l.install(now, x, sent+int64(x.Length)*1e6/beliefDen*beliefNum)
	m.recheck(now, l)
	m.pump(now, l)
}

// recheck fails the calls that can never be admitted any more.
func (m *machine) recheck(now int64, l *leaf) {
	most := l.most.Load()
	if most == unknown || l.shadow.Load() {
		return
	}
	for _, c := range l.queue.first.calls {
		if c.amount > most {
			m.finish(now, c, impossible(l, c.amount))
		}
	}
}

// final reports whether an error will be the same again.
func final(err error) bool {
	return errors.Is(err, protocol.StatusNotFound) || errors.Is(err, protocol.StatusForbidden) ||
		errors.Is(err, protocol.StatusBadRequest) ||
		errors.Is(err, protocol.StatusPreconditionFailed)
}

// impossible is the error of a call that can never be admitted.
func impossible(l *leaf, amount uint64) error {
	most := l.most.Load()
	if most == 0 {
		return protocol.Errorf(protocol.StatusBadRequest, "the rate of %s is 0, which admits nobody; raise it",
			l.path)
	}
	return protocol.Errorf(protocol.StatusBadRequest, "%s are more than the burst of %s allows at once, %s; ask for less, or raise the burst",
		protocol.LimitUnits(amount), l.path, protocol.LimitUnits(most))
}
