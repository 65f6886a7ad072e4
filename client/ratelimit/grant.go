package ratelimit

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// grant is units that the server gave out. They are used soon after they were asked for, or never:
// the server lets nobody else have the room for them until then. They are used only if nothing is
// known of a later leader, which need not know of them.
type grant struct {
	part *part
	gen  uint64 // of the part's session
	seq  uint64

	bucketEpoch, leaderEpoch uint64 // of the leader that gave them out
	until                    int64  // they are used before that
}

// Units are used within four times what the slowest of the last acquires took, and within so many
// ms at least. Before the first one that time is unknown.
const (
	slowFirst   = int64(50e6)
	slowTimes   = 4
	leastWithin = 20
)

// acquire numbers a request for units.
func (m *machine) acquire(now int64, p *part, q *protocol.LimitAcquire) grant {
	m.seq++
	q.Seq, q.Done = m.seq, m.seq-1
	if len(p.asks) > 0 {
		q.Done = slices.Min(p.asks) - 1
	}
	p.asks = append(p.asks, q.Seq)
	p.acquires++
	q.Within = uint64(min(max(slowTimes*p.slow/1e6, leastWithin), protocol.MaxLimitWithin))
	return grant{part: p, gen: p.gen, seq: q.Seq, until: usable(now, q.Within)}
}

// usable is until when units are used that are asked for now. The server counts all of the time:
// the rest is for clocks that differ.
func usable(now int64, within uint64) int64 { return now + int64(within)*1e6/beliefDen*beliefNum }

// took notes how long an acquire took. It is forgotten little by little.
func (p *part) took(ns int64) { p.slow = max(ns, p.slow-p.slow/16) }

// usable reports whether the units may be used.
func (g *grant) usable(now int64) bool {
	p := g.part
	return now < g.until && g.gen == p.gen &&
		cmp.Or(cmp.Compare(g.bucketEpoch, p.bucketEpoch), cmp.Compare(g.leaderEpoch, p.leaderEpoch)) >= 0
}

// done notes that the units were used, or never will be.
func (g *grant) done() {
	if p := g.part; g.gen == p.gen {
		p.asks = slices.DeleteFunc(p.asks, func(seq uint64) bool { return seq == g.seq })
	}
}

// back gives units back to the server.
func (m *machine) back(g *grant) {
	g.done()
	p := g.part
	if g.gen != p.gen || p.session == 0 {
		return
	}
	q := &protocol.LimitAcquire{Session: p.session, Path: []byte(p.root), Back: g.seq}
	m.out = append(m.out, action{kind: doBack, part: p, gen: p.gen, msg: q})
}
