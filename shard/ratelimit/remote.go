package ratelimit

import (
	"cmp"
	"iter"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// A session whose share is too small for a lease, or that has no lease yet, is served remotely: it
// takes units from the leader's own buckets, at its leaves and at all resources above them.
//
// Sessions share these by weighted fair queueing in units. A session's turn starts at its tag, and
// finishes at its tag and its amount divided by its share. Turns that finish earlier have their
// units first. So sessions with equal shares get equal units, whether they ask for many at once or
// for one at a time.

// Acquire asks for units that are used at once.
type Acquire struct {
	Session, Epoch uint64
	Seq            uint64   // rises with each acquire of the session for the tree
	Done           uint64   // the client has used what it was given up to this one, or never will
	Within         uint64   // ms from when it asked, after which the client uses no units
	Leaves         []string // each gives all amounts, or none does
	Demands        []uint64 // rates that the session wants of the leaves
	Amounts        []uint64 // of calls that are admitted in this order
	Wait           bool     // keep a turn for what is not granted

	// Back returns what the acquire with this number was granted: its client could not use it, or
	// another tree did not grant what was wanted together.
	Back uint64
}

// Acquired is the answer.
type Acquired struct {
	Leadership Leadership
	Granted    int    // calls, of the first ones
	Retry      uint64 // ms after which to ask again for the next one; 0: all are granted
}

// turn is a session that waits for units of some leaves. It asks again; one that does not in time
// is dropped.
type turn struct {
	member      *member
	holdings    []*holding
	head, total uint64 // amounts: of the first call, and of all
	start       uint64
	number      uint64 // of two turns that finish together the lower one is first
	until       uint64
	at          int // its place in the list
}

// Bounds of the time after which a client is told to ask again, in ms. One that is late by
// turnLate loses its turn, and not its tag.
const (
	minRetry  = 2
	MaxRetry  = 2_000 // it asks again after that at the latest
	blindly   = 100   // when others have to shrink first
	turnLate  = 150
	virtually = 1_000_000 // tags are in millionths of a second

	mostBehind = 2 * virtually // what turns of one leaf have had less than others beside it is forgotten above that
)

// Acquire takes units from the leader's own buckets for a session, or says after how many ms to ask
// again. now is when the read barrier began that confirmed the leadership. Errors: those of
// [Leases.Refresh]; NOT_FOUND, PRECONDITION_FAILED for a path that is no leaf; BAD_REQUEST for an
// amount that can never be had.
func (l *Leases) Acquire(now uint64, tree *Tree, version uint64, q *Acquire, out *Acquired) error {
	l.Observe(now, tree, version)
	l.learn(tree)
	*out = Acquired{Leadership: l.at}
	m, err := l.member(tree, q.Session, q.Epoch)
	if err != nil {
		return err
	}
	if q.Back > 0 {
		l.takeBack(m, q.Back)
		return nil
	}
	l.usedUpTo(m, q.Done)
	holdings := make([]*holding, 0, 1)
	for k, leaf := range q.Leaves {
		i, ok := l.index[leaf]
		if !ok {
			return protocol.Refuse(protocol.RefusalNoLimit, "there is no resource %s; create it first", leaf)
		}
		n := &l.nodes[i]
		if len(n.children) > 0 {
			return protocol.Refuse(protocol.RefusalHasChildren, "resource %s has children; use one of them",
				leaf)
		}
		for _, amount := range q.Amounts {
			if amount > n.most {
				return impossible(leaf, amount, n)
			}
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
	if len(q.Amounts) == 0 {
		return nil
	}
	for k, times := range l.above(holdings) {
		if n, sum := &l.nodes[k], times*slices.Max(q.Amounts); sum > n.burst { // each alone is not
			return impossible(n.path, sum, n)
		}
	}
	if l.computeDue() {
		l.compute(tree)
	}
	out.Granted, out.Retry = l.serve(m, holdings, q.Amounts, q.Wait)
	if out.Granted > 0 {
		sum := uint64(0)
		for _, amount := range q.Amounts[:out.Granted] {
			sum = addUpTo(sum, amount, maxRate)
		}
		l.lend(m, holdings, q.Seq, sum, q.Within)
	}
	waiting := uint64(0)
	if q.Wait {
		for _, amount := range q.Amounts[out.Granted:] {
			waiting = addUpTo(waiting, amount, maxRate)
		}
	}
	for _, h := range holdings {
		if need := slices.Max(q.Amounts); need >= h.need {
			h.need, h.needAbove, h.needUntil = need, need*uint64(len(holdings)), l.now+needMemory
		}
		h.refreshed, h.liveUntil = l.now, max(h.liveUntil, l.now+min(out.Retry, MaxRetry)+liveLate)
		h.askedUntil = l.now + min(out.Retry, MaxRetry) + liveLate
		l.waits(h, waiting, waiting > 0)
		if l.many(h) {
			h.fewUntil = 0
		} else if out.Granted == len(q.Amounts) {
			l.calledFew(h)
		}
	}
	return nil
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

// waits notes that the calls of a holding wait, or are denied.
func (l *Leases) waits(h *holding, waiting uint64, lacks bool) {
	if (h.waiting > 0) != (waiting > 0) {
		l.dirty = true
	}
	h.lacked, h.lackedAt = l.lacked(h), l.now
	h.waiting = waiting
	switch {
	case !lacks:
		h.lacksSince = 0
	case h.lacksSince == 0:
		h.lacksSince = l.now
	}
}

// weight is a session's share of a leaf.
func (l *Leases) weight(h *holding) uint64 {
	if h.target > 0 {
		return h.target
	}
	n := &l.nodes[h.node]
	return max(min(n.rate/(n.calling+1), l.newRate(h)), 1)
}

// serve grants as many of the calls as can be, from the first one on.
func (l *Leases) serve(m *member, holdings []*holding, amounts []uint64, wait bool) (granted int, retry uint64) {
	if len(amounts) == 0 {
		return 0, 0
	}
	if l.learning {
		return 0, blindly
	}
	t := m.turn(holdings)
	start := l.startOf(holdings, t)
	for k := len(amounts); k > 0; k /= 2 {
		sum := uint64(0)
		for _, amount := range amounts[:k] {
			sum = addUpTo(sum, amount, maxRate)
		}
		if retry = l.delay(holdings, t, start, sum); retry > 0 {
			continue
		}
		for _, h := range holdings {
			l.give(h.node, sum)
			h.granted = addUpTo(h.granted, sum, maxRate)
			h.tag = start + mulDiv(sum, virtually, l.weight(h))
		}
		for i := range l.above(holdings) {
			l.nodes[i].virtual = max(l.nodes[i].virtual, start)
		}
		granted = k
		break
	}
	rest := amounts[granted:]
	if granted > 0 {
		retry = 0
	}
	if len(rest) > 0 && granted > 0 {
		retry = minRetry
	}
	if len(rest) == 0 || !wait {
		l.endTurn(t)
		return granted, retry
	}
	if t == nil {
		l.turnNumbers++
		t = &turn{member: m, holdings: holdings, number: l.turnNumbers, at: len(l.turns)}
		m.turns, l.turns = append(m.turns, t), append(l.turns, t)
	}
	if t.start = start; granted > 0 {
		for _, h := range holdings {
			t.start = max(t.start, h.tag)
		}
	}
	t.head, t.total = rest[0], 0
	for _, amount := range rest {
		t.total = addUpTo(t.total, amount, maxRate)
	}
	t.until = l.now + min(retry, MaxRetry)*9/8 + turnLate
	return granted, retry
}

// startOf is the virtual time at which a turn of some leaves starts; own is the one that waits,
// if any.
//
// Each resource has a virtual time, as the turns of a leaf that is full by itself advance slower
// than those beside it. A new turn begins with the others of the lowest resource at which some
// wait. A resource at which nobody waits takes its time from there, so that none is owed anything
// for having rested.
//
// A call of several leaves starts at the time of the one of which its session has the least share:
// of the others it takes no more than that, and their times may be far from each other.
func (l *Leases) startOf(holdings []*holding, own *turn) (start uint64) {
	first := lessBy(l.nodes[0].virtual, mostBehind)
	h := slices.MinFunc(holdings, func(a, b *holding) int { return cmp.Compare(l.weight(a), l.weight(b)) })
	if own != nil && h.tag <= own.start {
		return max(own.start, first) // it waits since then
	}
	l.scans++
	for _, t := range l.turns {
		if t == own || t.until <= l.now || t.gone() {
			continue
		}
		for _, h := range t.holdings {
			for k := h.node; k >= 0 && l.nodes[k].marked != l.scans; k = l.nodes[k].parent {
				l.nodes[k].marked = l.scans
			}
		}
	}
	k := h.node
	for l.nodes[k].marked != l.scans && l.nodes[k].parent >= 0 {
		k = l.nodes[k].parent
	}
	at := max(l.nodes[k].virtual, first)
	for i := h.node; i != k; i = l.nodes[i].parent {
		l.nodes[i].virtual = max(l.nodes[i].virtual, at)
	}
	if own != nil {
		at = max(at, own.start)
	}
	return max(at, h.tag)
}

// turn finds the turn of a member at some leaves.
func (m *member) turn(holdings []*holding) *turn {
	for _, t := range m.turns {
		if slices.Equal(t.holdings, holdings) {
			return t
		}
	}
	return nil
}

// endTurn forgets a turn.
func (l *Leases) endTurn(t *turn) {
	if t == nil {
		return
	}
	last := len(l.turns) - 1
	l.turns[t.at] = l.turns[last]
	l.turns[t.at].at = t.at
	l.turns[last] = nil
	l.turns = l.turns[:last]
	t.member.turns = slices.DeleteFunc(t.member.turns, func(x *turn) bool { return x == t })
}

// finish is when a turn that gets an amount finishes.
func (l *Leases) finish(holdings []*holding, start, amount uint64) (end uint64) {
	for _, h := range holdings {
		end = max(end, start+mulDiv(amount, virtually, l.weight(h)))
	}
	return end
}

// delay is the time in ms until an amount can be taken, after the turns that finish earlier; 0:
// now.
func (l *Leases) delay(holdings []*holding, own *turn, start, amount uint64) (wait uint64) {
	l.scans++
	end, number := l.finish(holdings, start, amount), l.turnNumbers+1
	if own != nil {
		number = own.number
	}
	for i := 0; i < len(l.turns); i++ {
		t := l.turns[i]
		if t == own {
			continue
		}
		if t.until <= l.now || t.gone() {
			l.endTurn(t)
			i--
			continue
		}
		finish := l.finish(t.holdings, t.start, t.head)
		if finish > end || finish == end && t.number > number {
			continue
		}
		// It is first with all that it can have until then. Where it does not lack anything itself,
		// what comes in while it waits is enough for it.
		has := uint64(maxRate)
		for _, h := range t.holdings {
			has = min(has, mulDiv(end-min(end, t.start), l.weight(h), virtually))
		}
		has = min(max(has, t.head), t.total)
		waits := l.lack(t.holdings, has, false)
		for _, h := range t.holdings {
			for k := h.node; k >= 0; k = l.nodes[k].parent {
				n := &l.nodes[k]
				if n.scanned != l.scans {
					n.scanned, n.reserved = l.scans, 0
				}
				n.reserved = addUpTo(n.reserved, lessBy(has, mulDiv(n.ownRate(), waits, 1000)), maxRate)
			}
		}
	}
	if wait = l.lack(holdings, amount, true); wait > 0 {
		return max(wait, minRetry)
	}
	return 0
}

// gone reports whether a turn is of a session that takes part no more, or of a leaf that is none.
func (t *turn) gone() bool {
	return slices.ContainsFunc(t.holdings, func(h *holding) bool { return h.gone || !h.leaf || h.node < 0 })
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

// lack is the time in ms until leaves and all above them have an amount of each, after what is
// reserved.
func (l *Leases) lack(leaves []*holding, amount uint64, reserved bool) (wait uint64) {
	for i, times := range l.above(leaves) {
		n := &l.nodes[i]
		l.accrue(n)
		sum := min(times*amount, maxRate)
		want := sum
		if reserved && n.scanned == l.scans {
			want = addUpTo(want, n.reserved, maxRate)
		}
		missing := lessBy(want*1000, n.bucket.level)
		switch rate := n.ownRate(); {
		case missing > 0 && rate == 0, sum > lessBy(n.burst, n.countedBurst):
			wait = max(wait, blindly)
		case missing > 0 && l.growing: // the rate is to rise, as the session grows older
			wait = max(wait, min(missing/rate+1, blindly))
		case missing > 0: // at the rate that is to come, if others have to shrink first
			wait = max(wait, missing/max(rate, n.remoteTarget)+1)
		}
	}
	return wait
}

// grant is an amount that the leader gave out and that a client may not have used yet. Until it
// has, or can no more, it counts like the burst of a lease: else what comes in meanwhile could be
// used together with it.
//
// A new leadership that has finished learning need not know of grants: a session that has reported
// takes none of an earlier leadership any more, and those of all others have ended, as
// [protocol.MaxLimitWithin] is no more than the shortest lease.
type grant struct {
	member   *member
	holdings []*holding
	seq      uint64 // of the acquire
	amount   uint64
	place    int32 // in the heap of all, by the time until which they count
}

// Position implements container.Item.
func (u *grant) Position() *int32 { return &u.place }

// Before implements container.Item: the order of units that end together has no effect.
func (u *grant) Before(*grant) bool { return false }

// lend counts an amount that was taken from the leader's own buckets until the client has used it.
func (l *Leases) lend(m *member, holdings []*holding, seq, amount, within uint64) {
	u := &grant{member: m, holdings: holdings, seq: seq, amount: amount}
	m.grants = append(m.grants, u)
	l.grants.Push(u, l.now+min(within, protocol.MaxLimitWithin)+1) // a time of the log is up to 1 ms late
	for _, h := range holdings {
		l.countUnused(h, amount)
		h.unused += amount
	}
}

// used ends the count of a grant.
func (l *Leases) used(u *grant) {
	l.grants.Remove(u)
	u.member.grants = slices.DeleteFunc(u.member.grants, func(x *grant) bool { return x == u })
	for _, h := range u.holdings {
		h.unused -= u.amount
		l.countUnused(h, -u.amount) // modulo 2^64
	}
}

// usedUpTo ends the count of the units of all acquires of a member up to one: its client has used
// them, or never will.
func (l *Leases) usedUpTo(m *member, seq uint64) {
	for i := 0; i < len(m.grants); {
		if u := m.grants[i]; u.seq <= seq {
			l.used(u)
		} else {
			i++
		}
	}
}

// expireGrants ends the count of units that no client uses any more.
func (l *Leases) expireGrants() {
	for l.grants.Len() > 0 && l.grants.First().Key <= l.now {
		l.used(l.grants.First().Item)
	}
}

// forgetGrants ends the count of a holding's units: its client uses the leaf no more.
func (l *Leases) forgetGrants(h *holding) {
	for _, u := range h.member.grants {
		if i := slices.Index(u.holdings, h); i >= 0 {
			u.holdings = slices.Delete(slices.Clone(u.holdings), i, i+1)
			l.countUnused(h, -u.amount)
		}
	}
	h.unused = 0
}

// takeBack returns units that were given out and not used. A second time it finds none.
func (l *Leases) takeBack(m *member, seq uint64) {
	for _, u := range m.grants {
		if u.seq != seq {
			continue
		}
		l.used(u)
		for _, h := range u.holdings {
			h.granted -= min(h.granted, u.amount)
			for i := h.node; i >= 0; i = l.nodes[i].parent {
				n := &l.nodes[i]
				n.bucket.level = addUpTo(n.bucket.level, u.amount*1000, n.ownBurst())
			}
		}
		return
	}
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
