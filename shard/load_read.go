package shard

import (
	"errors"
	"fmt"
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// Load reads the shard's busiest objects, for operators and for metrics by name.
type Load struct{ reader }

// BusySemaphore says how much a semaphore is asked for.
type BusySemaphore struct {
	Node         uint64
	Name         []byte // the machine's memory, which is never changed in place
	Limit, Used  uint64 // units
	Owners       int
	Waiters      int
	WaitingSince uint64 // of the first waiter's request, wall clock, ms since 1970; 0: there is none
	OldestWait   uint64 // ms that the first waiter has waited at the machine's log time; 0 without one
	Ephemeral    bool
	Stuck        bool // the next waiter, by the policy, wants more than the limit
	Slots        SlotCounts
	Priority     uint8  // the level of the first waiter plus 1; 0: there is no waiter, or the policy is another
	Left         uint64 // ms until the first owner's hold ends by itself; 0: it does not
	Preempted    int    // owners that waiters preempt
	Acquires     uint64 // as in CounterRow
	Waits        uint64
	Releases     uint64
}

// SlotCounts are how many slots are in each protocol.SlotState; all 0 where units have no names.
type SlotCounts [protocol.SlotLeaving + 1]int

func (r Load) busy(s *semaphore) BusySemaphore {
	l := BusySemaphore{
		Node: s.node.id, Name: s.name, Limit: s.limit, Used: s.used, Owners: s.owners.n, Waiters: s.waiters.n,
		Ephemeral: s.ephemeral, Stuck: s.stuck,
		Acquires: s.counters.acquires, Waits: s.counters.waits, Releases: s.counters.releases,
	}
	if head := s.waiters.first; head != nil {
		l.WaitingSince, l.OldestWait = head.since, r.waited(head, r.m.logTime)
	}
	if q := s.queue(); q != nil {
		q.SlotStates(func(state protocol.SlotState) { l.Slots[state]++ })
		if head := s.waiters.first; head != nil && q.Policy() == protocol.PolicyPriority {
			level, _ := q.level(head)
			l.Priority = level + 1
		}
		if first := s.owners.first; first != nil {
			l.Left = first.grantOf().Left(r.m.bucketTime(s.bucket))
		}
		l.Preempted = int(q.Usage().Preempted)
	}
	return l
}

// Semaphore looks a semaphore up. ok is false for a semaphore that does not exist, and for one that
// this shard does not serve.
func (r Load) Semaphore(node uint64, name []byte) (l BusySemaphore, ok bool) {
	b := r.m.activeBucket(node, name)
	if b == nil || r.m.nodes[node] == nil {
		return l, false
	}
	s := r.m.semaphores.lookup(b, node, name)
	if s == nil {
		return l, false
	}
	return r.busy(s), true
}

// maxPassedOver bounds the records that a list of the busiest looks at and does not show, because
// this shard does not serve them now.
const maxPassedOver = 1_000

// LongestQueues returns the semaphores with the most waiters, the longest queue first, of the nodes
// for which in is true. most bounds the list. It looks at each node and at no more semaphores than
// it returns, except for up to 1,000 of buckets that are moving.
func (r Load) LongestQueues(most int, in func(node uint64) bool) []BusySemaphore {
	return r.busiestSemaphores(most, in, func(n *node) *container.Ranking[semaphore] { return &n.queues })
}

// OldestWaits returns the semaphores whose first waiters have waited longest, the oldest first.
// Otherwise it is as LongestQueues.
func (r Load) OldestWaits(most int, in func(node uint64) bool) []BusySemaphore {
	return r.busiestSemaphores(most, in, func(n *node) *container.Ranking[semaphore] { return &n.waits })
}

// OldestWait is how long the first waiter of a node's oldest queue has waited, in ms; now is the
// log time. ok is false if nobody waits there. It passes over queues as OldestWaits does.
func (r Load) OldestWait(node, now uint64) (ms uint64, ok bool) {
	x := r.m.nodes[node]
	if x == nil || x.waits.Len() == 0 {
		return 0, false
	}
	var w container.RankWalk[semaphore]
	w.Add(&x.waits)
	for range 1 + maxPassedOver {
		s := w.Next()
		if s == nil {
			break
		}
		if s.bucket.state == bucketActive {
			return r.waited(s.waiters.first, now), true
		}
	}
	return 0, false
}

func (r Load) busiestSemaphores(
	most int, in func(node uint64) bool, by func(*node) *container.Ranking[semaphore],
) (list []BusySemaphore) {
	w := walkNodes(r.m, in, by)
	for range most + maxPassedOver {
		s := w.Next()
		if s == nil || len(list) == most {
			break
		}
		if s.bucket.state == bucketActive {
			list = append(list, r.busy(s))
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

func (r Load) busySession(p *sessionRecord) BusySession {
	l := BusySession{
		Node: p.node.id, Session: p.id, Held: p.entries.n - int(p.waits), Waiting: int(p.waits),
		Description: p.description, Detached: r.m.detached(p),
	}
	if p.home != nil {
		l.Client = p.home.client
	}
	return l
}

// Session looks a session up. ok is false for a session that this shard does not know, and for one
// that has ended.
func (r Load) Session(id uint64) (l BusySession, ok bool) {
	p := r.m.sessions.get(id)
	if p == nil || !r.m.alive(p) {
		return l, false
	}
	return r.busySession(p), true
}

// MostEntries returns the sessions that own or wait for the most semaphores in this shard, the most
// first, of the nodes for which in is true. most bounds the list. It looks at each node and at no
// more sessions than it returns, except for up to 1,000 that have ended.
func (r Load) MostEntries(most int, in func(node uint64) bool) (list []BusySession) {
	w := walkNodes(r.m, in, func(n *node) *container.Ranking[sessionRecord] { return &n.holders })
	for range most + maxPassedOver {
		p := w.Next()
		if p == nil || len(list) == most {
			break
		}
		if r.m.alive(p) {
			list = append(list, r.busySession(p))
		}
	}
	return list
}

// walkNodes walks one ranking of each node for which in is true.
func walkNodes[T any](
	m *Machine, in func(node uint64) bool, by func(*node) *container.Ranking[T],
) (w container.RankWalk[T]) {
	m.nodeIndex.All(func(n *node) bool {
		if !n.dropped && in(n.id) {
			w.Add(by(n))
		}
		return true
	})
	return w
}

// waited is elapsed at a log time that is not in the log yet.
func (r Load) waited(e *entry, now uint64) uint64 {
	if e.began != 0 {
		return now - min(e.began, now)
	}
	return r.m.elapsed(e)
}

// SemaphoresFrom yields the semaphores of a node in order of name, from name on, at most n of them;
// more: there is another, whose name is next.
func (r Load) SemaphoresFrom(
	node uint64, name []byte, n int, yield func(BusySemaphore),
) (next []byte, more bool) {
	x := r.m.nodes[node]
	if x == nil {
		return nil, false
	}
	r.m.semaphores.names(x, name, func(s *semaphore) bool {
		if n--; n < 0 {
			next, more = s.name, true
			return false
		}
		if s.bucket.state == bucketActive {
			yield(r.busy(s))
		}
		return true
	})
	return next, more
}

// busiest are the rankings of a node.
type busiest struct {
	queues  container.Ranking[semaphore]     // that have waiters, by their number
	waits   container.Ranking[semaphore]     // the same, by the age of the first waiter's request
	holders container.Ranking[sessionRecord] // sessions with entries, by their number
}

// Places of a semaphore in the rankings of its node.
const (
	placeQueue = iota
	placeWait
	places
)

// check walks the rankings of a node, for Check.
func (b *busiest) check(n *node, m *Machine) error {
	queues, holders := 0, 0
	for s := range m.semaphores.all(m.buckets) {
		if s.node != n {
			continue
		}
		if s.waiters.n > 0 {
			queues++
		}
		if b.queues.Key(s, s.places[placeQueue]) != uint64(s.waiters.n) ||
			(s.waiters.n == 0) != (b.waits.Key(s, s.places[placeWait]) == 0) {
			return fmt.Errorf("semaphore %q is out of place in a ranking", s.name)
		}
		if head := s.waiters.first; head != nil &&
			b.waits.Key(s, s.places[placeWait]) != max(1, math.MaxUint64-head.since) {
			return fmt.Errorf("semaphore %q is ranked by another wait", s.name)
		}
	}
	for p := range m.sessions.All() {
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
			b.holders.Key(p, p.place) != uint64(p.entries.n) {
			return fmt.Errorf("session %d has %d entries, %d of them wait, and its ranking says otherwise",
				p.id, p.entries.n, waits)
		}
	}
	if b.queues.Len() != queues || b.waits.Len() != queues || b.holders.Len() != holders {
		return fmt.Errorf("%d queues and %d sessions with entries are ranked as %d, %d and %d",
			queues, holders, b.queues.Len(), b.waits.Len(), b.holders.Len())
	}
	return errors.Join(b.queues.Check(), b.waits.Check(), b.holders.Check())
}
