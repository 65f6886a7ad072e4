package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
)

// bucketState says what a bucket's copy in this shard may do. Only an active one changes or answers
// anything. Numbers are in snapshots.
type bucketState uint8

const (
	bucketAbsent bucketState = 0
	bucketActive bucketState = 1
	// Copies of bucket moves: one that is frozen before it leaves, one that was imported and waits
	// for its activation, one whose import goes on, and one that is being removed.
	bucketFrozen    bucketState = 2
	bucketImported  bucketState = 3
	bucketImporting bucketState = 4
	bucketDropping  bucketState = 5
	bucketStates                = 6
)

// bucket is a slice of the key space of a tier. It is home to the sessions whose create id hashes
// to it, and holds the semaphores whose node and name hash to it.
type bucket struct {
	number    uint32
	state     bucketState
	epoch     uint64
	moveEpoch uint64 // epoch of the move a frozen copy is frozen for

	orderCounter   uint64 // last order id given. Invariant: never goes back, through deletion of semaphores and moves of the bucket.
	sessionCounter uint64 // counter of the last session id given

	semaphores hashSet[semaphore]                  // by hashName
	objects    [kindCount]map[string]*hostedObject // by kind, by semaphoreKey

	// A bucket has a time of its own, which stands still while it is not active. Deadlines of its
	// sessions, waiters and objects are in it, and move with it unchanged. It was timeBase at log
	// time logBase, and is timeBase while the bucket is not active. A bucket that never moved has
	// log time.
	timeBase, logBase uint64
	timers            deadlines // of its sessions, waiters and hosted objects
	timer             timer     // in Machine.deadlines, at the first of timers, while active
}

// bucketTime is the bucket's time now.
func (m *Machine) bucketTime(b *bucket) uint64 {
	if b.state != bucketActive {
		return b.timeBase
	}
	return b.timeAt(m.logTime)
}

// timeAt is the bucket's time at a log time. Before the activation it stood still.
func (b *bucket) timeAt(log uint64) uint64 {
	if log <= b.logBase {
		return b.timeBase
	}
	return addSaturated(b.timeBase, log-b.logBase)
}

// logTimeAt is the log time at which the bucket's time reaches at, if the bucket stays active.
func (b *bucket) logTimeAt(at uint64) uint64 {
	if at >= b.timeBase {
		return addSaturated(b.logBase, at-b.timeBase)
	}
	return b.logBase - min(b.logBase, b.timeBase-at)
}

func (b *bucket) timerRef() *timer { return &b.timer }

// deadlineKey is that of the first of the bucket's own deadlines: in Machine.deadlines a bucket
// stands for it.
func (b *bucket) deadlineKey() (kind deadlineKind, id uint64, number uint32) {
	if _, rec := b.timers.first(); rec != nil {
		return rec.deadlineKey()
	}
	return 0, 0, b.number
}

// schedule sets or moves a record's deadline, in its bucket's time.
func (m *Machine) schedule(rec scheduled, at uint64) {
	b := m.timersOf(rec)
	if b == nil {
		m.deadlines.schedule(rec, at)
		return
	}
	was := b.timers.head()
	b.timers.schedule(rec, at)
	if b.timers.head() != was {
		m.rescheduleBucket(b)
	}
}

// unschedule takes a record's deadline away, if it has one.
func (m *Machine) unschedule(rec scheduled) {
	b := m.timersOf(rec)
	if b == nil {
		m.deadlines.unschedule(rec)
		return
	}
	was := b.timers.head()
	b.timers.unschedule(rec)
	if b.timers.head() != was {
		m.rescheduleBucket(b)
	}
}

// rescheduleBucket keeps the bucket in the machine's deadlines at the first of its own.
func (m *Machine) rescheduleBucket(b *bucket) {
	at, rec := b.timers.first()
	if rec == nil || b.state != bucketActive {
		m.deadlines.unschedule(b)
		return
	}
	m.deadlines.schedule(b, b.logTimeAt(at))
}

// appendSemaphoreKey is the place of a semaphore, or a hosted object, in the order of its bucket:
// the node id as 8 bytes, then the name.
func appendSemaphoreKey(b []byte, node uint64, name []byte) []byte {
	b = append(b, byte(node>>56), byte(node>>48), byte(node>>40), byte(node>>32),
		byte(node>>24), byte(node>>16), byte(node>>8), byte(node))
	return append(b, name...)
}

// ensureBuckets makes the table of buckets with the first command that names any. It answers a
// command about another tier.
func (m *Machine) ensureBuckets(x *BucketsBody) bool {
	if len(m.buckets) == 0 {
		m.tier = x.Tier
		m.buckets = make([]bucket, x.Total)
		for i := range m.buckets {
			m.buckets[i].number = uint32(i)
		}
	}
	if m.tier != x.Tier || uint32(len(m.buckets)) != x.Total {
		m.reply(protocol.StatusBadRequest, textOtherTier)
		return false
	}
	return true
}

// applyBuckets activates empty buckets. A remote session whose home bucket becomes active here is
// unknown there, so it ends.
func (m *Machine) applyBuckets(c *rawCommand) {
	var x BucketsBody
	if !x.read(c.body) || x.Total == 0 {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	if !m.ensureBuckets(&x) {
		return
	}
	for i := x.First; i < x.First+x.Count; i++ {
		if b := &m.buckets[i]; b.state == bucketAbsent && b.epoch == 0 {
			b.state, b.epoch = bucketActive, max(x.Epoch, 1)
		}
	}
	m.copyCount = m.countCopies()
	m.endUnknownRemotes(x.First, x.Count)
	m.reply(protocol.StatusOK, "")
}

// lookup finds a semaphore. It changes nothing: reads run beside each other.
func (b *bucket) lookup(node uint64, name []byte) *semaphore {
	return b.semaphores.get(hashName(node, name),
		func(s *semaphore) bool { return s.node.id == node && bytes.Equal(s.name, name) })
}

// readObject is lookup for a hosted object.
func (b *bucket) readObject(kind kindNumber, node uint64, name []byte) *hostedObject {
	var key [8 + protocol.MaxNameLen]byte
	return b.objects[kind][string(appendSemaphoreKey(key[:0], node, name))]
}

// empty says that the copy has no semaphores and no hosted objects.
func (b *bucket) empty() bool {
	count := b.semaphores.n
	for _, objects := range b.objects {
		count += len(objects)
	}
	return count == 0
}
