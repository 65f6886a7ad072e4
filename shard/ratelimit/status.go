package ratelimit

import (
	"cmp"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// statusPage bounds the resources of one page of a status, and statusBytes what its sessions take: what
// has long paths has fewer.
const (
	statusPage  = 1_000
	statusBytes = 1 << 20

	sessionBytes = 64 // of a session, beside its texts
)

// Describe reads a resource with all below it, in pages. Errors: NOT_FOUND.
func (l *Leases) Describe(now uint64, tree *Tree, version uint64, q *protocol.LimitDescribe, out *protocol.LimitStatus) error {
	l.Observe(now, tree, version)
	if l.computeDue() {
		l.compute(tree)
	}
	path := string(q.Path)
	if _, ok := tree.find(path); !ok {
		return protocol.Refuse(protocol.RefusalNoLimit, "there is no resource %s", path)
	}
	*out = protocol.LimitStatus{Index: out.Index, Clock: l.now, Length: l.length, Learning: l.learning, Learned: l.learned,
		Participants: uint64(tree.NumParticipants()), Resources: out.Resources[:0], Sessions: out.Sessions[:0]}
	first, left := firstHoldings{most: int(q.Sessions)}, statusBytes
	from := path
	if len(q.Cursor) > 0 {
		from = string(q.Cursor) + "\x00"
	}
	tree.Resources(from, func(p string, revision uint64, c *protocol.LimitConfig) bool {
		if !strings.HasPrefix(p, path) {
			return false
		}
		if len(p) > len(path) && p[len(path)] != '/' {
			return true // such as api/a-b beside api/a
		}
		if len(out.Resources) == statusPage {
			out.Cursor = out.Resources[statusPage-1].Path
			return false
		}
		out.Resources = append(out.Resources, l.describe(p, revision, c, &first))
		return true
	})
	list := make([]*holding, first.Len())
	for i := range list { // the last comes first
		list[len(list)-1-i] = first.Pop().Item.holding
	}
	for _, h := range list {
		s := l.describeSession(tree, h)
		if left -= sessionBytes + len(s.Path) + len(s.At); left < 0 {
			break
		}
		out.Sessions = append(out.Sessions, s)
	}
	return nil
}

func (l *Leases) describe(path string, revision uint64, c *protocol.LimitConfig, first *firstHoldings) protocol.LimitResource {
	r := protocol.LimitResource{Path: []byte(path), Revision: revision, Config: *c}
	i, ok := l.index[path]
	if !ok {
		return r
	}
	n := &l.nodes[i]
	l.accrue(n)
	r.Rate, r.Burst, r.Demand, r.Target = n.rate, n.burst, n.demand, n.target
	r.Leased, r.LeasedBurst, r.Remote = n.countedRate, n.countedBurst, n.ownRate()
	r.Allowed, r.Denied, r.Waited, r.Acquires = n.allowed, n.denied, n.waited, n.acquires
	r.Impossible, r.Level = n.impossible, n.bucket.level/1000
	for _, h := range n.holdings {
		if last := h.last(); h.countedRate > last.Rate {
			r.Unconfirmed += h.countedRate - last.Rate
		}
		if h.leaf && !h.member.gone {
			r.Sessions++
			if h.remote {
				r.ServedRemote = true
			}
			if l.live(h) {
				r.Callers++
			}
			r.Waiting = addUpTo(r.Waiting, h.waits(), maxRate)
			first.add(h)
		}
	}
	return r
}

func (l *Leases) describeSession(tree *Tree, h *holding) protocol.LimitSession {
	s := protocol.LimitSession{Session: h.member.session, Path: []byte(h.path), Rate: h.last().Rate, Burst: h.last().Burst, Demand: h.demand,
		Waiting: h.waits(), Used: h.used, Heard: l.now - min(l.now, h.refreshed)}
	if h.remote {
		s.State = protocol.LimitRemote
	}
	if h.lacksSince > 0 {
		s.Lacks = max(lessBy(l.now, h.lacksSince), 1)
	}
	s.Share = h.target
	if p := tree.participants[h.member.session]; p != nil {
		s.Age = l.now - min(l.now, p.joined)
	}
	why, at, needs := l.why(h)
	if s.Why, s.At = protocol.LimitWhy(why), []byte(at); why == WhyBurst {
		s.Burst = needs
	}
	return s
}

// waits is the amount that waits: as its client has said, less what has left since, or what is held here.
func (h *holding) waits() uint64 { return max(lessBy(h.waiting, h.left), h.member.held(h)) }

// why says why a session has what it has at a leaf, with the resource that this is about. Of a burst that is too
// small it says which one would do.
func (l *Leases) why(h *holding) (why Why, at string, burst uint64) {
	n := &l.nodes[h.node]
	switch {
	case l.learning:
		return WhyLearning, "", 0
	case l.now >= h.liveUntil && h.countedRate > 0:
		return WhySilent, "", 0
	case n.rate == 0: // the highest one with such a rate is the cause
		for n.parent >= 0 && l.nodes[n.parent].rate == 0 {
			n = &l.nodes[n.parent]
		}
		return WhyCap, n.path, 0
	}
	if at, ok := l.elsewhere(h); ok {
		return WhyElsewhere, at, 0
	}
	switch {
	case h.remote && h.target >= leastUnits*1_000_000/l.length && h.need > 1000:
		for n.burstTime > n.leastTime {
			n = &l.nodes[n.parent]
		}
		return WhyBurst, n.path, mulDiv(h.need, n.rate, h.target)
	case l.newRate(h) < l.asks(h): // it began a moment ago
		return WhyWeight, n.path, 0
	case h.target >= h.wanted:
		return WhyDemand, "", 0
	}
	for n.parent >= 0 && (n.target < n.rate || n.rate >= l.nodes[n.parent].rate) {
		n = &l.nodes[n.parent] // one without a rate of its own has that of its parent
	}
	if n.calling > 1 {
		return WhyWeight, n.path, 0
	}
	return WhyCap, n.path, 0
}

// elsewhere reports whether a session's calls of several leaves lack nothing at this one and those above it. at is
// the resource that lacks units; none: it is of another tree.
func (l *Leases) elsewhere(h *holding) (at string, ok bool) {
	for _, t := range h.member.turns {
		if len(t.holdings) == 1 || !slices.Contains(t.holdings, h) {
			continue
		}
		for i, times := range l.above(t.holdings) {
			switch {
			case l.delay(i, t, times) == 0:
			case l.within(h.node, i):
				return "", false
			case at == "":
				at = l.nodes[i].path
			}
		}
	}
	return at, at != "" || h.elsewhere
}

// firstHoldings are the first of many in a list of sessions: a heap, with the last of them on top. So a
// look at some of 100,000 sessions does not make and sort a list of all.
type firstHoldings struct {
	container.Heap[lastHolding]
	most int
}

// before is the order of sessions in a description.
func (h *holding) before(b *holding) bool {
	return cmp.Or(cmp.Compare(min(b.lacksSince, 1), min(h.lacksSince, 1)),
		cmp.Compare(b.last().Rate, h.last().Rate), cmp.Compare(b.demand, h.demand),
		cmp.Compare(h.member.session, b.member.session), cmp.Compare(h.path, b.path)) < 0
}

func (f *firstHoldings) add(h *holding) {
	if f.Len() == f.most {
		if f.most == 0 || !h.before(f.First().Item.holding) {
			return
		}
		f.Pop()
	}
	f.Push(lastHolding{h}, 0)
}

// lastHolding is a holding in a heap that is ordered backwards.
type lastHolding struct{ *holding }

// Position implements container.Item: none is moved.
func (lastHolding) Position() *int32 { return nil }

// Before implements container.Item.
func (h lastHolding) Before(o lastHolding) bool { return o.before(h.holding) }

// Usage is what metrics show of a leaf. Rates are in thousandths of a unit per second, amounts in
// thousandths of a unit since the leadership began.
type Usage struct {
	Path                    string
	Rate                    uint64 // its limit
	Leased                  uint64 // what its sessions use, or will
	Counted                 uint64 // what they may still use
	Allowed, Denied, Waited uint64
	Impossible              uint64
	Lacking                 int    // sessions whose calls wait or are denied
	Lacks                   uint64 // ms, of the one for which it is longest
}

// Usage yields the leaves, in order of path, as of the last call.
func (l *Leases) Usage(yield func(*Usage) bool) {
	for i := range l.nodes {
		n := &l.nodes[i]
		if len(n.children) > 0 {
			continue
		}
		u := Usage{Path: n.path, Rate: n.rate, Counted: n.countedRate, Allowed: n.allowed, Denied: n.denied,
			Waited: n.waited, Impossible: n.impossible}
		for _, h := range n.holdings {
			u.Leased += h.last().Rate
			if h.leaf && !h.member.gone && h.lacksSince > 0 {
				u.Lacking++
				u.Lacks = max(u.Lacks, lessBy(l.now, h.lacksSince))
			}
		}
		if !yield(&u) {
			return
		}
	}
}

// Unconfirmed is how many leases sessions are to give up for smaller ones, because others have less
// than they are to have, and have not.
func (l *Leases) Unconfirmed() (leases int) {
	if l.shortages == 0 {
		return 0
	}
	for i := range l.nodes {
		for _, h := range l.nodes[i].holdings {
			if !l.learning && h.leaf && !h.member.gone && l.tooMuch(h) {
				leases++
			}
		}
	}
	return leases
}

// Learning is for how many ms the leadership has been learning, at a log time; 0: it knows who uses
// what.
func (l *Leases) Learning(now uint64) uint64 {
	if !l.learning {
		return 0
	}
	return lessBy(now, l.began)
}

// Users returns the first most sessions that have a leaf open, in order, and the number of all.
func (l *Leases) Users(tree *Tree, leaf string, most int) (users []uint64, count int) {
	i, ok := l.index[leaf]
	if !ok {
		return nil, 0
	}
	for _, h := range l.nodes[i].holdings {
		if epoch, ok := tree.Joined(h.member.session); ok && epoch == h.member.epoch && h.leaf && !h.member.gone {
			users = append(users, h.member.session)
		}
	}
	slices.Sort(users)
	return users[:min(len(users), most)], len(users)
}
