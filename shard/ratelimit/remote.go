package ratelimit

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// A session whose share is too small for a lease, or that has no lease yet, is served remotely: its calls wait at the
// leader for units of the leader's own buckets, at their leaves and at all resources above them.

// Origin names a request for who answers it. Nothing in here looks at it.
type Origin struct{ Conn, Request uint64 }

// Acquire is a call that waits for units of some leaves, which are used at once. The same number again is the same
// call, whose answer goes to the other origin.
type Acquire struct {
	Session, Epoch uint64
	Seq            uint64   // rises with each acquire of the session for the tree
	Leaves         []string // all give the amount, or none does; none: it asks for nothing
	Demands        []uint64 // rates that the session wants of the leaves
	Amount         uint64
	Wait           bool // else it is answered at once
	From           Origin

	// Used is the number of an acquire whose units were used. Back is that of one whose units are not used, or that
	// is given up while it waits.
	Used, Back uint64
}

// Answer is that to an acquire.
type Answer struct {
	To         Origin
	Leadership Leadership
	Err        error
	Granted    bool
	Until      uint64 // the units are used before, or given back
	Retry      uint64 // of one that is not granted: ms until its units could be there

	member *member // whose units these are
	seq    uint64
}

// Acquire takes a call, which [Leases.Admit] answers. now is when the read barrier began that confirmed the
// leadership. Errors: those of [Leases.Refresh]; NOT_FOUND, PRECONDITION_FAILED for a path that is no leaf;
// BAD_REQUEST for an amount that can never be had.
func (l *Leases) Acquire(now uint64, tree *Tree, version uint64, q *Acquire) error {
	l.Observe(now, tree, version)
	l.learn(tree)
	m, err := l.member(tree, q.Session, q.Epoch)
	if err != nil {
		return err
	}
	if q.Used > 0 {
		l.grantOf(m, q.Used, l.used)
	}
	if q.Back > 0 {
		l.takeBack(m, q.Back)
	}
	if len(q.Leaves) == 0 || q.Amount == 0 {
		l.answers = append(l.answers, Answer{To: q.From, Leadership: l.at})
		return nil
	}
	switch {
	case q.Seq == 0:
		return protocol.Errorf(protocol.StatusBadRequest, "an acquire has no number")
	case q.Seq < m.open: // it was late, and nobody wants it any more
		l.answers = append(l.answers, Answer{To: q.From, Leadership: l.at, Retry: blindly})
		return nil
	}
	holdings := make([]*holding, 0, 1)
	for k, leaf := range q.Leaves {
		i, ok := l.index[leaf]
		if !ok {
			return protocol.Refuse(protocol.RefusalNoLimit, "there is no resource %s; create it first", leaf)
		}
		n := &l.nodes[i]
		if len(n.children) > 0 {
			return protocol.Refuse(protocol.RefusalHasChildren, "resource %s has children; use one of them", leaf)
		}
		if q.Amount > n.most {
			return impossible(leaf, q.Amount, n)
		}
		h := l.holdingOf(m, leaf)
		if slices.Contains(holdings, h) {
			return protocol.Errorf(protocol.StatusBadRequest, "resource %s is named twice in one request", leaf)
		}
		holdings = append(holdings, h)
		if k < len(q.Demands) && differs(h.demand, q.Demands[k]) {
			h.demand, l.dirty = q.Demands[k], true
		}
		n.acquires++
	}
	if err := l.possible(holdings, q.Amount); err != nil {
		return err
	}
	if l.computeDue() {
		l.compute(tree)
	}
	for _, h := range holdings {
		h.needs(q.Amount, l.now)
		h.refreshed, h.liveUntil = l.now, max(h.liveUntil, l.now+l.leaseLength(h)+liveLate)
		if l.many(h) {
			h.fewUntil = 0
		}
	}
	same := func(amount uint64, of []*holding) error { // else a number would stand for two acquires
		if amount != q.Amount || len(of) != len(holdings) ||
			slices.ContainsFunc(of, func(h *holding) bool { return !slices.Contains(holdings, h) }) {
			return protocol.Errorf(protocol.StatusBadRequest, "acquire %d was sent before, with other leaves or another amount", q.Seq)
		}
		return nil
	}
	if t, k := m.waitingCall(q.Seq); t != nil { // it was sent again
		c := t.calls[k]
		if err := same(c.amount, t.holdings); err != nil {
			return err
		}
		l.answers = append(l.answers, Answer{To: c.from, Leadership: l.at})
		c.from = q.From
		return nil
	}
	if k := slices.IndexFunc(m.grants, func(u *grant) bool { return u.seq == q.Seq }); k >= 0 { // its answer is lost
		u := m.grants[k]
		if err := same(u.amount, u.holdings); err != nil {
			return err
		}
		l.answers = append(l.answers, Answer{To: q.From, Leadership: l.at, Granted: true, Until: u.until, member: m, seq: q.Seq})
		return nil
	}
	if m.waiting >= protocol.MaxLimitHeld {
		return protocol.Errorf(protocol.StatusOverloaded, "%d acquires of session %d wait, the most that may; send more when some are answered",
			m.waiting, m.session)
	}
	l.enqueue(m, holdings, &call{seq: q.Seq, amount: q.Amount, from: q.From})
	l.asked = append(l.asked, askedCall{m, q.Seq, q.Wait})
	return nil
}

// askedCall is a call that came since the last Admit.
type askedCall struct {
	member *member
	seq    uint64
	wait   bool
}

// waitingCall finds a call that waits.
func (m *member) waitingCall(seq uint64) (t *turn, k int) {
	for _, t := range m.turns {
		if k := slices.IndexFunc(t.calls, func(c *call) bool { return c.seq == seq }); k >= 0 {
			return t, k
		}
	}
	return nil, 0
}

// Admit admits the calls that can be admitted, and answers. now is when the read barrier began that confirmed the
// leadership. answer is false if nobody takes the answer any more: units come back.
func (l *Leases) Admit(now uint64, tree *Tree, version uint64, answer func(*Answer) bool) {
	l.Observe(now, tree, version)
	l.confirmed = now
	l.learn(tree)
	if l.computeDue() {
		l.compute(tree)
	}
	for again := true; again; {
		l.serve()
		for _, x := range l.asked {
			t, k := x.member.waitingCall(x.seq)
			if t == nil {
				continue
			}
			for _, h := range t.holdings {
				l.waits(h, max(h.waiting, t.calls[k].amount), true)
			}
			if !x.wait {
				l.refuse(t, k, nil)
			}
		}
		l.asked = l.asked[:0]
		again = false
		for len(l.answers) > 0 {
			a := &l.answers[0]
			l.answers = l.answers[1:] // before: nothing is answered twice
			if !answer(a) && a.Granted {
				l.takeBack(a.member, a.seq)
				again = true
			}
		}
		l.answers = nil
	}
}

// Abandon forgets all calls that wait, and yields them. It is for a panic in Admit: which call caused it is not known,
// and the next one would meet it again. What was given out stays counted.
func (l *Leases) Abandon(yield func(Origin) bool) {
	l.Held(yield)
	l.asked, l.answers, l.sleepers, l.admitAt = nil, nil, container.Heap[sleeper]{}, 0
	for i := range l.nodes {
		n := &l.nodes[i]
		n.heap, n.claimed, n.waiting = container.Heap[*entry]{}, nil, 0
		n.entry.place, n.entry.sleeping = 0, 0
	}
	for _, m := range l.members {
		m.turns, m.waiting = nil, 0
	}
}

// AdmitAt is when Admit has something to do; false: when something changes.
func (l *Leases) AdmitAt() (at uint64, ok bool) {
	if len(l.answers) > 0 || len(l.asked) > 0 {
		return l.now, true
	}
	return l.admitAt, l.admitAt > 0 && !l.learning
}

// Held are the calls that wait, for who answers them when the leadership ends.
func (l *Leases) Held(yield func(Origin) bool) {
	for i := range l.answers {
		if !yield(l.answers[i].To) {
			return
		}
	}
	for _, m := range l.members {
		for _, t := range m.turns {
			for _, c := range t.calls {
				if !yield(c.from) {
					return
				}
			}
		}
	}
}

// impossible is the error of a call that can never be admitted.
func impossible(leaf string, amount uint64, n *node) error {
	if n.most == 0 {
		return protocol.Errorf(protocol.StatusBadRequest, "the rate of %s is 0, which admits nobody; raise it", leaf)
	}
	return protocol.Errorf(protocol.StatusBadRequest, "%s are more than the burst of %s allows at once, %s; ask for less, or raise the burst",
		protocol.LimitUnits(amount), leaf, protocol.LimitUnits(n.most))
}

// holdingOf finds or makes what a member has of a leaf.
func (l *Leases) holdingOf(m *member, leaf string) *holding {
	if h := m.holding(leaf); h != nil {
		return h
	}
	h := &holding{member: m, path: leaf}
	m.add(h)
	l.place(h)
	l.dirty = true
	return h
}

// needs notes the amount of a call.
func (h *holding) needs(amount, now uint64) {
	if amount >= h.need {
		h.need, h.needUntil = amount, now+needMemory
	}
}

// waits notes that the calls of a holding wait, or are denied.
func (l *Leases) waits(h *holding, waiting uint64, lacks bool) {
	if (h.waiting > 0) != (waiting > 0) {
		l.dirty = true
	}
	h.waiting = waiting
	switch {
	case !lacks:
		h.lacksSince = 0
	case h.lacksSince == 0:
		h.lacksSince = l.now
	}
}

// grant is an amount that the leader gave out and that a client may not have used yet. Until it
// has, or can no more, it counts like the burst of a lease: else what comes in meanwhile could be
// used together with it.
//
// They end by the time at which the read barrier began that confirmed the leadership: another one may have begun since.
// A new leadership that has finished learning need not know of grants: a session that has reported
// takes none of an earlier leadership any more, and those of all others have ended, as
// [protocol.MaxLimitWithin] is no more than the shortest lease.
type grant struct {
	member   *member
	holdings []*holding
	seq      uint64 // of the acquire
	amount   uint64
	until    uint64 // when the client may use them last
	at       int    // its place among the member's
	place    int32  // in the heap of all, by the time until which they count
}

// Position implements container.Item.
func (u *grant) Position() *int32 { return &u.place }

// Before implements container.Item: the order of units that end together has no effect.
func (u *grant) Before(*grant) bool { return false }

// lend counts an amount that was taken from the leader's own buckets until the client has used it.
func (l *Leases) lend(m *member, holdings []*holding, seq, amount uint64) {
	u := &grant{member: m, holdings: slices.Clone(holdings), seq: seq, amount: amount, until: l.confirmed + protocol.MaxLimitWithin, at: len(m.grants)}
	m.grants = append(m.grants, u)
	l.grants.Push(u, u.until+1) // a time of the log is up to 1 ms late
	for _, h := range holdings {
		l.countUnused(h, amount)
		h.unused += amount
	}
}

// used ends the count of a grant.
func (l *Leases) used(u *grant) {
	l.grants.Remove(u)
	m := u.member
	last := len(m.grants) - 1
	m.grants[u.at] = m.grants[last]
	m.grants[u.at].at = u.at
	m.grants[last] = nil
	m.grants = m.grants[:last]
	for _, h := range u.holdings {
		h.unused -= u.amount
		l.countUnused(h, -u.amount) // modulo 2^64
		l.wakePath(h.node)
	}
}

// grantOf finds a grant of a member.
func (l *Leases) grantOf(m *member, seq uint64, f func(*grant)) {
	if i := slices.IndexFunc(m.grants, func(u *grant) bool { return u.seq == seq }); i >= 0 {
		f(m.grants[i])
	}
}

// expireGrants ends the count of units that no client uses any more.
func (l *Leases) expireGrants() {
	for l.grants.Len() > 0 && l.grants.First().Key <= l.now {
		l.used(l.grants.First().Item)
	}
}

// forget ends what a holding's client asked for before a number: it uses the leaf no more. It reports whether that was
// all.
func (l *Leases) forget(m *member, h *holding, before uint64) (all bool) {
	all = true
	for _, u := range m.grants {
		i := slices.Index(u.holdings, h)
		switch {
		case i < 0:
		case u.seq < before:
			u.holdings = slices.Delete(slices.Clone(u.holdings), i, i+1)
			h.unused -= u.amount
			l.countUnused(h, -u.amount)
			l.wakePath(h.node)
		default:
			all = false
		}
	}
	for _, t := range slices.Clone(m.turns) {
		if slices.Contains(t.holdings, h) {
			l.endTurn(t, before, nil)
			all = all && len(t.calls) == 0
		}
	}
	return all
}

// forgetBefore ends all that a client asked for before a number: it wants nothing of that any more.
func (l *Leases) forgetBefore(m *member, seq uint64) {
	if seq <= m.open {
		return
	}
	m.open = seq
	for i := len(m.turns) - 1; i >= 0; i-- { // the last one takes the place of one that goes
		l.endTurn(m.turns[i], seq, nil)
	}
	for i := len(m.grants) - 1; i >= 0; i-- {
		if u := m.grants[i]; u.seq < seq {
			l.used(u)
		}
	}
}

// takeBack returns units that were given out and not used, or ends the wait for them. A second time it finds none.
func (l *Leases) takeBack(m *member, seq uint64) {
	if t, k := m.waitingCall(seq); t != nil {
		for _, h := range t.holdings {
			h.left += t.calls[k].amount
		}
		l.refuse(t, k, nil)
		return
	}
	l.grantOf(m, seq, func(u *grant) {
		first := l.overdue(u.holdings[0])
		l.used(u)
		for _, h := range u.holdings {
			h.resume = max(first, 1)
			for i := h.node; i >= 0; i = l.nodes[i].parent {
				n := &l.nodes[i]
				n.bucket.level = addUpTo(n.bucket.level, u.amount*1000, n.ownBurst())
			}
			l.wakePath(h.node)
		}
	})
}

// overdue returns the latest tag of the calls for which a resource of a holding's path is reserved, and that would
// have had their units by their share; 0: there is none.
func (l *Leases) overdue(h *holding) (tag uint64) {
	for i := h.node; i >= 0; i = l.nodes[i].parent {
		n := &l.nodes[i]
		if n.heap.Len() == 0 || n.parent >= 0 && n.entry.sleeping == 0 {
			continue
		}
		for n.heap.First().Item.turn == nil {
			n = &l.nodes[n.heap.First().Item.child]
		}
		if t := n.heap.First().Item.turn; t.since+(t.tag-min(t.tag, t.start))/1000 <= l.now+blindly {
			tag = max(tag, t.tag)
		}
	}
	return tag
}

// weightOf is the weight of a holding whose leaf may be gone.
func (l *Leases) weightOf(h *holding) uint64 {
	if h.node < 0 {
		return maxRate
	}
	return l.weight(h)
}

// countUnused adds to the units that are counted at a holding's node and all above it.
func (l *Leases) countUnused(h *holding, more uint64) {
	for i := h.node; i >= 0; i = l.nodes[i].parent {
		n := &l.nodes[i]
		l.accrue(n)
		n.unused += more // modulo 2^64
		n.bucket.level = min(n.bucket.level, n.ownBurst())
	}
}

// Calls that wait at the leader have one order, by start-time fair queueing over sessions in units: the tag of a
// call is where its session stands, and its amount divided by its session's share. It is admitted when each
// resource of its path has the units, and nobody with a lower tag waits for one that is short.
//
// Each resource has a heap: a leaf of the turns that wait there, one above it of its children with their first
// turns. A resource that lacks the units of its first turn for longer than the one above it would need for them
// sleeps there: those behind it pass. For shorter than that, the one above is reserved for it.

// turn is a session's calls of the same leaves, in their order. The first one has a tag.
type turn struct {
	member   *member
	holdings []*holding // the first is of the leaf in whose heap the turn is: that of its least share
	calls    []*call
	waiting  uint64 // amount of all its calls
	tag      uint64
	start    uint64 // of the tag, without the first call's own part
	since    uint64 // when that call was the first
	number   uint64 // of two with one tag the lower one is first
	at       int    // its place among the member's
	entry    entry
	readyAt  uint64 // when it will have the units that it claims of other leaves
}

// call waits at the leader. It is answered once.
type call struct {
	seq, amount uint64
	from        Origin
}

// entry is what a resource's heap holds: a turn, or a child.
type entry struct {
	turn     *turn // nil: it is of the child
	child    int
	in       int // the resource in whose heap it is
	place    int32
	sleeping int32 // its place among those that sleep
}

// Position implements container.Item.
func (e *entry) Position() *int32 { return &e.place }

// Before implements container.Item.
func (e *entry) Before(o *entry) bool {
	if e.turn == nil || o.turn == nil {
		return e.child < o.child
	}
	return e.turn.number < o.turn.number
}

// sleeper is an entry that is out of its heap until a time.
type sleeper struct{ *entry }

// Position implements container.Item.
func (s sleeper) Position() *int32 { return &s.sleeping }

// Before implements container.Item: which one wakes first in a ms has no effect.
func (s sleeper) Before(o sleeper) bool { return s.in < o.in }

const (
	blindly   = 100       // ms after which a resource is looked at again that has no rate of its own at present
	virtually = 1_000_000 // tags are in millionths of a second
	mostAhead = 1_000     // ms for which a session pauses at most that had more than its share
)

// weight is a session's share of a leaf if it asks for all that it can have.
func (l *Leases) weight(h *holding) uint64 {
	if h.wanted > 0 {
		return max(h.fair, 1)
	}
	n := &l.nodes[h.node]
	return max(n.rate/(n.calling+1), 1)
}

// enqueue adds a call to a session's turn at some leaves.
func (l *Leases) enqueue(m *member, holdings []*holding, c *call) {
	t := m.turn(holdings)
	if t == nil {
		least := slices.MinFunc(holdings, func(a, b *holding) int { return cmp.Compare(l.weight(a), l.weight(b)) })
		i := slices.Index(holdings, least)
		holdings[0], holdings[i] = holdings[i], holdings[0]
		l.turnNumbers++
		t = &turn{member: m, holdings: holdings, number: l.turnNumbers, at: len(m.turns)}
		t.entry.turn, t.entry.in = t, least.node
		m.turns = append(m.turns, t)
	}
	k := len(t.calls) // requests may overtake each other
	for k > 0 && t.calls[k-1].seq > c.seq {
		k--
	}
	m.waiting++
	if t.calls = slices.Insert(t.calls, k, c); k == 0 {
		l.first(t)
	}
	l.countWaiting(t, c.amount)
}

// turn finds the turn of a member at some leaves.
func (m *member) turn(holdings []*holding) *turn {
	for _, t := range m.turns {
		if len(t.holdings) == len(holdings) && !slices.ContainsFunc(holdings, func(h *holding) bool { return !slices.Contains(t.holdings, h) }) {
			return t
		}
	}
	return nil
}

// held is the amount that waits here for a holding.
func (m *member) held(h *holding) (amount uint64) {
	for _, t := range m.turns {
		if slices.Contains(t.holdings, h) {
			for _, c := range t.calls {
				amount = addUpTo(amount, c.amount, maxRate)
			}
		}
	}
	return amount
}

func (l *Leases) countWaiting(t *turn, more uint64) {
	t.waiting += more // modulo 2^64
	for i, times := range l.above(t.holdings) {
		l.nodes[i].waiting += more * times // modulo 2^64
	}
}

// first gives the first call of a turn its tag. It starts where its session stands, and not before the others of
// the lowest resource at which some wait. A resource at which nobody waits takes its virtual time from there, so
// that none is owed anything for having rested.
func (l *Leases) first(t *turn) {
	h := t.holdings[0]
	k := h.node
	for l.nodes[k].waiting == 0 && l.nodes[k].parent >= 0 {
		k = l.nodes[k].parent
	}
	at := l.nodes[k].virtual
	for i := h.node; i != k; i = l.nodes[i].parent {
		l.nodes[i].virtual = max(l.nodes[i].virtual, at)
	}
	t.start, t.since = at, l.now
	for _, h := range t.holdings {
		if h.resume > 0 {
			t.start, h.resume = max(lessBy(at, l.costs(t, h)), h.resume), 0
		}
	}
	t.tag = l.tagOf(t)
	l.nodes[h.node].heap.Set(&t.entry, t.tag)
	l.wakePath(h.node)
	l.lift(h.node)
}

// costs is by how much the first call of a turn advances its session at a leaf.
func (l *Leases) costs(t *turn, h *holding) uint64 {
	return mulDiv(t.calls[0].amount, virtually, l.weight(h))
}

// tagOf is the tag of the first call of a turn, by the shares of now.
func (l *Leases) tagOf(t *turn) (tag uint64) {
	for _, h := range t.holdings {
		tag = max(tag, t.start+l.costs(t, h))
	}
	return tag
}

// lowerTags gives calls that wait the tags of their sessions' shares where these have risen. A tag that rises would
// have a call wait for ever.
func (l *Leases) lowerTags() {
	for _, m := range l.members {
		for _, t := range m.turns {
			if slices.ContainsFunc(t.holdings, func(h *holding) bool { return h.wanted == 0 }) {
				continue // its weight is a guess
			}
			if tag := l.tagOf(t); 4*lessBy(tag, t.start) < lessBy(t.tag, t.start) {
				t.tag = tag
				if t.entry.sleeping == 0 {
					l.nodes[t.entry.in].heap.Set(&t.entry, tag)
					l.lift(t.entry.in)
				}
			}
		}
	}
}

// lift puts a resource and those above it where their first turns belong.
func (l *Leases) lift(i int) {
	for ; l.nodes[i].parent >= 0; i = l.nodes[i].parent {
		n := &l.nodes[i]
		above := &l.nodes[n.parent].heap
		switch {
		case n.heap.Len() == 0:
			above.Remove(n.entry)
			l.sleepers.Remove(sleeper{n.entry})
		case n.entry.sleeping == 0:
			above.Set(n.entry, n.heap.First().Key)
		}
	}
}

// sleep takes an entry out of its heap for some ms.
func (l *Leases) sleep(e *entry, ms uint64) {
	l.nodes[e.in].heap.Remove(e)
	l.sleepers.Set(sleeper{e}, l.now+ms)
	l.lift(e.in)
}

// wake puts an entry back into its heap.
func (l *Leases) wake(e *entry) {
	l.sleepers.Remove(sleeper{e})
	n := &l.nodes[e.in]
	if e.turn != nil {
		n.heap.Set(e, e.turn.tag)
	} else if below := &l.nodes[e.child].heap; below.Len() > 0 {
		n.heap.Set(e, below.First().Key)
	}
	l.lift(e.in)
}

// wakePath wakes a resource and those above it: they may have units sooner than was known.
func (l *Leases) wakePath(i int) {
	l.admitAt = l.now
	k := i
	for ; i >= 0 && l.nodes[i].parent >= 0; i = l.nodes[i].parent {
		if e := l.nodes[i].entry; e.sleeping > 0 {
			l.wake(e)
		}
	}
	for ; k >= 0; k = l.nodes[k].parent {
		if c := l.nodes[k].claimed; c != nil && c.entry.sleeping > 0 {
			l.wake(&c.entry)
		}
	}
}

// serve admits all calls that can be admitted now.
func (l *Leases) serve() {
	l.admitAt = 0
	if l.learning || len(l.nodes) == 0 {
		return
	}
	for l.sleepers.Len() > 0 && l.sleepers.First().Key <= l.now {
		l.wake(l.sleepers.First().Item.entry)
	}
	for {
		n := &l.nodes[0]
		for n.heap.Len() > 0 && n.heap.First().Item.turn == nil {
			n = &l.nodes[n.heap.First().Item.child]
		}
		if n.heap.Len() == 0 {
			break
		}
		t := n.heap.First().Item.turn
		if !t.heard(l.now) {
			l.endTurn(t, math.MaxUint64, nil)
			continue
		}
		e, wait := l.shortage(t)
		if wait == 0 {
			if ms := l.ahead(t); ms > 0 {
				l.sleep(&t.entry, ms)
				continue
			}
			l.admit(t)
		} else if e != nil {
			l.sleep(e, wait)
		} else {
			l.admitAt = l.now + wait
			break
		}
	}
	if l.sleepers.Len() > 0 && (l.admitAt == 0 || l.sleepers.First().Key < l.admitAt) {
		l.admitAt = l.sleepers.First().Key
	}
}

// heard reports whether the session was heard of lately. The calls of one that is silent are not admitted: it is
// dead, or it asks again.
func (t *turn) heard(now uint64) bool {
	return !slices.ContainsFunc(t.holdings, func(h *holding) bool { return now >= h.liveUntil })
}

// shortage is after how many ms a turn's first call can be admitted; 0: now. The entry is what can sleep so long;
// nil: the root waits for it.
func (l *Leases) shortage(t *turn) (e *entry, wait uint64) {
	if len(t.holdings) > 1 {
		if wait = l.claim(t); wait > 0 {
			return &t.entry, wait
		}
	}
	for i := t.holdings[0].node; i >= 0; i = l.nodes[i].parent {
		w := l.delay(i, t, 1)
		if wait > w {
			return e, wait - w
		}
		wait, e = w, l.nodes[i].entry
	}
	return nil, wait
}

// ahead is for how many ms a turn that could be admitted has had its share already, while others lack units of its
// resources; 0: it has not. Without that a session of small calls would have at once what it is to have until a large
// call before it is admitted, and then nothing until it is.
func (l *Leases) ahead(t *turn) (ms uint64) {
	contended := false
	for i, times := range l.above(t.holdings) {
		n := &l.nodes[i]
		others := n.waiting - t.waiting*times
		contended = contended || others > 0 && n.bucket.level < n.ownBurst() &&
			addUpTo(others, t.calls[0].amount*times, maxRate)*1000 > n.bucket.level
	}
	if !contended {
		return 0
	}
	for _, h := range t.holdings {
		weight := l.weight(h)
		h.ahead = bucket{lessBy(h.ahead.level, mulDiv(weight, lessBy(l.now, h.ahead.at), 1)), l.now}
		ms = max(ms, lessBy(h.ahead.level/weight, blindly))
	}
	if ms > 0 {
		return min(ms, blindly)
	}
	for _, h := range t.holdings {
		h.ahead.level = min(h.ahead.level+t.calls[0].amount*1000, l.weight(h)*mostAhead)
	}
	return 0
}

// claim reserves the units of a call of several leaves at all their resources, and returns for how many ms it
// lacks them elsewhere than on the way from its first leaf.
func (l *Leases) claim(t *turn) (wait uint64) {
	here, back := uint64(0), false
	for i, times := range l.above(t.holdings) {
		n, amount := &l.nodes[i], t.calls[0].amount*times
		back = back || amount*1000 > n.ownBurst() && amount <= lessBy(n.burst, n.countedBurst)
		if w := l.delay(i, t, times); times == 1 && l.within(t.holdings[0].node, i) {
			here = max(here, w)
		} else {
			wait = max(wait, w)
		}
	}
	if t.readyAt = l.now + max(wait, here); back { // it waits for units that are out: for more of them it would wait for ever
		t.readyAt = l.now
	}
	for i := range l.above(t.holdings) {
		if n := &l.nodes[i]; n.claimed == nil || t.before(n.claimed) {
			n.claimed = t
		}
	}
	return lessBy(wait, here)
}

func (t *turn) before(o *turn) bool {
	return cmp.Or(cmp.Compare(t.tag, o.tag), cmp.Compare(t.number, o.number)) < 0
}

// delay is after how many ms a resource has the units of a turn's first call so often, beside what one before it
// claims; 0: now.
func (l *Leases) delay(i int, t *turn, times uint64) uint64 {
	n := &l.nodes[i]
	l.accrue(n)
	amount, rate := t.calls[0].amount*times, n.ownRate()
	want := amount * 1000
	if c := n.claimed; c != nil && c.tag < t.tag { // of two with one tag the heaps may have either first
		claimed := uint64(0)
		for _, h := range c.holdings {
			if l.within(h.node, i) {
				claimed += c.calls[0].amount * 1000
			}
		}
		want += lessBy(claimed, mulDiv(rate, lessBy(c.readyAt, l.now), 1))
	}
	switch missing := lessBy(want, n.bucket.level); {
	case missing == 0:
		return 0
	case rate == 0, amount*1000 > n.ownBurst():
		return blindly
	default:
		return (missing + rate - 1) / rate
	}
}

// admit gives the first call of a turn its units.
func (l *Leases) admit(t *turn) {
	c := t.calls[0]
	l.countWaiting(t, -c.amount)
	for _, h := range t.holdings {
		l.give(h.node, c.amount)
	}
	for i := range l.above(t.holdings) {
		l.nodes[i].virtual = max(l.nodes[i].virtual, t.tag)
	}
	l.lend(t.member, t.holdings, c.seq, c.amount)
	l.answers = append(l.answers, Answer{To: c.from, Leadership: l.at, Granted: true, Until: l.confirmed + protocol.MaxLimitWithin,
		member: t.member, seq: c.seq})
	l.drop(t, 0)
	if len(t.calls) > 0 {
		return
	}
	for _, h := range t.holdings {
		l.waits(h, 0, false)
		if !l.many(h) {
			l.calledFew(h)
		}
	}
}

// drop takes a call out of its turn, which goes with the last one.
func (l *Leases) drop(t *turn, k int) {
	t.member.waiting--
	if k == 0 {
		t.calls[0] = nil
		t.calls = t.calls[1:]
	} else {
		t.calls = slices.Delete(t.calls, k, k+1)
	}
	if len(t.calls) > 0 {
		if k == 0 {
			l.unclaim(t)
			l.first(t)
		}
		return
	}
	l.unclaim(t)
	l.sleepers.Remove(sleeper{&t.entry})
	if i := t.entry.in; i >= 0 && i < len(l.nodes) {
		l.nodes[i].heap.Remove(&t.entry)
		l.lift(i)
	}
	t.member.removeTurn(t)
}

func (m *member) removeTurn(t *turn) {
	last := len(m.turns) - 1
	m.turns[t.at] = m.turns[last]
	m.turns[t.at].at = t.at
	m.turns[last] = nil
	m.turns = m.turns[:last]
}

func (l *Leases) unclaim(t *turn) {
	if len(t.holdings) == 1 {
		return
	}
	for i := range l.above(t.holdings) {
		if l.nodes[i].claimed == t {
			l.nodes[i].claimed = nil
			l.wakePath(i)
		}
	}
}

// endTurn answers the calls of a turn before a number with an error, or that they are to ask again.
func (l *Leases) endTurn(t *turn, before uint64, err error) {
	for len(t.calls) > 0 && t.calls[0].seq < before {
		l.refuse(t, 0, err)
	}
}

// refuse answers a call of a turn that it is not admitted.
func (l *Leases) refuse(t *turn, k int, err error) {
	c := t.calls[k]
	a := Answer{To: c.from, Leadership: l.at, Err: err}
	if err == nil {
		a.Retry = l.turnIn(t, k)
	}
	l.answers = append(l.answers, a)
	l.countWaiting(t, -c.amount)
	l.drop(t, k)
}

// turnIn is after how many ms a call of a turn would have its units at the present rates: when all that waits has,
// or when the virtual time has come to its tag, if that is sooner.
func (l *Leases) turnIn(t *turn, k int) (ms uint64) {
	if l.learning {
		return blindly
	}
	own := uint64(1)
	ms = 1
	for i, times := range l.above(t.holdings) {
		n := &l.nodes[i]
		l.accrue(n)
		rate := max(n.ownRate(), n.remoteTarget, 1)
		if missing := lessBy(addUpTo(n.waiting, 0, maxRate)*1000, n.bucket.level); missing > 0 {
			ms = max(ms, missing/rate+1)
		}
		own = max(own, lessBy(t.calls[k].amount*times*1000, n.bucket.level)/rate)
	}
	if t.entry.in < 0 {
		return ms
	}
	behind := uint64(0) // its session's calls from the second one on
	for _, c := range t.calls[1 : k+1] {
		behind = addUpTo(behind, c.amount, maxRate)
	}
	fair := lessBy(t.tag, l.nodes[t.entry.in].virtual) + mulDiv(behind, virtually, l.weightOf(t.holdings[0]))
	return min(ms, max(own, fair*1000/virtually))
}

// requeue puts all calls into the heaps of the resources as they are now. One that can never be admitted fails with
// the error that a new one gets.
func (l *Leases) requeue() {
	l.sleepers = container.Heap[sleeper]{}
	for _, m := range l.members {
		for _, t := range slices.Clone(m.turns) {
			t.entry.place, t.entry.sleeping, t.entry.in = 0, 0, -1
			if err := l.usable(t.holdings); err != nil {
				for _, c := range t.calls {
					l.answers = append(l.answers, Answer{To: c.from, Leadership: l.at, Err: err})
				}
				m.waiting -= len(t.calls)
				m.removeTurn(t)
				continue
			}
			t.entry.in, t.waiting = t.holdings[0].node, 0
			l.nodes[t.entry.in].heap.Set(&t.entry, t.tag)
			l.lift(t.entry.in)
			for _, c := range t.calls {
				l.countWaiting(t, c.amount)
			}
			for k := 0; k < len(t.calls); {
				if err := l.possible(t.holdings, t.calls[k].amount); err != nil {
					l.refuse(t, k, err)
				} else {
					k++
				}
			}
		}
	}
	l.admitAt = l.now
}

// usable is an error if calls of some holdings cannot be admitted any more.
func (l *Leases) usable(holdings []*holding) error {
	for _, h := range holdings {
		switch {
		case h.node < 0 || l.nodes[h.node].path != h.path:
			return protocol.Refuse(protocol.RefusalNoLimit, "there is no resource %s; create it first", h.path)
		case !h.leaf:
			return protocol.Refuse(protocol.RefusalHasChildren, "resource %s has children; use one of them", h.path)
		}
	}
	return nil
}

// possible is an error if a call for an amount of some leaves can never be admitted.
func (l *Leases) possible(holdings []*holding, amount uint64) error {
	for _, h := range holdings {
		if n := &l.nodes[h.node]; amount > n.most {
			return impossible(h.path, amount, n)
		}
	}
	for k, times := range l.above(holdings) {
		if n, sum := &l.nodes[k], times*amount; sum > n.burst { // each alone is not
			return impossible(n.path, sum, n)
		}
	}
	return nil
}

// above yields the nodes of leaves and all above them, each with how many of the leaves are at or
// below it: a call takes its amount there so many times.
func (l *Leases) above(leaves []*holding) iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		for i, h := range leaves {
		nodes:
			for k := h.node; k >= 0; k = l.nodes[k].parent {
				times := uint64(1)
				for j, other := range leaves {
					switch {
					case j == i || !l.within(other.node, k):
					case j < i:
						break nodes // it was yielded, and all above it
					default:
						times++
					}
				}
				if !yield(k, times) {
					return
				}
			}
		}
	}
}

// within reports whether a node is at or below another one.
func (l *Leases) within(node, above int) bool {
	for node > above { // parents come before their children
		node = l.nodes[node].parent
	}
	return node == above
}
