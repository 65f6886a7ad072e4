package ratelimit

import (
	"errors"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// machine is the part of a client in rate limits as a pure state machine: it knows no clock, sends
// nothing and starts no goroutine. Calls carry the time, in ns of any clock, and [machine.take]
// returns what is to be done. The driver holds its mutex around each call.
//
// It has a part for each tree that a session takes part in, with the leaves that are open. Calls
// that wait are in the queues of their leaves:
//
//   - A leaf with a lease admits from the head of its queue, as fast as its bucket fills.
//   - A leaf without one asks the server for the units of the queue's first calls, again and again.
//   - A call of several leaves takes of those that are leased, and asks for units of the others; one
//     that is refused anywhere gives back what it took, and lets those behind it pass meanwhile.
type machine struct {
	parts []*part
	seq   uint64 // of the latest refresh or acquire: a tree that is opened again has higher ones than before
	out   []action
	ended []*call
}

// Times in ns.
const (
	refreshGap  = int64(60e6)  // the server takes a refresh each 50 ms
	demandGap   = int64(100e6) // between refreshes because a demand changed
	retryAfter  = int64(1e9)   // of what the server refuses
	maxAskGap   = int64(2e9)   // a turn at the server is kept for that long
	idleRefresh = int64(10e9)  // of a participant without demand
	unitsWanted = int64(10e9)  // a call that Allow refused comes again until then
	unitsPoll   = int64(500e6) // at most, for units that Allow wants
	firstLength = 3_000        // ms of a lease, until the server says more
	lookAhead   = 64           // calls of a queue that are looked at behind one that waits for another leaf
)

// part is a session's part in a tree.
type part struct {
	root string
	node uint64

	session uint64 // 0: there is none at present
	err     error  // why there will be none
	gen     uint64 // of the session: answers to the one before count for nothing

	leaves  []*leaf // in any order
	active  []*leaf // those of which something is to be done; 10,000 that rest cost nothing
	opening []*leaf // those that the server has not described, and of which nobody has called any
	byPath  map[string]*leaf
	closed  []protocol.LimitLeaf // to be reported

	joined, before      bool
	joining, refreshing bool
	leaving             bool // the server is to forget it, as no leaf is open
	left                chan struct{}
	bucketEpoch         uint64
	leaderEpoch         uint64
	length              uint64 // of a lease, in ms
	sent, looked        int64
	due                 int64 // a refresh that is due for other reasons than time; 0: none is
	poked               bool  // a demand may have changed
	wake                int64 // what next returns, if it is known
	wakeKnown           bool
	looks               uint64 // so many leaves and calls were looked at: what the machine's work is
	tryAt               int64  // after a failure
	contact             int64  // when the server has answered last
	floored             bool   // floors count, as the server cannot be reached
	forgotten           bool   // the server knows of no leaf, and none is open
	opened              chan struct{}

	asks []uint64 // numbers of the acquires whose units may be used yet
	slow int64    // ns: how long the slowest of the last acquires took

	refreshes, failed, acquires uint64

	driver any // the driver's; the machine does not look at it
}

// actionKind is what the driver is to do.
type actionKind uint8

const (
	doJoin actionKind = iota
	doRefresh
	doAcquire
	doBack
	doLeave
)

// action is a request that is to be sent. Its answer comes by [machine.answered].
type action struct {
	kind   actionKind
	part   *part
	gen    uint64
	msg    protocol.Message
	sent   int64
	length uint64 // of the part's leases, in ms
	leaves []*leaf
	call   *call // of several leaves
	try    int   // of that call
	calls  []*call
	grant  grant // what is given out in answer
}

// take returns what is to be done, and which calls have ended.
func (m *machine) take() (out []action, ended []*call) {
	out, ended, m.out, m.ended = m.out, m.ended, nil, nil
	return out, ended
}

// open adds a user of a leaf.
func (m *machine) open(now int64, p *part, path string) *leaf {
	if l := p.byPath[path]; l != nil {
		l.users++
		return l
	}
	l := newLeaf(p, path)
	l.place, p.leaves = len(p.leaves), append(p.leaves, l)
	p.byPath[path] = l
	p.leaving, p.forgotten, p.due = false, false, now
	p.opening = append(p.opening, l)
	switch at := p.tryAt; { // nothing else has changed: a step would look at all leaves
	case p.session == 0 || p.err != nil || p.joining || p.refreshing:
	default:
		if p.joined {
			at = max(at, p.sent+refreshGap)
		}
		if now >= at {
			m.step(now, p)
		} else if p.wake == 0 || at < p.wake {
			p.wake = at
		}
	}
	return l
}

// activate notes that something is to be done for a leaf, unless it was closed.
func (p *part) activate(l *leaf) {
	if !l.active && l.users > 0 {
		l.active = true
		p.active = append(p.active, l)
	}
}

func newPart(root string) *part {
	return &part{root: root, byPath: map[string]*leaf{}, length: firstLength, slow: slowFirst,
		opened: make(chan struct{})}
}

// release takes a user of a leaf away. left is closed when the server knows.
func (m *machine) release(now int64, l *leaf, err error) (left chan struct{}) {
	p := l.part
	if l.users--; l.users > 0 {
		return nil
	}
	m.fail(now, l, err)
	l.drop(now)
	last := len(p.leaves) - 1
	p.leaves[l.place] = p.leaves[last]
	p.leaves[l.place].place = l.place
	p.leaves[last] = nil
	p.leaves = p.leaves[:last]
	delete(p.byPath, l.path)
	p.closed = append(p.closed, protocol.LimitLeaf{Path: []byte(l.path), Closed: true, Allowed: l.allowed.Load(),
		Denied: l.denied.Load(), Waited: l.waited.Load(), Impossible: l.impossible.Load()})
	p.due = now
	if len(p.leaves) == 0 {
		p.leaving = true
	}
	if p.left == nil {
		p.left = make(chan struct{})
	}
	left = p.left
	if len(p.leaves) == 0 || p.session != 0 && !p.joining && !p.refreshing {
		m.step(now, p)
	}
	return left
}

// fail ends all calls of a leaf.
func (m *machine) fail(now int64, l *leaf, err error) {
	for c := l.head(); c != nil; c = l.head() {
		m.finish(c, err)
	}
}

// finish ends the wait of a call, which is admitted unless there is an error.
func (m *machine) finish(c *call, err error) {
	if c.finished {
		return
	}
	c.finished, c.err = true, err
	c.changed()
	for i, l := range c.leaves {
		l.queue.remove(&c.places[i])
		l.waiting -= c.amount
		l.queued.Add(-1)
		if err != nil {
			l.gaveUp += c.amount
			continue
		}
		l.allowed.Add(c.amount)
		if !c.spent {
			l.waited.Add(c.amount)
		}
	}
	m.ended = append(m.ended, c)
}

// changed notes that the parts of a call may have to do something earlier than was known.
func (c *call) changed() {
	for _, l := range c.leaves {
		l.part.wakeKnown = false
	}
}

// enqueue puts a call at the end of the queues of its leaves.
func (m *machine) enqueue(now int64, c *call) {
	c.done = make(chan struct{})
	c.places = make([]place, len(c.leaves))
	for i, l := range c.leaves {
		c.places[i].call = c
		l.queue.add(&c.places[i])
		l.waiting += c.amount
		l.lately = true
		l.queued.Add(1)
	}
	for _, l := range c.leaves {
		l.part.poked = true
		l.part.activate(l)
	}
	for _, l := range c.leaves {
		m.step(now, l.part)
	}
}

// cancel has a call leave its queues. Units that were taken stay taken.
func (m *machine) cancel(now int64, c *call, err error) {
	if c.finished {
		return
	}
	heads := make([]bool, len(c.leaves))
	for i, l := range c.leaves {
		heads[i] = l.head() == c
	}
	m.finish(c, err)
	for i, l := range c.leaves {
		if heads[i] {
			m.pump(now, l)
		}
	}
}

// oweSpent has later calls wait for an amount that was used already, up to ten bursts.
func (m *machine) oweSpent(now int64, l *leaf, amount uint64) {
	most := l.most.Load()
	if most == unknown {
		return
	}
	for owed := uint64(0); most > 0 && amount > 0 && owed < 10*most; owed += most {
		part := min(amount, most)
		m.enqueue(now, &call{leaves: []*leaf{l}, amount: part, spent: true})
		amount -= part
	}
}

// poke notes that calls were denied, or spent.
func (m *machine) poke(now int64, l *leaf) {
	l.part.poked = true
	l.part.activate(l)
	m.step(now, l.part)
}

// notice is the server's: the session is to refresh. A new revision has changed resources.
func (m *machine) notice(now int64, p *part, changed bool) {
	if changed {
		p.outdated()
	}
	p.due = now
	m.step(now, p)
}

// outdated has the server describe all leaves.
func (p *part) outdated() {
	for _, l := range p.leaves {
		l.stale = true
		p.activate(l)
	}
	p.opening = nil
}

// attached gives a part its session.
func (m *machine) attached(now int64, p *part, session, node uint64) {
	p.session, p.node = session, node
	p.gen++
	p.joined, p.before, p.joining, p.refreshing = false, false, false, false
	p.bucketEpoch, p.leaderEpoch, p.tryAt, p.due, p.asks = 0, 0, 0, now, nil
	p.closed = nil // of the one before, which is no participant any more
	p.outdated()
	for _, l := range p.leaves {
		m.detach(l)
	}
	m.step(now, p)
}

// detach forgets what is asked for a leaf's calls.
func (m *machine) detach(l *leaf) {
	l.asking, l.askAt = false, 0
	for _, c := range l.queue.first.calls {
		if c.asking {
			m.giveBack(c)
		}
	}
}

// lost notes that a part's session has ended. With an error there will be no other one.
func (m *machine) lost(now int64, p *part, err error) {
	p.session, p.err, p.wakeKnown = 0, err, false
	p.gen++
	p.joined, p.joining, p.refreshing = false, false, false
	for _, l := range p.leaves {
		m.detach(l)
		if err != nil {
			m.fail(now, l, err)
		}
		l.drop(now)
		l.unreachable(now)
	}
	p.floored = true
	if p.leaving {
		m.gone(p)
	}
	p.notifyOpened()
}

// gone notes that the server knows of no leaf.
func (m *machine) gone(p *part) {
	p.joined, p.before = false, false
	p.closed = nil
	p.forgotten = len(p.leaves) == 0
	p.notifyLeft()
}

func (p *part) notifyLeft() {
	if p.left != nil {
		close(p.left)
		p.left = nil
	}
}

// notifyOpened wakes who waits for the first answer of the server.
func (p *part) notifyOpened() {
	close(p.opened)
	p.opened = make(chan struct{})
}

// next is when to call step; 0: nothing is to be done.
func (p *part) next(now int64) int64 {
	if !p.wakeKnown {
		p.wake, p.wakeKnown = p.soonest(now), true
	}
	return p.wake
}

func (p *part) soonest(now int64) (at int64) {
	p.looks += uint64(len(p.active))
	soonest := func(t int64) {
		if t > 0 && (at == 0 || t < at) {
			at = t
		}
	}
	if p.session == 0 || p.err != nil {
		for _, l := range p.active {
			soonest(l.wakeAt(now))
		}
		return at
	}
	if !p.joining && !p.refreshing {
		switch {
		case !p.joined:
			soonest(max(p.tryAt, 1))
		default:
			soonest(p.refreshAt(now))
			soonest(p.lookAt())
		}
	}
	for _, l := range p.active {
		soonest(l.wakeAt(now))
	}
	return at
}

// wakeAt is when the queue's next call may be admitted, or asked for; 0: when something changes.
func (l *leaf) wakeAt(now int64) (at int64) {
	looked := 0
	for _, c := range l.queue.first.calls {
		if looked++; looked > lookAhead {
			break
		}
		l.part.looks++
		t := int64(0)
		if len(c.leaves) > 1 {
			if c.asking {
				continue
			}
			t = max(c.askAt, now+int64(1e6))
		} else if b := l.deciding(now); b != nil && b.rate > 0 {
			if ns, ok := b.delay(now, c.amount); ok {
				t = now + max(ns, 1000)
			}
		} else if !l.asking && l.part.joined {
			t = max(l.askAt, now+1000)
		}
		if t > 0 && (at == 0 || t < at) {
			at = t
		}
		if len(c.leaves) == 1 {
			break
		}
	}
	return at
}

// refreshAt is when the next refresh is due.
func (p *part) refreshAt(now int64) int64 {
	at := p.sent + idleRefresh
	if len(p.opening) > 0 {
		at = p.sent + refreshGap
	}
	if len(p.closed) > 0 || p.leaving {
		at = p.sent
	}
	for _, l := range p.active {
		switch {
		case l.stale:
			at = min(at, p.sent+refreshGap)
		case l.burst > 0 || l.demand.reported > 0 || l.demand.waiting:
			at = min(at, p.sent+int64(l.length)*1e6/3)
		}
		if l.units > 0 && !l.leased(now) {
			at = min(at, max(l.unitsAt, p.sent+refreshGap))
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

// tick does what is due.
func (m *machine) tick(now int64) {
	for _, p := range m.parts {
		m.step(now, p)
	}
}

// step does what is due of a part.
func (m *machine) step(now int64, p *part) {
	p.wakeKnown = false
	p.looks += uint64(len(p.active))
	if p.err != nil {
		return
	}
	if p.leaving && p.session == 0 {
		m.gone(p)
		return
	}
	if p.session == 0 {
		for _, l := range p.active {
			m.pump(now, l)
		}
		return
	}
	if !p.joining && !p.refreshing {
		switch {
		case !p.joined && p.leaving && !p.before:
			m.gone(p)
			return
		case !p.joined && now >= p.tryAt:
			p.joining = true
			m.send(now, action{kind: doJoin, part: p, msg: &protocol.LimitJoin{Path: []byte(p.root), Again: p.before}})
		case p.joined && p.leaving && len(p.closed) == 0 && now >= p.tryAt:
			p.joining = true
			m.send(now, action{kind: doLeave, part: p, msg: &protocol.LimitLeave{Path: []byte(p.root)}})
		case p.joined:
			m.lookAtDemands(now, p)
			if now >= p.refreshAt(now) {
				m.refresh(now, p)
			}
		}
	}
	for _, l := range p.active {
		if l.queued.Load() > 0 {
			m.pump(now, l)
		}
	}
}

// lookAtDemands finds out whether the server is to hear at once of a demand.
func (m *machine) lookAtDemands(now int64, p *part) {
	for _, l := range p.active {
		if amount := l.refused.Swap(0); amount > 0 {
			if most := l.most.Load(); most != unknown && amount <= most && !l.leased(now) && l.queued.Load() == 0 {
				if l.units == 0 {
					p.due = now // it is asked for at once
				}
				l.units, l.unitsBy = max(l.units, amount), now+unitsWanted
			}
		}
		if l.units > 0 && (now >= l.unitsBy || l.queued.Load() > 0) {
			l.units = 0
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

func (m *machine) send(now int64, a action) {
	a.gen, a.sent, a.length = a.part.gen, now, a.part.length
	m.out = append(m.out, a)
}

// refresh asks for the leases of leaves: of those that want some or have some, and those that the
// server has not described. What does not fit goes into the next one.
func (m *machine) refresh(now int64, p *part) {
	m.seq++
	p.sent, p.due, p.refreshing = now, 0, true
	p.refreshes++
	q := &protocol.LimitRefresh{Session: p.session, Path: []byte(p.root), Seq: m.seq, BucketEpoch: p.bucketEpoch,
		LeaderEpoch: p.leaderEpoch}
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
	for len(p.closed) > 0 && len(q.Leaves) < protocol.MaxLimitLeaves {
		if x := p.closed[0]; p.byPath[string(x.Path)] == nil {
			q.Leaves = append(q.Leaves, x)
		}
		p.closed = p.closed[1:]
	}
	if n := len(a.leaves); n == protocol.MaxLimitLeaves { // the next one begins with the others
		p.active = append(slices.Clone(p.active[n:]), p.active[:n]...)
	}
	m.send(now, a)
}

// answered takes the answer to an action.
func (m *machine) answered(now int64, a *action, reply protocol.Message, err error) {
	p := a.part
	if a.gen != p.gen || p.err != nil {
		return
	}
	if err == nil {
		p.reached(now)
	}
	switch a.kind {
	case doJoin:
		if p.joining = false; err != nil {
			m.refused(now, p, err)
			break
		}
		p.joined, p.before, p.due, p.tryAt = true, true, now, 0
	case doLeave:
		p.joining = false
		if err != nil && !final(err) {
			p.tryAt = now + demandGap
			break
		}
		p.joined, p.before = false, false
		if p.leaving {
			m.gone(p)
		}
	case doRefresh:
		p.refreshing = false
		if err == nil {
			err = m.refreshed(now, a, reply.(*protocol.LimitRefreshReply))
		}
		if err != nil {
			for _, x := range a.msg.(*protocol.LimitRefresh).Leaves {
				if x.Closed {
					p.closed = append(p.closed, x)
				}
			}
			m.refused(now, p, err)
		} else if p.tryAt = 0; len(p.closed) == 0 && !p.leaving {
			p.notifyLeft()
		}
	case doAcquire:
		m.acquired(now, a, reply, err)
	}
	m.step(now, p)
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

// final reports whether an error will be the same again.
func final(err error) bool {
	return errors.Is(err, protocol.StatusNotFound) || errors.Is(err, protocol.StatusForbidden) ||
		errors.Is(err, protocol.StatusBadRequest) ||
		errors.Is(err, protocol.StatusPreconditionFailed)
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
	}
	p.bucketEpoch, p.leaderEpoch, p.length = r.BucketEpoch, r.LeaderEpoch, r.Length
	if r.Again {
		p.due = now
	}
	for i, l := range a.leaves {
		if p.byPath[l.path] == l && m.leaseTaken(now, l, &q.Leaves[i], &r.Leaves[i], a.sent) {
			p.due = now
		}
	}
	p.notifyOpened()
	return nil
}

// leaseTaken gives a leaf its lease. It reports whether the leaf uses less from now on: others wait
// for the confirmation.
func (m *machine) leaseTaken(now int64, l *leaf, q *protocol.LimitLeaf, x *protocol.LimitLease,
	sent int64) (less bool) {
	l.stale = false
	switch x.State {
	case protocol.LimitMissing, protocol.LimitInner:
		l.err = protocol.Errorf(protocol.StatusNotFound, "there is no resource %s; create it first", l.path)
		if x.State == protocol.LimitInner {
			l.err = protocol.Errorf(protocol.StatusPreconditionFailed,
				"resource %s has children; use one of them", l.path)
		}
		l.drop(now)
		m.fail(now, l, l.err)
		l.demand.reported, l.length = 0, uint64(retryAfter/1e6)*3
		return false
	}
	l.err = nil
	less = len(q.Statement) > 0 && (x.Rate < l.rate || x.Burst < l.burst)
	l.install(now, x, sent+int64(x.Length)*1e6/beliefDen*beliefNum)
	if q.Units > 0 {
		if x.Level >= q.Units || x.Rate > 0 {
			l.units = 0
		} else if wait := int64(x.Retry) * 1e6; wait > 0 {
			l.unitsAt = now + min(wait, unitsPoll)
		} else {
			l.unitsAt = now + demandGap
		}
	}
	if x.Retry > 0 {
		l.askAt = max(l.askAt, now)
	}
	m.recheck(now, l)
	m.pump(now, l)
	return less
}

// recheck fails the calls that can never be admitted any more.
func (m *machine) recheck(now int64, l *leaf) {
	most := l.most.Load()
	if most == unknown || l.shadow.Load() {
		return
	}
	for _, c := range l.queue.first.calls {
		if c.amount > most {
			m.finish(c, impossible(l, c.amount))
		}
	}
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
