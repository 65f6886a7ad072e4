package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
	"github.com/signalbox-dev/signalbox/shard/queue"
)

// semaphore is a counting semaphore.
//
// Invariant: used is the sum of its owners' counts, and is at most limit, but for a limit that was
// lowered below it. Invariant: every owner's order id is below every waiter's, but where tokens are
// late; without lanes the first waiter does not fit. Invariant: an ephemeral one has an owner or a
// waiter.
type semaphore struct {
	*semaphoreExtras // &noExtras for most

	bucket *bucket
	node   *node
	name   []byte // never changed in place; of a new record in the same piece of memory
	owners treap  // by order id

	limit    uint64
	used     uint64
	version  uint64 // of data. Invariant: never repeats for a name
	revision uint64 // log index of the last change, waiters included
	created  uint64 // wall clock
	serial   uint64
	counters counterSet

	ephemeral bool
	deleted   bool
	ringAt    uint16 // place in semaphoreTable.ring plus 1; 0: it is not there
	snapMark  uint32
}

// semaphoreExtras is the part of a semaphore's record that most semaphores of a large cluster do
// not need: they have no data, and never had a waiter.
type semaphoreExtras struct {
	waiters treap         // by order id
	data    []byte        // never changed in place
	rare    *rareExtras   // nil for most
	places  [places]int32 // in the rankings of its node
	stuck   bool          // the next waiter wants more than the limit: counted in node.stuck
}

// rareExtras is what hardly any semaphore has.
type rareExtras struct {
	queue           *queued                // nil: a plain one
	sessionCounters map[uint64]*counterSet // by session, in nodes with detailed counters
}

// noExtras is what every semaphore without extras has. It never changes: what changes extras calls
// ownExtras first.
var noExtras semaphoreExtras

// ownExtras makes the semaphore's extras its own, before the first change of them.
func (s *semaphore) ownExtras() *semaphoreExtras {
	if s.semaphoreExtras == &noExtras {
		s.semaphoreExtras = new(semaphoreExtras)
	}
	return s.semaphoreExtras
}

// ownRare makes the semaphore's rare extras its own.
func (s *semaphore) ownRare() *rareExtras {
	x := s.ownExtras()
	if x.rare == nil {
		x.rare = new(rareExtras)
	}
	return x.rare
}

// sessionCounters is nil unless the semaphore's node has detailed counters.
func (s *semaphore) sessionCounters() map[uint64]*counterSet {
	if s.rare == nil {
		return nil
	}
	return s.rare.sessionCounters
}

// queue is nil for most semaphores.
func (s *semaphore) queue() *queued {
	if s == nil || s.rare == nil {
		return nil
	}
	return s.rare.queue
}

// setQueue gives a semaphore a queue.
func (s *semaphore) setQueue(q *queue.Queue) { s.ownRare().queue = &queued{Queue: q, s: s} }

// ownQueue makes the semaphore's queue, if it has none.
func (s *semaphore) ownQueue() *queued {
	if s.queue() == nil {
		s.setQueue(queue.New(new(protocol.SemaphoreOptions), s.limit))
	}
	return s.rare.queue
}

// core is the queue, nil for a plain semaphore.
func (s *semaphore) core() *queue.Queue {
	if q := s.queue(); q != nil {
		return q.Queue
	}
	return nil
}

// newSemaphore makes a record with its name in one piece of memory: the collector visits each, and
// a new ephemeral one costs an allocation. The sizes fill what the allocator gives.
func newSemaphore(name []byte) (s *semaphore) {
	switch n := len(name); {
	case n <= 24:
		x := new(struct {
			semaphore
			text [24]byte
		})
		x.name, s = x.text[:n:n], &x.semaphore
	case n <= 40:
		x := new(struct {
			semaphore
			text [40]byte
		})
		x.name, s = x.text[:n:n], &x.semaphore
	case n <= 72:
		x := new(struct {
			semaphore
			text [72]byte
		})
		x.name, s = x.text[:n:n], &x.semaphore
	default:
		s = new(semaphore)
		s.name = make([]byte, n)
	}
	copy(s.name, name)
	s.semaphoreExtras = &noExtras
	return s
}

// setData replaces the data. It does not count its bytes.
func (s *semaphore) setData(data []byte) {
	if len(data)+len(s.data) > 0 {
		s.ownExtras().data = cloneOrNil(data)
	}
}

func semaphoreLess(a, b *semaphore) bool { return bytes.Compare(a.name, b.name) < 0 }

func (s *semaphore) key() (node uint64, name []byte) { return s.node.id, s.name }

func (s *semaphore) hash() uint64 { return container.HashName(s.node.id, s.name) }

// quotaBytes is the semaphore's size in its node's quota, without its entries.
func (s *semaphore) quotaBytes() uint64 {
	n := semaphoreBytes + uint64(len(s.name)+len(s.data))
	if s.rare != nil {
		n += s.core().OptionBytes(s.limit)
	}
	return n
}

func (s *semaphore) fits(count uint64) bool {
	return s.used <= s.limit && count <= s.limit-s.used
}

// isHandedOff reports whether s has one owner, and a caller that asks for it now has to wait.
func (s *semaphore) isHandedOff() bool {
	return s.owners.n == 1 && (s.waiters.n > 0 || !s.fits(1))
}

// entryOf is the session's entry on s, or nil. It searches the shorter list: the semaphore's
// entries, or the session's tree.
func (s *semaphore) entryOf(p *sessionRecord) *entry {
	if p.entries.n == 0 {
		return nil
	}
	if s.owners.n+s.waiters.n > 4 {
		if e := p.entries.seekName(s.name); e != nil && e.semaphore == s {
			return e
		}
		return nil
	}
	for e := s.owners.first; e != nil; e = next(e, byOrder) {
		if e.session == p {
			return e
		}
	}
	for e := s.waiters.first; e != nil; e = next(e, byOrder) {
		if e.session == p {
			return e
		}
	}
	return nil
}

// makeSemaphore adds one. The caller has checked that there is none, and the quota. options may be
// nil.
func (q *request) makeSemaphore(
	m *Machine, limit uint64, data []byte, ephemeral bool, options *protocol.SemaphoreOptions,
) *semaphore {
	m.serial++
	var s *semaphore
	if ephemeral {
		s = m.spares.newEphemeral(q.name)
	} else {
		s = newSemaphore(q.name)
	}
	s.bucket, s.node, s.limit, s.version, s.revision = q.bucket, q.node, limit, q.bucket.nextVersion(0), m.applied
	s.created, s.ephemeral, s.snapMark, s.serial = m.wall, ephemeral, m.snapMark, m.serial
	s.setData(data)
	if options != nil && !options.Plain() {
		s.setQueue(queue.New(options, limit))
	}
	s.link(m)
	m.emitChange(s, protocol.SemaphoreChange{Kind: protocol.ChangeCreated,
		Limit: limit, Ephemeral: ephemeral, Version: s.version, Data: s.data})
	return s
}

// link puts a semaphore into the table of names, and counts it in its node.
func (s *semaphore) link(m *Machine) {
	s.node.semaphoreCount++
	s.node.bytes += s.quotaBytes()
	m.semaphores.add(s)
	m.noteVersion(s.version)
}

// delete removes a semaphore for good. The next one of its name begins above its version, so that a
// version never names other data.
func (s *semaphore) delete(m *Machine) {
	s.bucket.versionFloor = max(s.bucket.versionFloor, s.version)
	s.unlink(m)
}

// unlink takes it out. It must have no entries.
func (s *semaphore) unlink(m *Machine) {
	m.touch(s)
	s.node.semaphoreCount--
	s.node.bytes -= s.quotaBytes()
	m.semaphores.remove(s)
	m.formerOwners.forget(s)
	s.deleted = true
}

// reapEphemeral deletes an ephemeral semaphore that has neither owner nor waiter.
func (s *semaphore) reapEphemeral(m *Machine) {
	if s.ephemeral && s.owners.n == 0 && s.waiters.n == 0 && !s.deleted && !s.node.dropped {
		s.delete(m)
		m.emitChange(s, protocol.SemaphoreChange{Kind: protocol.ChangeDeleted})
		if m.snapshot == nil && len(s.data) == 0 {
			m.spares.semaphores.put(s)
		}
	}
}

// cloneOrNil copies bytes that stay; empty is nil.
func cloneOrNil(b []byte) []byte { return append([]byte(nil), b...) }

func applyCreate(m *Machine, c *rawCommand) {
	x := &m.batch.create
	var q request
	if !m.decode(x, c.body) || !m.valid(x) || !q.enter(m, c, &x.Head, x.Name) {
		return
	}
	switch {
	case q.semaphore != nil && q.semaphore.ephemeral:
		q.refuse(m, outcomeIsEphemeral)
	case q.semaphore != nil:
		q.refuse(m, outcomeExists)
	case !m.roomForName(q.node):
		q.refuse(m, outcomeQuota)
	case !m.roomForBytes(q.node, semaphoreBytes+uint64(len(x.Name)+len(x.Data))+queue.OptionBytes(x.Options, x.Limit)):
		q.refuse(m, outcomeBytesQuota)
	default:
		s := q.makeSemaphore(m, x.Limit, x.Data, false, x.Options)
		q.finish(m, answer{value: s.version})
	}
}

func applyUpdate(m *Machine, c *rawCommand) {
	x := &m.batch.update
	var q request
	if !m.decode(x, c.body) || !m.valid(x) || !q.enter(m, c, &x.Head, x.Name) {
		return
	}
	s := q.semaphore
	switch {
	case s == nil:
		q.refuse(m, outcomeNoSemaphore)
		return
	case x.Expected != 0 && x.Expected != s.version:
		q.refuse(m, outcomeOtherVersion)
		return
	case !m.roomForBytes(q.node, growth(uint64(len(x.Data)), uint64(len(s.data)))):
		q.refuse(m, outcomeBytesQuota)
		return
	}
	if !bytes.Equal(s.data, x.Data) {
		m.touch(s)
		s.node.bytes += uint64(len(x.Data)) - uint64(len(s.data)) // modulo 2^64
		s.setData(x.Data)
		s.version = s.bucket.nextVersion(s.version)
		m.noteVersion(s.version)
		s.revision = m.applied
		m.emitChange(s, protocol.SemaphoreChange{Kind: protocol.ChangeData, Version: s.version, Data: s.data})
	}
	q.finish(m, answer{value: s.version})
}

func applyResize(m *Machine, c *rawCommand) {
	x := &m.batch.resize
	var q request
	if !m.decode(x, c.body) || !m.valid(x) || !q.enter(m, c, &x.Head, x.Name) {
		return
	}
	s := q.semaphore
	switch {
	case s == nil:
		q.refuse(m, outcomeNoSemaphore)
		return
	case s.ephemeral:
		q.refuse(m, outcomeUpdateFixed)
		return
	case x.Expected != 0 && x.Expected != s.version:
		q.refuse(m, outcomeOtherVersion)
		return
	}
	state := s.queue()
	if state != nil {
		if out := state.resizeRefusal(m, x.Limit); out != outcomeOK {
			q.refuse(m, out)
			return
		}
	}
	q.finish(m, answer{})
	if s.limit == x.Limit {
		return
	}
	m.touch(s)
	if state != nil {
		state.resize(m, x.Limit)
	}
	s.limit = x.Limit
	s.updateStuck()
	s.revision = m.applied
	m.emitChange(s, protocol.SemaphoreChange{Kind: protocol.ChangeLimit, Limit: s.limit})
	s.promote(m)
	m.batch.checkHandOff(s)
}

// applyDelete removes a persistent semaphore. With force it aborts the waiters' acquires, then
// reports the owners' leases as lost, all in this Apply: its cost grows with their number. What is
// left of sessions that have ended goes too, as it would have without this.
func applyDelete(m *Machine, c *rawCommand) {
	x := &m.batch.delete
	var q request
	if !m.decode(x, c.body) || !m.valid(x) || !q.enter(m, c, &x.Head, x.Name) {
		return
	}
	s := q.semaphore
	switch {
	case s == nil:
		q.refuse(m, outcomeNoSemaphore)
		return
	case s.ephemeral:
		q.refuse(m, outcomeIsEphemeral)
		return
	case x.Expected != 0 && x.Expected != s.version:
		q.refuse(m, outcomeOtherVersion)
		return
	case s.owners.n+s.waiters.n > 0 && !x.Force:
		q.refuse(m, outcomeInUse)
		return
	}
	q.finish(m, answer{})
	for e := s.waiters.first; e != nil; e = s.waiters.first {
		switch p := e.session; {
		case !p.ended:
			m.emitResult(e, protocol.StatusAborted, 0, textForced)
			e.rememberOutcome(m, outcomeAborted, 0)
		case p.home == nil:
			m.emitResult(e, protocol.StatusSessionExpired, 0, endText(p))
		}
		e.remove(m, false, protocol.HoldForced)
	}
	for e := s.owners.first; e != nil; e = s.owners.first {
		if p := e.session; !p.ended { // no event follows the end of a session
			m.batch.out.List = append(m.batch.out.List, Event{
				Kind: EventLeaseLost, Session: p.id, Seq: e.seq, Epoch: p.epoch, Node: s.node.id,
				Name: s.name, OrderID: e.orderID, Text: textForced,
			})
			e.rememberOutcome(m, outcomeOK, protocol.Acquired)
			m.lost[LostDeleted]++
		}
		e.remove(m, false, protocol.HoldForced)
	}
	s.delete(m)
	m.emitChange(s, protocol.SemaphoreChange{Kind: protocol.ChangeDeleted})
}
