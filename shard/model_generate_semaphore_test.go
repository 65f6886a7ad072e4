package shard

import "github.com/signalbox-dev/signalbox/protocol"

// forceReleaseOp is about one owner as a rule, or a few, or a token that was somebody's once.
func (g *gen) forceReleaseOp() op {
	x := &protocol.ForceRelease{Node: 1, Name: g.name(), First: uint64(g.n(20)), Reason: g.text()}
	x.Last = x.First + uint64(pick(g, 0, 3))
	if len(g.m.sems) > 0 && g.chance(80) {
		sem := g.m.sems[g.n(len(g.m.sems))]
		x.Node, x.Name = sem.node, sem.name
		if len(sem.entries) > 0 {
			r := sem.entries[g.n(len(sem.entries))]
			x.First, x.Last = r.order, r.order+uint64(pick(g, 0, 0, 2, 100))
		}
	}
	if g.fault(3) {
		x.Last--
	}
	node := x.Node
	if g.fault(3) {
		node = pick[uint64](g, 2, 4)
	}
	return op{kind: CmdForceRelease, node: node, client: pick(g, "", "ops"), msg: x}
}

// head numbers a request: mostly the next number, with a low-water mark somewhere below it.
func (g *gen) head(c *modelClient) protocol.Head {
	if !g.fault(4) {
		c.seq++
	}
	if g.fault(3) {
		c.seq += 2
	}
	if g.chance(30) && c.low < c.seq {
		c.low += 1 + uint64(g.n(int(min(c.seq-c.low, 100))))
	}
	h := protocol.Head{Session: c.id, Seq: c.seq, Low: c.low}
	if g.fault(3) {
		h.Low = c.seq + 1
	}
	return h
}

func (g *gen) request(kind CommandKind, make func(c *modelClient, h protocol.Head, name []byte) any) op {
	c := g.client()
	name := g.name()
	if s := g.m.session(c.id); s != nil && g.chance(40) {
		// One that the session has something of already.
		var own [][]byte
		for _, sem := range g.m.sems {
			if sem.entryOf(s) != nil {
				own = append(own, sem.name)
			}
		}
		if len(own) > 0 {
			name = own[g.n(len(own))]
		}
	}
	o := op{kind: kind, node: c.node, epoch: g.epochOf(c), msg: make(c, g.head(c), name)}
	if g.fault(2) {
		o.node = pick[uint64](g, 2, 1, 3)
	}
	if g.chance(20) {
		o.client = g.text()
	}
	c.sent = append(c.sent, o)
	if len(c.sent) > 8 {
		c.sent = c.sent[1:]
	}
	return o
}

func (g *gen) acquireOp() op {
	timeout := pick(g, ^uint64(0), 1000, 5000, 24*60*60*1000, 40*60*1000, 0)
	if g.short {
		timeout = pick[uint64](g, 1000, 0, 1, 50, 5000)
	}
	if g.fault(1) {
		timeout = 24*60*60*1000 + 1
	}
	return g.request(CmdAcquire, func(c *modelClient, h protocol.Head, name []byte) any {
		sem := g.m.sem(1, name)
		limit := uint64(3)
		if sem != nil && sem.limit < 10 {
			limit = sem.limit
		}
		count := limit - uint64(g.n(int(limit)))
		if sem != nil {
			if r := sem.entryOf(g.m.session(c.id)); r != nil && !g.fault(20) {
				count = r.count - uint64(g.n(int(min(r.count, 3))))
			}
		}
		switch {
		case g.fault(1):
			count = 0
		case g.fault(5):
			count = limit + 1
		case (sem == nil || sem.limit > 10) && g.chance(30):
			count = pick(g, ^uint64(0), ^uint64(0)-1)
		}
		ephemeral := (sem == nil || sem.ephemeral) != g.fault(15)
		x := &protocol.Acquire{Head: h, Name: name, Count: count,
			Timeout: timeout, Data: g.data(), Ephemeral: ephemeral}
		if !ephemeral {
			var r *modelEntry
			if sem != nil {
				r = sem.entryOf(g.m.session(c.id))
			}
			x.Options = g.asks(sem, r, &x.Count)
		}
		return x
	})
}

func (g *gen) releaseOp() op {
	return g.request(CmdRelease, func(_ *modelClient, h protocol.Head, name []byte) any {
		x := &protocol.Release{Head: h, Name: name,
			OrderID: pick(g, 0, 0, 0, 0, g.m.orders[protocol.Bucket(1, name, modelBuckets)], 1)}
		if sem := g.m.sem(1, name); sem != nil && g.chance(25) {
			for _, r := range sem.entries { // a waiter as a rule
				if !r.owner && (x.To == 0 || g.chance(40)) || r.owner && g.chance(5) {
					x.To = r.session.id
				}
			}
		}
		return x
	})
}

func (g *gen) createOp() op {
	return g.request(CmdCreate, func(_ *modelClient, h protocol.Head, name []byte) any {
		x := &protocol.Create{Head: h, Name: name,
			Limit: pick(g, uint64(3), 1, 2, 5, ^uint64(0), uint64(1-min(g.n(20), 1))), Data: g.data()}
		if g.queues && g.chance(70) {
			x.Options = g.options(x.Limit)
		}
		return x
	})
}

func (g *gen) updateOp() op {
	return g.request(CmdUpdate, func(_ *modelClient, h protocol.Head, name []byte) any {
		return &protocol.Update{Head: h, Name: name, Data: g.data(), Expected: pick[uint64](g, 0, 0, 1, 2)}
	})
}

func (g *gen) resizeOp() op {
	return g.request(CmdResize, func(_ *modelClient, h protocol.Head, name []byte) any {
		limit := pick(g, uint64(3), 1, 2, 4, ^uint64(0), uint64(1-min(g.n(20), 1)))
		for _, sem := range g.m.sems {
			if head := sem.head(); sem.node == 1 && !sem.ephemeral && head != nil && g.chance(50) {
				name = sem.name
				if g.chance(70) {
					limit = max(head.count, 2) - 1 // below what the head of the queue asks for
				}
				break
			}
		}
		return &protocol.Resize{Head: h, Name: name, Limit: limit, Expected: pick[uint64](g, 0, 0, 0, 0, 1, 2)}
	})
}

func (g *gen) deleteOp() op {
	return g.request(CmdDelete, func(_ *modelClient, h protocol.Head, name []byte) any {
		for _, sem := range g.m.sems {
			if sem.node == 1 && len(sem.entries) > 0 && len(sem.entries) == sem.waiters() && g.chance(50) {
				name = sem.name // nobody owns it, and somebody waits
			}
		}
		return &protocol.Delete{Head: h, Name: name, Force: g.chance(60), Expected: pick[uint64](g, 0, 0, 0, 0, 1, 2)}
	})
}

// resendOp sends one of the last requests again, as it was or with a higher low-water mark, under
// the present epoch or the old one.
func (g *gen) resendOp() op {
	c := g.client()
	if len(c.sent) == 0 {
		return g.acquireOp()
	}
	o := c.sent[len(c.sent)-1-g.n(len(c.sent))]
	if !g.fault(50) {
		o.epoch = c.epoch
	}
	if g.chance(30) {
		low := c.low + uint64(g.n(3))
		switch x := o.msg.(type) {
		case *protocol.Acquire:
			again := *x
			again.Low = low
			o.msg = &again
		case *protocol.Release:
			again := *x
			again.Low = low
			o.msg = &again
		}
	}
	return o
}
