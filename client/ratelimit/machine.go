package ratelimit

import (
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
//   - A leaf without one asks the server for the units of the queue's first calls. The server holds
//     each request until the call is admitted.
//   - A call of several leaves asks for units of those without a lease, and takes of the others when
//     it has them. Meanwhile those behind it pass.
type machine struct {
	parts  []*part
	seq    uint64 // of the latest refresh or acquire: a tree that is opened again has higher ones than before
	wanted int    // acquires that are wanted, of all parts
	out    []action
	ended  []*call
}

// Times in ns.
const (
	refreshGap  = int64(60e6)  // the server takes a refresh each 50 ms
	demandGap   = int64(100e6) // between refreshes because a demand changed
	retryAfter  = int64(1e9)   // of what the server refuses
	idleRefresh = int64(10e9)  // of a participant without demand
	unitsWanted = int64(10e9)  // a call that Allow refused comes again until then
	clockGap    = int64(1e9)   // the server's clock is asked for so often while calls wait there
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
	opening []*leaf // those that the server is to describe, and of which nobody has called any
	byPath  map[string]*leaf
	closed  []closedLeaf // to be reported

	joined, before      bool
	joining, refreshing bool
	leaving             bool // the server is to forget it, as no leaf is open
	left                chan struct{}
	bucketEpoch         uint64
	leaderEpoch         uint64
	knows               [2]uint64 // the epochs of the latest leader that has been told of all leases
	length              uint64    // of a lease, in ms
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

	back   uint64   // number of the latest acquire that was withdrawn, until the server knows
	wanted []uint64 // numbers of acquires that are wanted: the server holds them, or their units are used or go back
	used   []uint64 // numbers of acquires whose units were used, which the server does not know yet
	clock  leaderClock

	refreshes, failed, acquires uint64

	driver any // the driver's; the machine does not look at it
}

// closedLeaf is a leaf that nobody uses any more. The server forgets all units of it, so it is reported behind those
// that go back.
type closedLeaf struct {
	protocol.LimitLeaf
	behind uint64 // the acquire that was withdrawn last
}

// canClose reports whether the server has the units that went back before a leaf was closed.
func (p *part) canClose(x closedLeaf) bool {
	_, wanted := slices.BinarySearch(p.wanted, x.behind)
	return !wanted
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
	call   *call
	ask    *ask
}

// take returns what is to be done, and which calls have ended.
func (m *machine) take() (out []action, ended []*call) {
	for _, p := range m.parts {
		m.report(p)
	}
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
	p.leaving, p.forgotten = false, false
	p.opening = append(p.opening, l)
	switch { // nothing else has changed: a step would look at all leaves
	case p.session == 0 || p.err != nil || p.joining || p.refreshing:
	case now < p.tryAt:
		if p.wake == 0 || p.tryAt < p.wake {
			p.wake = p.tryAt
		}
	case p.joined:
		m.describe(now, p)
	default:
		m.step(now, p)
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
	return &part{root: root, byPath: map[string]*leaf{}, length: firstLength,
		opened: make(chan struct{})}
}

// release takes a user of a leaf away. left is closed when the server knows.
func (m *machine) release(now int64, l *leaf, err error) (left chan struct{}) {
	p := l.part
	if l.users--; l.users > 0 {
		return nil
	}
	m.fail(now, l, err)
	m.restock(now, l)
	l.drop(now)
	last := len(p.leaves) - 1
	p.leaves[l.place] = p.leaves[last]
	p.leaves[l.place].place = l.place
	p.leaves[last] = nil
	p.leaves = p.leaves[:last]
	delete(p.byPath, l.path)
	p.closed = append(p.closed, closedLeaf{protocol.LimitLeaf{Path: []byte(l.path), Closed: true, Allowed: l.allowed.Load(),
		Denied: l.denied.Load(), Waited: l.waited.Load(), Impossible: l.impossible.Load()}, p.back})
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
		m.finish(now, c, err)
	}
}

// finish ends the wait of a call, which is admitted unless there is an error.
func (m *machine) finish(now int64, c *call, err error) {
	if c.finished {
		return
	}
	c.finished, c.err = true, err
	c.changed()
	for _, a := range c.asks {
		m.withdraw(now, a)
	}
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
		l.queued.Add(1)
	}
	for _, l := range c.leaves {
		l.part.poked = true
		l.part.activate(l)
	}
	for _, l := range c.leaves {
		m.step(now, l.part)
	}
	if l := c.leaves[0]; c.try && !c.finished && len(c.leaves) == 1 {
		m.tryBehind(now, l, c)
	}
	for _, l := range c.leaves {
		l.lately = l.lately || l.lacking()
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
	m.finish(now, c, err)
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
	p.bucketEpoch, p.leaderEpoch, p.knows, p.tryAt, p.due, p.used, p.back, p.clock = 0, 0, [2]uint64{}, 0, now, nil, 0, leaderClock{}
	p.closed = nil // of the one before, which is no participant any more
	p.outdated()
	m.detach(now, p)
	m.step(now, p)
}

// detach forgets what was asked of the leader of a session that has ended, and what it gave.
func (m *machine) detach(now int64, p *part) {
	m.wanted -= len(p.wanted)
	p.wanted = nil
	for _, l := range p.leaves {
		if l.stock != nil {
			l.empty(now)
		}
		l.stock, l.restocks, l.asks = nil, nil, 0
		for _, c := range l.queue.first.calls {
			c.asks = slices.DeleteFunc(c.asks, func(a *ask) bool { return a.part == p })
		}
	}
}

// lost notes that a part's session has ended. With an error there will be no other one.
func (m *machine) lost(now int64, p *part, err error) {
	p.session, p.err, p.wakeKnown = 0, err, false
	p.gen++
	p.joined, p.joining, p.refreshing = false, false, false
	m.detach(now, p)
	for _, l := range p.leaves {
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
			if len(p.opening) > 0 {
				soonest(max(p.tryAt, 1))
			}
		}
	}
	for _, l := range p.active {
		soonest(l.wakeAt(now))
	}
	return at
}

// triedAt is when a call of several leaves is to be tried again.
func (c *call) triedAt(now int64) int64 {
	at := now + int64(1e6)
	for _, a := range c.asks {
		switch {
		case a.granted:
			return min(max(a.grant.until, at), now+int64(5e6))
		case a.open:
			at = now + demandGap
		default:
			at = max(at, a.at)
		}
	}
	return at
}

// wakeAt is when the queue's next call may be admitted, or asked for; 0: when something changes.
func (l *leaf) wakeAt(now int64) (at int64) {
	looked := 0
	if l.stock != nil {
		at = max(l.bucket.Load().until.Load(), now+1000)
	} else if c := l.restocks; c != nil && !c.asks[0].open {
		at = max(now+1000, c.asks[0].at)
	}
	for _, c := range l.queue.first.calls {
		if looked++; looked > lookAhead {
			break
		}
		l.part.looks++
		t := int64(0)
		if len(c.leaves) > 1 {
			t = c.triedAt(now)
		} else if b := l.deciding(now); b != nil && b.rate > 0 {
			if ns, ok := b.delay(now, c.amount); ok {
				t = now + max(ns, 1000)
			}
		} else if l.part.joined && (len(c.asks) == 0 || !c.asks[0].open) {
			t = now + 1000
			if len(c.asks) > 0 {
				t = max(t, c.asks[0].at)
			}
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
			} else if now >= p.tryAt {
				m.describe(now, p)
			}
		}
	}
	for _, l := range p.active {
		if l.units > 0 || l.stock != nil || l.restocks != nil {
			m.restock(now, l)
		}
		if l.queued.Load() > 0 {
			m.pump(now, l)
		}
	}
}

func (m *machine) send(now int64, a action) {
	a.gen, a.sent, a.length = a.part.gen, now, a.part.length
	m.out = append(m.out, a)
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
					p.closed = append(p.closed, closedLeaf{LimitLeaf: x})
				}
			}
			for _, l := range a.leaves {
				if l.stale {
					p.activate(l)
				}
			}
			m.refused(now, p, err)
		} else if p.tryAt = 0; len(p.closed) == 0 && !p.leaving {
			p.notifyLeft()
		}
	case doAcquire:
		m.acquired(now, a, reply, err)
	case doBack:
		back := a.msg.(*protocol.LimitAcquire).Back
		m.unwant(p, back)
		if p.back == back {
			p.back = 0
		}
	}
	m.step(now, p)
}
