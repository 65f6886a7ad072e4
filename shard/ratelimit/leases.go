package ratelimit

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// A session refreshes every 50 ms at most, and a few times in a row.
const (
	refreshEvery = 50
	refreshRow   = 4
)

// notifyEvery is the least time between two looks for whom to notify, in ms.
const notifyEvery = 10

// Leases are what one leadership knows of the leases of a tree.
type Leases struct {
	at         Leadership
	now        uint64 // the latest of any call
	length     uint64 // of a lease; of a deleted tree what it was
	began      uint64
	learning   bool
	learnUntil uint64

	built     bool
	version   uint64 // of the tree, as built
	revision  uint64
	nodes     []node // in order of path
	index     map[string]int
	members   []*member // in the order of their first refreshes
	bySession map[uint64]*member
	numbers   uint64

	grants      container.Heap[*grant] // that were given out and may not be used yet
	turnNumbers uint64
	sleepers    container.Heap[sleeper]
	asked       []askedCall // since the last Admit
	answers     []Answer    // that Admit is to give
	admitAt     uint64      // when it has something to do; 0: when something changes
	confirmed   uint64      // when the read barrier began behind which it admits

	joinsChanged bool   // members may have left since they were looked at
	unreported   uint64 // while learning, a session that all wait for; 0: it is to be looked for

	dirty     bool // the shares are to be computed again
	computed  uint64
	freed     bool   // somebody who is short may find room now
	shortages int    // holdings that have less than their share, and resources that lack units to give out
	blocked   int    // of these, those that wait until others have less
	short     uint64 // since when some are blocked; 0: none is
	announce  bool   // the configuration has changed: all are to refresh
	steady    int    // sessions that ask for something and did not begin a moment ago
	growing   bool   // the share of one that began a moment ago is held down
	notifyAt  uint64

	parts   []part // scratch
	learned uint64 // ms that learning took
}

// NewLeases begins to know a leadership of a tree, which began at a time. Nobody has called it
// before.
func NewLeases(at Leadership, began uint64) *Leases {
	return &Leases{at: at, now: began, began: began, learning: true, bySession: map[uint64]*member{}, index: map[string]int{}}
}

// Leadership returns the one that it is about.
func (l *Leases) Leadership() Leadership { return l.at }

// Observe notes what the log says. version rises with each change of the tree.
func (l *Leases) Observe(now uint64, tree *Tree, version uint64) {
	l.now = max(l.now, now)
	l.expireGrants()
	if l.built && l.version == version {
		return
	}
	if length := tree.Lease(); length > 0 {
		l.length = length
	}
	l.length = max(l.length, protocol.MinLimitLease)
	if !l.built {
		longest := l.length
		if tree.formerUntil > l.began {
			longest = max(longest, tree.formerLease)
		}
		l.learnUntil = l.began + longest
	}
	if !l.built || l.revision != tree.revision {
		l.announce = l.built // what waits is to be looked at again
		l.build(l.now, tree)
	}
	l.built, l.version, l.revision = true, version, tree.revision
	l.joinsChanged, l.dirty = true, true
}

// member finds or adds a participant.
func (l *Leases) member(tree *Tree, session, epoch uint64) (*member, error) {
	joined, ok := tree.Joined(session)
	if !ok || joined != epoch {
		if tree.Deleted() {
			return nil, protocol.Refuse(protocol.RefusalNoLimit, "there is no such rate limit; create it first")
		}
		return nil, protocol.Errorf(protocol.StatusPreconditionFailed,
			"session %d does not take part in the rate limit under its attach epoch; join first", session)
	}
	former := l.bySession[session]
	if former != nil {
		if former.epoch == epoch && !former.gone {
			return former, nil
		}
		former.gone = true
		former.former = nil
	}
	m := &member{session: session, epoch: epoch, former: former, joined: tree.participants[session].joined}
	l.bySession[session] = m
	l.members = append(l.members, m)
	return m, nil
}

// Refresh answers a client that asks for its leases. now is when the read barrier began that
// confirmed the leadership. Errors are of the whole refresh: PRECONDITION_FAILED for a session
// that does not take part, NOT_FOUND for a deleted tree, ABORTED for a refresh that is older than
// one that was answered, OVERLOADED for one that comes too soon.
func (l *Leases) Refresh(now uint64, tree *Tree, version uint64, q *Refresh, out *Reply) error {
	l.Observe(now, tree, version)
	m, err := l.member(tree, q.Session, q.Epoch)
	if err != nil {
		return err
	}
	if q.Seq <= m.seq {
		return protocol.Errorf(protocol.StatusAborted, "refresh %d is not newer than %d; number refreshes upwards", q.Seq, m.seq)
	}
	opens := m.opens(q)
	if !opens {
		if m.next > l.now+refreshEvery*(refreshRow-1) {
			return protocol.Errorf(protocol.StatusOverloaded,
				"a session refreshes its leases every %d ms at most; refresh later", refreshEvery)
		}
		m.next = max(m.next, l.now) + refreshEvery
	}
	m.seq = q.Seq
	for i := range q.Leaves {
		l.take(m, &q.Leaves[i], q)
	}
	l.forgetBefore(m, q.Open)
	m.known = m.known || !opens
	m.reported = m.reported || q.Leadership == l.at
	l.learn(tree)
	if l.computeDue() {
		l.compute(tree)
	}
	*out = Reply{Leadership: l.at, Clock: l.now, Length: l.length, Again: l.learning && !m.reported, Leaves: out.Leaves[:0]}
	for i := range q.Leaves {
		f := &q.Leaves[i]
		h := m.holding(f.Leaf)
		out.Leaves = append(out.Leaves, l.answer(m, h, f))
		if h != nil && (h.held.Rate > h.offered.Rate || h.held.Burst > h.offered.Burst) {
			out.Again = out.Again || l.blocked > 0
		}
	}
	return nil
}

// opens reports whether a refresh says no more than that leaves were opened. It costs as little
// as any other request, and may come at any time.
func (m *member) opens(q *Refresh) bool {
	for i := range q.Leaves {
		if f := &q.Leaves[i]; f.Demand > 0 || f.Waiting > 0 || f.Presented || f.Closed ||
			m.holding(f.Leaf) != nil {
			return false
		}
	}
	return len(q.Leaves) > 0
}

// learn ends the time of learning, once nobody can use a lease that this leadership does not know.
// A client that has reported under this leadership takes no answer of an earlier one; one that has
// left is believed to use its lease to the end.
func (l *Leases) learn(tree *Tree) {
	if !l.learning {
		return
	}
	all := l.now >= tree.leasesEnd() // of sessions that left meanwhile, too: they have not reported
	if all && l.now < l.learnUntil {
		all = l.allReported(tree)
	}
	if l.now < l.learnUntil && !all {
		return
	}
	l.learning, l.dirty, l.computed, l.admitAt = false, true, 0, l.now
	l.learned = l.now - l.began
	// The leader's own buckets are empty when no lease of an earlier leadership can be in use any
	// more, and fill from then on. If there were none, that is when the leadership began.
	from, unused := l.now, !slices.ContainsFunc(l.members, func(m *member) bool { return m.joined <= l.began }) &&
		l.nobodyFromBefore(tree)
	switch {
	case unused:
		from = min(max(l.began, tree.leasesEnd()), l.now)
	case l.now >= l.learnUntil:
		from = max(l.learnUntil, min(tree.leasesEnd(), l.now))
	}
	for i := range l.nodes {
		n, r := &l.nodes[i], &tree.resources[i]
		n.bucket = bucket{at: from}
		if never := r.created > l.began || unused && r.created > tree.lastLeft; never && !r.again { // nobody has had anything of it
			n.bucket = bucket{n.ownBurst(), l.now}
		}
	}
}

// nobodyFromBefore reports whether no participant had leases of an earlier leadership.
func (l *Leases) nobodyFromBefore(tree *Tree) bool {
	for _, p := range tree.participants { // in any order: all must have
		if p.joined <= l.began {
			return false
		}
	}
	return true
}

// allReported reports whether every participant that may have leases of an earlier leadership has
// reported under this one. It remembers one that has not: refreshes of others need not look further.
func (l *Leases) allReported(tree *Tree) bool {
	reported := func(p *participant) bool {
		m := l.bySession[p.session]
		return p.joined > l.began || m != nil && m.epoch == p.epoch && m.reported
	}
	if p := tree.participants[l.unreported]; p != nil && !reported(p) {
		return false
	}
	for id, p := range tree.participants { // in any order: all must have
		if !reported(p) {
			l.unreported = id
			return false
		}
	}
	return true
}

// take notes what a client says of a leaf.
func (l *Leases) take(m *member, q *LeafRefresh, of *Refresh) {
	h := m.holding(q.Leaf)
	if q.Closed {
		if h != nil {
			l.tally(m, h, q, of.Leadership)
			h.held, h.offered = Lease{}, Lease{}
			l.recount(h)
			l.dirty = true
			if !l.forget(m, h, of.Seq) { // it was opened again meanwhile
				return
			}
			l.remove(h)
			m.keep(func(x *holding) bool { return x != h })
		}
		return
	}
	if h == nil {
		if i, ok := l.index[q.Leaf]; !ok || len(l.nodes[i].children) > 0 {
			return
		}
		h = l.holdingOf(m, q.Leaf)
	}
	l.takeFormer(m, h, q)
	switch {
	case !q.Presented:
		h.held, h.offered = Lease{}, Lease{} // what was sent and is not presented is never taken
	case !q.Held.there(l.now):
	case q.Held.Number == h.offered.Number:
		h.held, h.offered = h.offered, Lease{}
	case q.Held.Number == h.held.Number:
		h.offered = Lease{}
	case l.learning && q.Held.Number.Leadership.compare(l.at) < 0:
		// An earlier refresh of the same lease may have come, or one that the client has replaced.
		h.held = Lease{q.Held.Number, max(h.held.Rate, q.Held.Rate), max(h.held.Burst, q.Held.Burst), max(h.held.End, q.Held.End)}
	}
	l.recount(h)
	h.notified = false
	waiting := q.Waiting
	if held := m.held(h); held > 0 {
		waiting = max(waiting, held)
	}
	lacks := waiting > 0 || (m.known || h.known) && q.Denied > h.denied
	l.tally(m, h, q, of.Leadership)
	h.refreshed, h.liveUntil, h.elsewhere, h.left = l.now, l.now+l.length, q.Elsewhere, 0
	if differs(h.demand, q.Demand) || (h.demand > 0) != (q.Demand > 0) {
		l.dirty = true
	}
	switch h.demand = q.Demand; {
	case h.leaf && l.many(h):
		h.fewUntil = 0
	case h.leaf && h.demand > 0 && !lacks:
		l.calledFew(h)
	}
	l.waits(h, waiting, lacks)
	if q.Need > 0 && q.Need >= h.need && h.leaf && q.Need <= l.nodes[h.node].most {
		if q.Need > h.need {
			l.dirty = true
		}
		h.need, h.needUntil = q.Need, l.now+needMemory
	}
}

// takeFormer moves what the process got under its session's earlier attach epoch, and presents now.
func (l *Leases) takeFormer(m *member, h *holding, q *LeafRefresh) {
	if m.former == nil || !q.Presented || !q.Held.there(l.now) {
		return
	}
	f := m.former.holding(q.Leaf)
	if f == nil {
		return
	}
	if n := q.Held.Number; n == f.held.Number {
		h.held = f.held
	} else if n == f.offered.Number {
		h.held = f.offered
	} else {
		return
	}
	f.held, f.offered = Lease{}, Lease{}
	l.recount(f)
}

// tally adds the use since the last refresh to the counts of the leaf. Counts of a client under an
// earlier leadership are not known, and not added again.
func (l *Leases) tally(m *member, h *holding, q *LeafRefresh, of Leadership) {
	known := m.known || h.known
	if h.node >= 0 && h.leaf && (known || of == Leadership{}) {
		n := &l.nodes[h.node]
		used := lessBy(q.Allowed, h.allowed)
		n.allowed += used
		n.denied += lessBy(q.Denied, h.denied)
		n.waited += lessBy(q.Waited, h.waited)
		n.impossible += lessBy(q.Impossible, h.impossible)
		if passed := l.now - h.refreshed; known && passed > 0 {
			h.used = mulDiv(used, 1000, passed)
		}
	}
	h.known = true
	h.allowed, h.denied, h.waited, h.impossible = q.Allowed, q.Denied, q.Waited, q.Impossible
}

// differs reports whether a demand differs by more than 5 %.
func differs(a, b uint64) bool { return above(a, b) || above(b, a) }

// answer gives a holding its next lease.
func (l *Leases) answer(m *member, h *holding, q *LeafRefresh) LeafReply {
	if h == nil || !h.leaf {
		r := LeafReply{State: LeafMissing, Why: WhyNone}
		if _, ok := l.index[q.Leaf]; ok {
			r.State = LeafInner
		}
		return r
	}
	n := &l.nodes[h.node]
	r := LeafReply{Most: n.most, Limit: n.rate, Floor: n.floor, Shadow: n.shadow}
	fresh := !h.held.there(l.now)
	rate, burst := l.due(h)
	r.Length = l.leaseLength(h)
	switch {
	case l.learning:
	case rate > 0:
		if (fresh || h.held.Rate == 0) && l.nodes[0].waiting == 0 {
			r.Level = min(burst, l.has(h.node))
		}
	case l.wants(h) > 0:
		r.State, burst = LeafRemote, 0
	}
	if r.Level > 0 && r.State == LeafLeased {
		l.give(h.node, r.Level)
	}
	if h.offered = (Lease{}); rate > 0 || burst > 0 {
		l.numbers++
		h.offered = Lease{Number{l.at, l.numbers}, rate, burst, l.now + r.Length}
	}
	l.recount(h)
	h.liveUntil = l.now + r.Length + liveLate
	r.Lease = h.offered
	r.Why, r.At, _ = l.why(h)
	return r
}

// A program that is killed soon after it began costs its neighbours little: its lease is as long as
// it is old, and firstLength at least. Beside older ones it has of a limit as much as its age of
// growTime, up to newAge. Times are in ms.
const (
	firstLength = 250
	newAge      = 700
	growTime    = 12_000
)

// leaseLength is that of a holding's next lease.
func (l *Leases) leaseLength(h *holding) uint64 {
	if l.learning {
		return l.length
	}
	return min(max(lessBy(l.now, h.member.joined), firstLength), l.length)
}

// newRate bounds the rate of a session that began a moment ago, while older ones would lack what it
// holds. It is as old as it was when it was last heard of.
func (l *Leases) newRate(h *holding) uint64 {
	if l.steady == 0 {
		return maxRate
	}
	age := lessBy(h.refreshed, h.member.joined)
	if age >= newAge {
		return maxRate
	}
	return max(mulDiv(l.nodes[h.node].rate, max(age, 20), growTime), 1)
}

// due is the rate and burst of a holding's next lease.
func (l *Leases) due(h *holding) (rate, burst uint64) {
	if l.learning {
		rate, burst = h.held.Rate, h.held.Burst // the same again, or nothing
		for i := h.node; i >= 0; i = l.nodes[i].parent {
			if n := &l.nodes[i]; n.countedRate > n.rate {
				rate = min(rate, mulDiv(h.held.Rate, n.rate, n.countedRate))
			}
			if n := &l.nodes[i]; n.countedBurst > n.burst {
				burst = min(burst, mulDiv(h.held.Burst, n.burst, n.countedBurst))
			}
		}
		return rate, burst
	}
	rate, burst = h.leased, h.leasedBurst
	if most := l.newRate(h); rate > most {
		rate, burst = most, mulDiv(burst, most, rate)
	}
	if held := &h.held; held.there(l.now) && held.Rate > 0 && !differs(held.Rate, rate) &&
		!differs(held.Burst, burst) &&
		(rate >= held.Rate && burst >= held.Burst || l.blocked == 0) {
		rate, burst = held.Rate, held.Burst
	}
	roomRate, roomBurst := l.room(h)
	roomRate, roomBurst = max(roomRate, h.countedRate), max(roomBurst, h.countedBurst) // it adds nothing to the counts
	if rate > roomRate {
		burst, rate = mulDiv(burst, roomRate, rate), roomRate
	}
	burst = min(burst, roomBurst)
	wasBlocked := h.blocked
	l.lacking(h, &Lease{Rate: rate, Burst: burst})
	l.freed = l.freed || h.blocked && !wasBlocked // those who have more are to shrink
	if burst < max(h.need, 1000) {
		return 0, 0 // there is not room enough for its calls
	}
	return rate, burst
}

// Next is when Tick has something to do.
func (l *Leases) Next() (at uint64, ok bool) {
	switch {
	case l.announce:
		return l.now, true
	case l.learning:
		return l.learnUntil, true
	case l.dirty && l.freed && l.shortages > 0:
		return min(l.computed+l.every(), l.notifyAt), true
	case l.dirty:
		return l.computed + l.every(), true
	case l.freed && l.shortages > 0:
		return l.notifyAt, true
	case l.shortages > 0 || l.growing:
		return l.computed + expireEvery, true
	case len(l.members) > 0: // those that are gone without a word are not kept
		return l.computed + l.length, true
	}
	return 0, false
}

// Tick does what is due, and calls notify for sessions that are to refresh at once: to use less, or
// because they can have more. A notification may be lost.
func (l *Leases) Tick(now uint64, tree *Tree, version uint64, notify func(session uint64)) {
	l.Observe(now, tree, version)
	l.learn(tree)
	if l.computeDue() {
		l.compute(tree)
	}
	if l.announce {
		l.announce = false
		for _, m := range l.members {
			if !m.gone {
				notify(m.session)
			}
		}
	}
	if !l.freed || l.now < l.notifyAt {
		return
	}
	l.freed, l.notifyAt = false, l.now+notifyEvery
	if l.shortages == 0 {
		return
	}
	for _, m := range l.members {
		if m.gone {
			continue
		}
		for _, h := range m.holdings {
			if !h.notified && h.leaf && l.worthwhile(h) {
				h.notified = true
				notify(m.session)
				break
			}
		}
	}
}

// worthwhile reports whether a refresh would give a holding another lease that somebody waits for.
func (l *Leases) worthwhile(h *holding) bool {
	if h.short {
		if h.lacksSince == 0 { // its next refresh gives it
			return false
		}
		last := h.last()
		rate, burst := l.room(h)
		return above(min(rate, h.leased), last.Rate) || above(min(burst, h.leasedBurst), last.Burst)
	}
	return l.tooMuch(h)
}

// tooMuch reports whether a holding is to give up a part of its lease. A part of less than 5 % is
// not worth a message, unless somebody has lacked it for a while: then one of 1 % is.
func (l *Leases) tooMuch(h *holding) bool {
	if l.blocked == 0 {
		return false
	}
	if above(h.countedRate, h.leased) || above(h.countedBurst, h.leasedBurst) {
		return true
	}
	return (lessBy(h.countedRate, h.leased) > h.countedRate/100 || lessBy(h.countedBurst, h.leasedBurst) > h.countedBurst/100) &&
		l.short > 0 && l.now >= l.short+expireEvery
}

// Check says which invariant does not hold, if any.
func (l *Leases) Check() error { return check(l) }
