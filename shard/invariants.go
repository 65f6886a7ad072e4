package shard

import (
	"errors"
	"fmt"
	"slices"
)

// Check walks the whole state and says which invariant of this package's DESIGN.md does not hold,
// if any. It is for tests and for builds with the invariants tag.
func (m *Machine) Check() error {
	entries, places := 0, 0
	var err error
	fail := func(format string, args ...any) {
		if err == nil {
			err = fmt.Errorf(format, args...)
		}
	}
	for s := range m.semaphores.all(m.buckets) {
		entries += s.owners.n + s.waiters.n
		if e := checkSemaphore(m, s); e != nil {
			fail("semaphore %q of node %d: %w", s.name, s.node.id, e)
		}
	}
	for i := range m.buckets {
		for kind, objects := range m.buckets[i].objects {
			for _, x := range objects {
				places += len(x.state.sessions(nil))
				if e := checkObject(m, x); e != nil {
					fail("%s %q of node %d: %w", hostedKinds[kind].name, x.name, x.node.id, e)
				}
			}
		}
		if m.buckets[i].state == bucketAbsent && !m.buckets[i].empty() {
			fail("bucket %d is absent and has semaphores or hosted objects", i)
		}
	}
	if u := &unused; u.low != 1 || u.answers.len()+u.answers.head != 0 ||
		u.entries != (treap{}) || u.holdings != nil ||
		u.waits != 0 || u.place != 0 || u.chargedAnswers != 0 {
		fail("what sessions without a request have was changed")
	}
	if x := &noExtras; x.waiters != (treap{}) || x.data != nil || x.rare != nil ||
		x.places[placeQueue] != 0 || x.places[placeWait] != 0 || x.stuck {
		fail("what semaphores without extras have was changed")
	}
	held := 0
	for p := range m.sessions.All() {
		held += p.entries.n
		places -= p.references() - p.entries.n
		if e := checkSessionRecord(m, p); e != nil {
			fail("session %d: %w", p.id, e)
		}
	}
	if held != entries {
		fail("semaphores have %d entries, sessions %d", entries, held)
	}
	if places != 0 {
		fail("hosted objects have %d places more than sessions know of", places)
	}
	if e := m.deadlines.check(); e != nil {
		fail("%w", e)
	}
	for i := range m.buckets {
		b := &m.buckets[i]
		if e := b.timers.check(); e != nil {
			fail("bucket %d: %w", i, e)
		}
		at, rec := b.timers.first()
		if (rec != nil && b.state == bucketActive) != (b.timer.pos != 0) ||
			b.timer.pos != 0 && b.timer.at != b.logTimeAt(at) {
			fail("bucket %d: its first deadline is %d, and it is scheduled at %d", i, at, b.timer.at)
		}
	}
	if e := m.semaphores.check(m); e != nil {
		fail("%w", e)
	}
	counted := m.recount()
	m.nodeIndex.All(func(n *node) bool {
		if u := counted[n]; u.bytes != n.bytes || u.waiters != n.waiters {
			fail("node %d has %d bytes and %d waiters, its usage says %d and %d",
				n.id, u.bytes, u.waiters, n.bytes, n.waiters)
		} else if u.silent != n.silent {
			fail("node %d has %d silent owners, its usage says %d", n.id, u.silent, n.silent)
		} else if u.stuck != n.stuck {
			fail("node %d has %d queues that cannot move, its usage says %d", n.id, u.stuck, n.stuck)
		}
		if e := n.busiest.check(n, m); e != nil {
			fail("node %d: %w", n.id, e)
		}
		named := 0
		var last *semaphore
		m.semaphores.names(n, nil, func(s *semaphore) bool {
			if last != nil && !semaphoreLess(last, s) {
				fail("names %q and %q of node %d are out of order", last.name, s.name, n.id)
			}
			last = s
			named++
			return true
		})
		if named != n.semaphoreCount {
			fail("node %d has %d semaphores, its index %d", n.id, n.semaphoreCount, named)
		}
		return true
	})
	return err
}

func (d *deadlines) check() error {
	for i := range d.heap.Len() {
		if s := d.heap.At(i); s.Item.timerRef().at != s.Key {
			return fmt.Errorf("deadline %d is out of place", i)
		}
	}
	return d.heap.Check()
}

// recount is the usage as it is counted from all records; maps are walked, and sums do not depend
// on the order.
func (m *Machine) recount() map[*node]usage {
	all := make(map[*node]usage)
	add := func(n *node, bytes, waiters uint64) {
		u := all[n]
		u.bytes += bytes
		u.waiters += waiters
		all[n] = u
	}
	for s := range m.semaphores.all(m.buckets) {
		add(s.node, s.quotaBytes(), 0)
		for _, t := range []*treap{&s.owners, &s.waiters} {
			for e := t.first; e != nil; e = next(e, byOrder) {
				add(s.node, e.quotaBytes(), 0)
				if !e.waiting && e.grantOf().Silent() {
					u := all[s.node]
					u.silent++
					all[s.node] = u
				}
			}
		}
		add(s.node, 0, uint64(s.waiters.n))
		u := all[s.node]
		u.entries += uint64(s.waiters.n + s.owners.n)
		all[s.node] = u
		if s.cannotMove() {
			u := all[s.node]
			u.stuck++
			all[s.node] = u
		}
	}
	for i := range m.buckets {
		for _, objects := range m.buckets[i].objects {
			for _, x := range objects {
				add(x.node, x.quotaBytes(), 0)
			}
		}
	}
	for p := range m.sessions.All() {
		if p.home != nil && !p.ended {
			add(p.node, sessionBytes+uint64(len(p.description)), 0)
		}
		if n := p.chargeableAnswers(); n > 0 {
			add(p.node, answerBytes*uint64(n), 0)
		}
	}
	return all
}

func checkSemaphore(m *Machine, s *semaphore) error {
	used, last := uint64(0), uint64(0)
	n := 0
	seen := make(map[uint64]bool)
	for _, t := range []*treap{&s.owners, &s.waiters} {
		count := 0
		if s.core().Late() {
			last = 0
		}
		for e := t.first; e != nil; e = next(e, byOrder) {
			count++
			switch {
			case e.orderID <= last || e.orderID > s.bucket.orderCounter:
				return fmt.Errorf("order id %d is out of order", e.orderID)
			case e.count == 0:
				return fmt.Errorf("entry %d has no units", e.orderID)
			case e.waiting != (t == &s.waiters):
				return fmt.Errorf("entry %d does not know where it is", e.orderID)
			case e.semaphore != s || seen[e.session.id] || m.sessions.get(e.session.id) != e.session:
				return fmt.Errorf("entry %d of session %d is not in one place", e.orderID, e.session.id)
			case !e.waiting && !boundHolds(e):
				return fmt.Errorf("owner %d has the timer %d, not of its bound", e.orderID, e.timer.at)
			}
			last = e.orderID
			seen[e.session.id] = true
			if !e.waiting {
				if used+e.count < used {
					return errors.New("the counts of its owners add up to more than a number holds")
				}
				used += e.count
			}
		}
		if count != t.n {
			return fmt.Errorf("list of %d entries says it has %d", count, t.n)
		}
		n += count
	}
	head := s.waiters.first
	switch {
	case used != s.used:
		return fmt.Errorf("used is %d, its owners have %d", s.used, used)
	case head != nil && s.bucket.state == bucketActive && s.fits(head.count) &&
		!m.waiterEnded(head) && !s.node.dropped && !s.queue().laned():
		return fmt.Errorf("head %d fits and waits", head.orderID)
	case s.ephemeral && n == 0 && !s.node.dropped && !s.bucket.state.isPartial():
		return fmt.Errorf("it is ephemeral and empty")
	case m.semaphores.lookup(s.bucket, s.node.id, s.name) != s:
		return errors.New("it is not found by its name")
	case s.deleted:
		return fmt.Errorf("it is deleted and still there")
	}
	if q := s.queue(); q != nil {
		return q.check(m)
	}
	return nil
}

func checkSessionRecord(m *Machine, p *sessionRecord) error {
	count := 0
	var last *entry
	for e := p.entries.first; e != nil; e = next(e, byName) {
		count++
		if e.session != p || last != nil && !entryLess(last, e, byName) {
			return fmt.Errorf("entry on %q is out of place", e.semaphore.name)
		}
		last = e
	}
	_, hidden := m.Sessions().Home(p.id)
	switch {
	case m.sessions.get(p.id) != p:
		return errors.New("it is not found by its id")
	case count != p.entries.n:
		return fmt.Errorf("it holds %d entries and says %d", count, p.entries.n)
	case p.ended && (!slices.Contains(m.ending, p) && !slices.Contains(m.orphaned, p) || p.timer.pos != 0 || hidden):
		return fmt.Errorf("it has ended and is in no list of ended records")
	case !p.ended && p.home != nil && m.byCreateID.get(p.home.createID) != p.home:
		return fmt.Errorf("its create id is another's")
	case !p.ended && p.home != nil && p.home.attached == (p.timer.pos != 0):
		return fmt.Errorf("attached %v, timer %d", p.home.attached, p.timer.pos)
	case !p.ended && p.home == nil && p.timer.pos == 0 && !p.hasReferences():
		return fmt.Errorf("idle remote session stays for ever")
	}
	if e := checkHoldings(m, p); e != nil {
		return e
	}
	for i, a := range p.answers.list[p.answers.head:] {
		if a.seq < p.low || i > 0 && a.seq <= p.answers.list[p.answers.head+i-1].seq {
			return fmt.Errorf("answer to %d is out of order", a.seq)
		}
	}
	return nil
}

// mustHold is called after each Apply in builds with the invariants tag. A large state is looked at
// now and then only.
func (m *Machine) mustHold() {
	if m.sessions.Len() > 1_000 && m.applied%64 != 0 {
		return
	}
	if err := m.Check(); err != nil {
		panic("shard: invariant broken at index " + fmt.Sprint(m.applied) + ": " + err.Error())
	}
}
