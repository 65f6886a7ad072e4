package shard

import "slices"

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
