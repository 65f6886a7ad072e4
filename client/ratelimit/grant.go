package ratelimit

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// grant is units that the server gave out. They are used soon, or never: the server lets nobody else have the room
// for them until then. They are used only if nothing is known of a later leader, which need not know of them.
type grant struct {
	gen                      uint64 // of the part's session
	seq                      uint64
	bucketEpoch, leaderEpoch uint64 // of the leader that gave them out
	until                    int64  // they are used before that
}

// ask is a request for units of one tree, for a call. It is open at the server until the call is admitted.
type ask struct {
	part    *part
	leaves  []*leaf
	seq     uint64
	open    bool
	granted bool
	grant   grant
	at      int64 // not before that

	request any // the driver's
}

// leaderClock bounds the clock of a leader: it was not later than clock at a time in ns.
type leaderClock struct {
	bucketEpoch, leaderEpoch, clock uint64
	at                              int64
}

func compareLeaders(bucketA, leaderA, bucketB, leaderB uint64) int {
	return cmp.Or(cmp.Compare(bucketA, bucketB), cmp.Compare(leaderA, leaderB))
}

// sample takes what an answer to a request says of the leader's clock, if it says more than is known.
func (p *part) sample(bucketEpoch, leaderEpoch, clock uint64, sent int64) {
	if clock == 0 {
		return
	}
	known := &p.clock
	order := compareLeaders(bucketEpoch, leaderEpoch, known.bucketEpoch, known.leaderEpoch)
	if order > 0 || order == 0 && known.time(clock) <= sent {
		*known = leaderClock{bucketEpoch, leaderEpoch, clock, sent}
	}
}

// time is when the leader's clock has a time at the earliest. The rest of the time is for clocks that differ.
func (c *leaderClock) time(clock uint64) int64 {
	return c.at + (int64(clock)-int64(c.clock))*1e6/beliefDen*beliefNum
}

// usable reports whether the units may be used.
func (p *part) usable(now int64, g *grant) bool {
	return now < g.until && g.gen == p.gen && compareLeaders(g.bucketEpoch, g.leaderEpoch, p.bucketEpoch, p.leaderEpoch) >= 0
}

// mostHeld is how many acquires of a client are open at the server: of a connection's window they leave the most to
// other requests. From half of it on only the first call of each leaf is asked for. The last eighth is for asks that
// the server answers at once: calls that wait for long at many limits starve none at another one.
const mostHeld = protocol.MaxLimitHeld

// request opens an ask for a call.
func (m *machine) request(now int64, c *call, a *ask) {
	p := a.part
	if a.open || now < a.at || !p.joined || p.session == 0 {
		return
	}
	if !c.try && (m.wanted >= mostHeld || m.wanted >= mostHeld/2 && a.leaves[0].asks > 0) {
		a.at = now + demandGap
		return
	}
	hold := !c.try && m.wanted < mostHeld-mostHeld/8
	m.seq++
	a.seq, a.open = m.seq, true
	m.wanted, p.wanted = m.wanted+1, append(p.wanted, a.seq)
	p.acquires++
	q := &protocol.LimitAcquire{Session: p.session, Path: []byte(p.root), Seq: a.seq, Amount: c.amount, Hold: hold}
	if c.try {
		q.Back = p.back // else it could overtake that, and stand behind it
	}
	for _, l := range a.leaves {
		q.Leaves = append(q.Leaves, l.needs(now))
		l.asks++
	}
	if n := len(p.used); n > 0 {
		q.Used, p.used = p.used[n-1], p.used[:n-1]
	}
	m.send(now, action{kind: doAcquire, part: p, msg: q, call: c, ask: a})
}

// withdraw ends an ask whose units are not wanted any more. Its number stays among those that are wanted until the
// server has answered: a refresh that overtakes this request would take the units for ones that were used.
func (m *machine) withdraw(now int64, a *ask) {
	if !a.open && !a.granted {
		return
	}
	p := a.part
	if a.open {
		a.closed()
	} else if a.grant.gen != p.gen {
		a.granted = false
		return
	}
	a.granted = false
	if p.session == 0 {
		m.unwant(p, a.seq)
		return
	}
	p.back = a.seq
	m.send(now, action{kind: doBack, part: p, ask: a, msg: &protocol.LimitAcquire{Session: p.session, Path: []byte(p.root), Back: a.seq}})
}

// askAgain withdraws what is open at a former leader, which may never answer.
func (m *machine) askAgain(now int64, l *leaf) {
	if l.stock != nil { // it may have given the room for them to others
		m.unstock(now, l)
	}
	if c := l.restocks; c != nil {
		m.withdraw(now, c.asks[0])
	}
	for _, c := range l.queue.first.calls {
		for _, a := range c.asks {
			if a.part == l.part && a.open {
				m.withdraw(now, a)
			}
		}
	}
}

// closed notes that an ask is not open any more.
func (a *ask) closed() {
	a.open = false
	for _, l := range a.leaves {
		l.asks--
	}
}

// used notes that the units of an ask were used. The server hears of it by the next request.
func (m *machine) used(a *ask) {
	if a.granted && a.grant.gen == a.part.gen {
		a.part.used = append(a.part.used, a.seq)
	}
	a.granted = false
	m.unwant(a.part, a.seq)
}

// unwant notes that nothing of an acquire is wanted any more.
func (m *machine) unwant(p *part, seq uint64) {
	if i, ok := slices.BinarySearch(p.wanted, seq); ok {
		m.wanted, p.wanted = m.wanted-1, slices.Delete(p.wanted, i, i+1)
	}
}

// wantsFrom is the first acquire that a part wants something of; at is the number of what says so.
func (p *part) wantsFrom(at uint64) uint64 {
	if len(p.wanted) == 0 {
		return at
	}
	return p.wanted[0]
}

// report says which units were used, of those that no request has said yet.
func (m *machine) report(p *part) {
	for _, seq := range p.used {
		if p.session != 0 {
			m.out = append(m.out, action{kind: doBack, part: p, gen: p.gen,
				msg: &protocol.LimitAcquire{Session: p.session, Path: []byte(p.root), Used: seq}})
		}
	}
	p.used = p.used[:0]
}
