package shard

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Times measures what happened in one coordination node since this machine was made or restored:
// how long acquires waited and leases were held, in log time. Like counters they serve the metrics
// alone: they are not part of the state, and in no snapshot.
type Times struct {
	Waits Durations            // each acquire that ended, 0 for one that was granted at once
	Holds Durations            // each lease that ended
	Ended [waitOutcomes]uint64 // queued acquires that ended, by WaitOutcome
}

// WaitOutcome is how a queued acquire ended.
type WaitOutcome uint8

// The outcomes.
const (
	WaitGranted  WaitOutcome = iota
	WaitTimedOut             // its timeout passed
	WaitAborted              // its session ended, released or replaced it, or the semaphore was deleted

	waitOutcomes = iota
)

// LossCause is why a lease ended that its owner did not give back.
type LossCause uint8

// The causes. Of a session whose home is another shard it is only known that it ended.
const (
	LostExpired LossCause = iota
	LostKilled
	LostNodeDropped
	LostForceReleased
	LostDeleted
	LostSessionEnded
	LostMaxHold
	LostPreempted

	lossCauses = iota
)

// timeBounds are the upper bounds of the buckets of Durations, in ms. One bucket more is for what
// is longer.
var timeBounds = [...]uint64{0, 1, 5, 10, 50, 100, 500, 1_000, 5_000,
	10_000, 30_000, 60_000, 300_000, 1_800_000, 3_600_000}

// TimeBounds are the upper bounds of the buckets of Durations, in ms.
func TimeBounds() []uint64 { return timeBounds[:] }

// Durations counts durations by size.
type Durations struct {
	Counts [len(timeBounds) + 1]uint64
	Sum    uint64 // ms
}

func (d *Durations) add(ms uint64) {
	i := 0
	for i < len(timeBounds) && ms > timeBounds[i] { // most are short
		i++
	}
	d.Counts[i]++
	d.Sum += ms
}

// LevelWaits are the waits of Times by the level of the acquire, of semaphores whose policy is
// priority.
type LevelWaits [protocol.MaxPriority + 1]Durations

// measure is where a node's times are counted.
func (n *node) measure() *Times {
	if n.times == nil {
		n.times = new(Times)
	}
	return n.times
}

// elapsed is how long an entry has waited, or has been held, in ms of log time. Of an entry that
// was restored, or moved here, only the wall clock of its beginning is known.
func (c *clock) elapsed(e *entry) uint64 {
	if e.began != 0 {
		return c.logTime - min(e.began, c.logTime)
	}
	return c.wall - min(e.since, c.wall)
}

// waited counts the wait of an acquire, and returns where.
func (e *entry) waited(ms uint64) *Times {
	n := e.semaphore.node
	t := n.measure()
	t.Waits.add(ms)
	if q := e.semaphore.queue(); q != nil && q.Policy() == protocol.PolicyPriority {
		if n.levelWaits == nil {
			n.levelWaits = new(LevelWaits)
		}
		level, _ := q.level(e)
		n.levelWaits[level].add(ms)
	}
	return t
}

// waitEnded measures the wait of a queued acquire that ends now. The entry is in the queue still.
func (e *entry) waitEnded(m *Machine, outcome WaitOutcome) {
	waited := m.elapsed(e)
	e.waited(waited).Ended[outcome]++
	if slow := e.semaphore.node.config.SlowWait; slow != 0 && waited > slow {
		emitSlowWait(m, e, waited, outcome)
	}
}

// holdEnded measures the hold of a lease that ends now.
func (e *entry) holdEnded(m *Machine) {
	t, p := e.semaphore.node.measure(), e.session
	t.Holds.add(m.elapsed(e))
	if p.ended {
		if cause, lost := lossCause(p); lost {
			m.lost[cause]++
		}
	}
	if e.semaphore.node.config.SlowWait != 0 && e.semaphore.waiters.n > 0 {
		m.formerOwners.keep(e.semaphore, slowOwner(m, e), m.logTime)
	}
}

// lossCause is why an ended session lost its leases; false: it stopped at its client's wish.
func lossCause(p *sessionRecord) (LossCause, bool) {
	switch {
	case p.node.dropped:
		return LostNodeDropped, true
	case p.endReason == protocol.EndExpired:
		return LostExpired, true
	case p.endReason == protocol.EndKilled:
		return LostKilled, true
	case p.endReason == protocol.EndNodeDropped:
		return LostNodeDropped, true
	case p.endReason == protocol.EndStopped:
		return 0, false
	}
	return LostSessionEnded, true
}

// counterSet counts what happened on a semaphore, or to one owner session of it, since this machine
// was made or restored. Counters serve the metrics page alone: they are not part of the state, and
// in no snapshot.
type counterSet struct{ acquires, waits, releases uint64 }

type counterKind uint8

const (
	countAcquire counterKind = iota
	countWait
	countRelease
)

func (t *counterSet) add(c counterKind) {
	switch c {
	case countAcquire:
		t.acquires++
	case countWait:
		t.waits++
	case countRelease:
		t.releases++
	}
}

// MaxSessionCounters bounds the owner sessions that are counted apart for one semaphore.
const MaxSessionCounters = 1_000

// countEvent counts what happened to the entry of a session.
func (s *semaphore) countEvent(session uint64, c counterKind) {
	s.counters.add(c)
	if s.node.config.CountersMode != protocol.CountersDetailed {
		if s.rare != nil {
			s.rare.sessionCounters = nil
		}
		return
	}
	t := s.sessionCounters()[session]
	if t == nil {
		r := s.ownRare()
		if len(r.sessionCounters) >= MaxSessionCounters {
			return
		}
		if r.sessionCounters == nil {
			r.sessionCounters = make(map[uint64]*counterSet)
		}
		t = new(counterSet)
		r.sessionCounters[session] = t
	}
	t.add(c)
}

// SlowWait is a wait that ended and lasted longer than its node's option slow-wait. It is for the
// log of the leader's instance. It is not an event: the former owners are not part of the
// state, and a machine that was restored knows less of them.
type SlowWait struct {
	Node        uint64
	Name        []byte
	Session     uint64
	OrderID     uint64
	Count       uint64 // units that were waited for
	Priority    uint8  // the level plus 1; 0: the semaphore has neither a policy nor slots, and no Key
	Key         string
	Description string // of the session
	Waited      uint64 // ms of log time
	Outcome     WaitOutcome
	Owners      []SlowOwner // that held meanwhile, the oldest first; at most maxSlowOwners
	MoreOwners  int         // that held meanwhile, and are not in Owners
}

// SlowOwner is a lease that was held while another session waited.
type SlowOwner struct {
	Session     uint64
	OrderID     uint64
	Description string
	Held        uint64 // ms of log time, until it ended or the wait did
}

const (
	// maxSlowOwners bounds the owners that a slow wait names.
	maxSlowOwners = 8
	// maxSlowWaits bounds the slow waits of one Apply: a deleted semaphore may have a million
	// waiters.
	maxSlowWaits = 64
)

// formerOwners are the leases of a semaphore that ended while somebody waited. They are kept in
// nodes with slow-wait, until the queue is empty.
type formerOwners struct {
	list []formerOwner // the last maxSlowOwners
	more int           // before them
}

type formerOwner struct {
	SlowOwner
	ended uint64 // log time
}

// formerOwnerTable has them by semaphore; nil without any.
type formerOwnerTable map[*semaphore]*formerOwners

// keep remembers a lease that ended at this log time.
func (t *formerOwnerTable) keep(s *semaphore, o SlowOwner, ended uint64) {
	if *t == nil {
		*t = make(formerOwnerTable)
	}
	f := (*t)[s]
	if f == nil {
		f = new(formerOwners)
		(*t)[s] = f
	}
	if len(f.list) == maxSlowOwners {
		f.list = slices.Delete(f.list, 0, 1)
		f.more++
	}
	f.list = append(f.list, formerOwner{o, ended})
}

// forget is called when a queue becomes empty, or its semaphore goes.
func (t formerOwnerTable) forget(s *semaphore) {
	if len(t) > 0 {
		delete(t, s)
	}
}

func slowOwner(m *Machine, e *entry) SlowOwner {
	return SlowOwner{Session: e.session.id, OrderID: e.orderID,
		Description: e.session.description, Held: m.elapsed(e)}
}

// emitSlowWait reports a slow wait that ends now.
func emitSlowWait(m *Machine, e *entry, waited uint64, outcome WaitOutcome) {
	out := m.batch.out
	if len(out.SlowWaits) >= maxSlowWaits {
		out.MoreSlowWaits++
		return
	}
	s := e.semaphore
	w := SlowWait{
		Node: s.node.id, Name: s.name, Session: e.session.id, OrderID: e.orderID,
		Count: e.count, Description: e.session.description,
		Waited: waited, Outcome: outcome,
	}
	if q := s.queue(); q.laned() {
		w.Priority, w.Key = q.level(e)
		w.Priority++
	}
	if f := m.formerOwners[s]; f != nil {
		w.MoreOwners = f.more
		for i := range f.list {
			if m.logTime-min(f.list[i].ended, m.logTime) <= waited {
				w.Owners = append(w.Owners, f.list[i].SlowOwner)
			}
		}
	}
	for i, o := 0, s.owners.first; o != nil; i, o = i+1, next(o, byOrder) {
		if len(w.Owners) == maxSlowOwners {
			w.MoreOwners += s.owners.n - i
			break
		}
		if o != e && m.elapsed(o) > 0 { // one that was granted together with it kept nobody waiting
			w.Owners = append(w.Owners, slowOwner(m, o))
		}
	}
	out.SlowWaits = append(out.SlowWaits, w)
}
