package shard

import (
	"errors"
	"fmt"
	"math"
)

// busiest are the rankings of a node.
type busiest struct {
	queues  ranking[semaphore]     // that have waiters, by their number
	waits   ranking[semaphore]     // the same, by the age of the first waiter's request
	holders ranking[sessionRecord] // sessions with entries, by their number
}

// Places of a semaphore in the rankings of its node.
const (
	placeQueue = iota
	placeWait
	places
)

// BusySemaphore says how much is wanted of a semaphore.
type BusySemaphore struct {
	Node         uint64
	Name         []byte // the machine's memory, which is never changed in place
	Limit, Used  uint64 // units
	Owners       int
	Waiters      int
	WaitingSince uint64 // of the first waiter's request, wall clock, ms since 1970; 0: there is none
	Ephemeral    bool
	Stuck        bool // the first waiter wants more than the limit
}

func busySemaphore(s *semaphore) BusySemaphore {
	l := BusySemaphore{
		Node: s.node.id, Name: s.name, Limit: s.limit, Used: s.used, Owners: s.owners.n, Waiters: s.waiters.n,
		Ephemeral: s.ephemeral, Stuck: s.stuck,
	}
	if head := s.waiters.first; head != nil {
		l.WaitingSince = head.since
	}
	return l
}

// BusySemaphore looks one semaphore up. ok is false for a semaphore that does not exist, and for
// one that this shard does not serve.
func (m *Machine) BusySemaphore(node uint64, name []byte) (l BusySemaphore, ok bool) {
	b := m.activeBucket(node, name)
	if b == nil || m.nodes[node] == nil {
		return l, false
	}
	s := b.lookup(node, name)
	if s == nil {
		return l, false
	}
	return busySemaphore(s), true
}

// maxPassedOver bounds the records that a list of the busiest looks at and does not show, because
// this shard does not serve them now.
const maxPassedOver = 1_000

// LongestQueues are the semaphores with the most waiters, at most so many, the longest queue first,
// of the nodes for which in is true. It looks at each node and at no more semaphores than it
// returns, except for up to 1,000 of buckets that are moving.
func (m *Machine) LongestQueues(most int, in func(node uint64) bool) []BusySemaphore {
	return m.busiestSemaphores(most, in, func(n *node) *ranking[semaphore] { return &n.queues })
}

// OldestWaits are the semaphores whose first waiters have waited longest, at most so many, the
// oldest first. Otherwise it is as LongestQueues.
func (m *Machine) OldestWaits(most int, in func(node uint64) bool) []BusySemaphore {
	return m.busiestSemaphores(most, in, func(n *node) *ranking[semaphore] { return &n.waits })
}

func (m *Machine) busiestSemaphores(
	most int, in func(node uint64) bool, by func(*node) *ranking[semaphore],
) (list []BusySemaphore) {
	w := walkNodes(m, in, by)
	for range most + maxPassedOver {
		s := w.take()
		if s == nil || len(list) == most {
			break
		}
		if s.bucket.state == bucketActive {
			list = append(list, busySemaphore(s))
		}
	}
	return list
}

// BusySession says how much a session owns and waits for in this shard.
type BusySession struct {
	Node, Session uint64
	Held, Waiting int // semaphores
	Description   string
	Client        string // address; empty of a session at home elsewhere
	Detached      bool
}

func (m *Machine) busySession(p *sessionRecord) BusySession {
	l := BusySession{
		Node: p.node.id, Session: p.id, Held: p.entries.n - int(p.waits), Waiting: int(p.waits),
		Description: p.description, Detached: m.detached(p),
	}
	if p.home != nil {
		l.Client = p.home.client
	}
	return l
}

// BusySession looks one session up. ok is false for a session that this shard does not know, and
// for one that has ended.
func (m *Machine) BusySession(id uint64) (l BusySession, ok bool) {
	p := m.sessions[id]
	if p == nil || !m.alive(p) {
		return l, false
	}
	return m.busySession(p), true
}

// MostEntries are the sessions that own or wait for the most semaphores in this shard, at most so
// many, the most first, of the nodes for which in is true. It looks at each node and at no more
// sessions than it returns, except for up to 1,000 that have ended.
func (m *Machine) MostEntries(most int, in func(node uint64) bool) (list []BusySession) {
	w := walkNodes(m, in, func(n *node) *ranking[sessionRecord] { return &n.holders })
	for range most + maxPassedOver {
		p := w.take()
		if p == nil || len(list) == most {
			break
		}
		if m.alive(p) {
			list = append(list, m.busySession(p))
		}
	}
	return list
}

// walkNodes walks one ranking of each node for which in is true.
func walkNodes[T any](m *Machine, in func(node uint64) bool, by func(*node) *ranking[T]) (w rankWalk[T]) {
	m.nodeIndex.all(func(n *node) bool {
		if r := by(n); len(r.heap) > 0 && !n.dropped && in(n.id) {
			w.push(rankStep[T]{r, 0})
		}
		return true
	})
	return w
}

// check walks the rankings of a node, for Check.
func (b *busiest) check(n *node, m *Machine) error {
	queues, holders := 0, 0
	for i := range m.buckets {
		for _, s := range m.buckets[i].semaphores {
			if s.node != n {
				continue
			}
			if s.waiters.n > 0 {
				queues++
			}
			if rankedAs(s, &b.queues, placeQueue) != uint64(s.waiters.n) ||
				(s.waiters.n == 0) != (rankedAs(s, &b.waits, placeWait) == 0) {
				return fmt.Errorf("semaphore %q is out of place in a ranking", s.name)
			}
			if head := s.waiters.first; head != nil &&
				rankedAs(s, &b.waits, placeWait) != max(1, math.MaxUint64-head.since) {
				return fmt.Errorf("semaphore %q is ranked by another wait", s.name)
			}
		}
	}
	for _, p := range m.sessions {
		if p.node != n {
			continue
		}
		waits := 0
		for e := p.entries.first; e != nil; e = next(e, byName) {
			if e.waiting {
				waits++
			}
		}
		if p.entries.n > 0 {
			holders++
		}
		if waits != int(p.waits) || (p.place == 0) != (p.entries.n == 0) ||
			p.place > 0 && b.holders.heap[p.place-1] != (ranked[sessionRecord]{uint64(p.entries.n), &p.place, p}) {
			return fmt.Errorf("session %d has %d entries, %d of them wait, and its ranking says otherwise",
				p.id, p.entries.n, waits)
		}
	}
	if len(b.queues.heap) != queues || len(b.waits.heap) != queues || len(b.holders.heap) != holders {
		return fmt.Errorf("%d queues and %d sessions with entries are ranked as %d, %d and %d",
			queues, holders, len(b.queues.heap), len(b.waits.heap), len(b.holders.heap))
	}
	if !b.queues.ordered() || !b.waits.ordered() || !b.holders.ordered() {
		return errors.New("a ranking is out of order")
	}
	return nil
}

// rankedAs is the semaphore's key in a ranking, 0 if it is not there.
func rankedAs(s *semaphore, r *ranking[semaphore], place int) uint64 {
	at := s.places[place]
	if at == 0 || int(at) > len(r.heap) || r.heap[at-1].record != s {
		return 0
	}
	return r.heap[at-1].key
}
