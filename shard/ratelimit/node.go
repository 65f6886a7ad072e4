package ratelimit

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// node is a resource as a leadership uses it.
type node struct {
	path     string
	parent   int // -1 of the root
	children []int
	holdings []*holding // of this path, or orphans of paths below that are not there any more

	rate      uint64 // the least of its own and its parents'
	burst     uint64 // amount
	burstTime uint64 // ms, its own
	leastTime uint64 // ms: the least burst time of it and all above it
	leastRate uint64 // of a lease: below it the lease or its burst are too little for single units
	most      uint64 // amount: the least burst of it and all above it
	guarantee uint64
	weight    uint64
	shadow    bool // it, or one above it
	floor     uint64

	// What leases at and below it are counted with.
	// Invariant: at most rate and burst, unless these were lowered; then no grant raises them.
	countedRate, countedBurst uint64
	unused                    uint64 // amounts that were given out and may not be used yet, see grant

	// Of the last computation.
	demand, target uint64
	need           uint64 // the largest amount of one call, of the sessions that are served remotely
	leasedTarget   uint64 // at and below it
	leasedBurst    uint64 // what the leader's own bucket does not need
	remoteTarget   uint64 // of the leader's own bucket, for all sessions at and below it that are served remotely
	calling        uint64 // sessions at and below it that ask for something

	bucket          bucket
	virtual         uint64 // the latest tag of a call that was admitted at or below it
	entry           *entry // in the heap of the one above it
	heap            container.Heap[*entry]
	claimed         *turn  // the first call of several leaves that is to have its units here
	waiting         uint64 // amount of the calls that wait at or below it
	fair            uint64 // what its parent would give it if it asked for all
	acquires        uint64
	allowed, denied uint64
	waited          uint64
	impossible      uint64
}

// bucket is the leader's own token bucket at a resource. What the leader gives out comes from it:
// units, and the first level of a lease. Its rate and burst are what leases leave, and units that
// are not used yet. So together with the clients it never has more than the resource's burst, and
// never fills faster than at its rate.
type bucket struct {
	level uint64 // thousandths of an amount
	at    uint64
}

// accrue fills the bucket for the time that has passed, before its rate or burst change.
func (n *node) accrue(now uint64) {
	b := &n.bucket
	if now <= b.at {
		return
	}
	passed := now - b.at
	b.at = now
	b.level = addUpTo(b.level, mulDiv(n.ownRate(), passed, 1), n.ownBurst())
}

// ownRate and ownBurst are those of the leader's own bucket, the second in thousandths of an
// amount.
func (n *node) ownRate() uint64  { return lessBy(n.rate, n.countedRate) }
func (n *node) ownBurst() uint64 { return lessBy(n.burst, n.countedBurst+n.unused) * 1000 }

// build makes the nodes of a tree, and puts all holdings to them.
func (l *Leases) build(now uint64, tree *Tree) {
	former, formerIndex := l.nodes, l.index
	l.nodes, l.index = make([]node, len(tree.resources)), make(map[string]int, len(tree.resources))
	for i := range tree.resources {
		r := &tree.resources[i]
		c := &r.config
		n := node{path: r.path, parent: -1, rate: c.Rate, burstTime: c.BurstOrDefault(), leastTime: c.BurstOrDefault(), guarantee: c.Min,
			weight: max(uint64(c.Weight), 1), shadow: c.Shadow, floor: c.Floor, bucket: bucket{at: now}}
		limited := !c.Unlimited
		if p, ok := l.index[parentPath(r.path)]; ok {
			n.parent = p
			parent := &l.nodes[p]
			parent.children = append(parent.children, i)
			if !limited || n.rate > parent.rate {
				n.rate = parent.rate
			}
			n.shadow = n.shadow || parent.shadow
			n.leastTime = min(n.leastTime, parent.leastTime)
		}
		n.leastRate = max(leastUnits*1000*1000/l.length, 1000*1000/n.leastTime+1)
		if n.rate > 0 {
			n.burst = max(mulDiv(n.rate, n.burstTime, 1000), 1000)
		}
		if n.most = n.burst; n.parent >= 0 {
			n.most = min(n.burst, l.nodes[n.parent].most)
		}
		if at, ok := formerIndex[r.path]; ok {
			f := &former[at]
			if !l.learning {
				f.accrue(now)
			}
			n.bucket, n.virtual = f.bucket, f.virtual
			n.bucket.level = min(n.bucket.level, n.burst*1000)
			n.acquires, n.allowed, n.denied, n.waited, n.impossible = f.acquires, f.allowed, f.denied, f.waited, f.impossible
			n.demand, n.target, n.remoteTarget, n.leasedTarget, n.need, n.calling, n.fair = f.demand, f.target, f.remoteTarget, f.leasedTarget, f.need, f.calling, f.fair
		} else if l.built && !l.learning && !r.again {
			n.bucket.level = n.burst * 1000 // it is new, so it has rested
		}
		n.entry = &entry{child: i, in: n.parent}
		l.nodes[i] = n
		l.index[r.path] = i
	}
	for _, m := range l.members {
		for _, h := range m.holdings {
			l.place(h)
		}
	}
	defer l.requeue()
	if !l.built || l.learning {
		return
	}
	for i := range l.nodes { // the leases of their deleted namesakes are counted by now
		n, r := &l.nodes[i], &tree.resources[i]
		if _, ok := formerIndex[n.path]; !ok && r.again {
			n.bucket.at = min(r.created, now)
			n.accrue(now)
		}
	}
}

// place finds the node of a holding, and counts it there.
func (l *Leases) place(h *holding) {
	h.node, h.leaf = -1, false
	for path := h.path; path != ""; path = parentPath(path) {
		if i, ok := l.index[path]; ok {
			h.node, h.leaf = i, len(path) == len(h.path) && len(l.nodes[i].children) == 0
			break
		}
	}
	if h.node >= 0 {
		n := &l.nodes[h.node]
		h.at, n.holdings = len(n.holdings), append(n.holdings, h)
	}
	rate, burst := h.countedRate, h.countedBurst
	h.countedRate, h.countedBurst = 0, 0
	l.count(h, rate, burst)
	if h.unused > 0 {
		l.countUnused(h, h.unused)
	}
}

// count counts a holding with another rate and burst, at its node and all above it.
func (l *Leases) count(h *holding, rate, burst uint64) {
	if rate == h.countedRate && burst == h.countedBurst {
		return
	}
	if rate < h.countedRate || burst < h.countedBurst {
		l.freed = true
		defer l.wakePath(h.node)
	}
	for i := h.node; i >= 0; i = l.nodes[i].parent {
		n := &l.nodes[i]
		l.accrue(n)
		n.countedRate += rate - h.countedRate // modulo 2^64
		n.countedBurst += burst - h.countedBurst
		n.bucket.level = min(n.bucket.level, n.ownBurst())
	}
	h.countedRate, h.countedBurst = rate, burst
}

// recount counts a holding with what the client may use.
func (l *Leases) recount(h *holding) {
	rate, burst := uint64(0), uint64(0)
	for _, g := range [2]*Lease{&h.held, &h.offered} {
		if !g.there(l.now) {
			*g = Lease{}
			continue
		}
		rate, burst = max(rate, g.Rate), max(burst, g.Burst)
	}
	l.count(h, rate, burst)
}

// room is what a holding may have, given all others.
func (l *Leases) room(h *holding) (rate, burst uint64) {
	rate, burst = maxRate, protocol.MaxLimitBurstSize
	for i := h.node; i >= 0; i = l.nodes[i].parent {
		n := &l.nodes[i]
		rate = min(rate, lessBy(n.rate, n.countedRate-h.countedRate))
		burst = min(burst, lessBy(n.burst, n.countedBurst-h.countedBurst+max(n.unused, n.need)))
	}
	return rate, burst
}

// remove takes a holding that counts nothing out of its node.
func (l *Leases) remove(h *holding) {
	if h.node < 0 {
		return
	}
	n := &l.nodes[h.node]
	last := len(n.holdings) - 1
	n.holdings[h.at] = n.holdings[last]
	n.holdings[h.at].at = h.at
	n.holdings[last] = nil
	n.holdings = n.holdings[:last]
}

// accrue fills the bucket of a node. A leader that is learning does not know what to fill it with.
func (l *Leases) accrue(n *node) {
	if l.learning {
		n.bucket.at = l.now
		return
	}
	n.accrue(l.now)
}

// give takes an amount from the leader's own bucket of a node and of all above it.
func (l *Leases) give(node int, amount uint64) {
	for i := node; i >= 0; i = l.nodes[i].parent {
		l.nodes[i].bucket.level -= amount * 1000
	}
}

// has is the amount that the leader can give out at a node.
func (l *Leases) has(node int) uint64 {
	least := uint64(protocol.MaxLimitBurstSize) * 1000
	for i := node; i >= 0; i = l.nodes[i].parent {
		n := &l.nodes[i]
		l.accrue(n)
		least = min(least, n.bucket.level)
	}
	return least / 1000
}
