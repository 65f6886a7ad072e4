package shard

import (
	"encoding/binary"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// bucketState is the state of a bucket's copy in this shard. Only an active one changes or answers
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

// isPartial reports whether a copy may lack what belongs to its semaphores: it is coming in, or going.
func (s bucketState) isPartial() bool { return s == bucketImporting || s == bucketDropping }

// bucket is a slice of the key space of a tier. It is home to the sessions whose create id hashes
// to it, and holds the semaphores whose node and name hash to it.
type bucket struct {
	number      uint32
	state       bucketState
	newestCount uint16 // how many of its semaphores are in semaphoreTable.ring
	epoch       uint64
	moveEpoch   uint64 // epoch of the move a frozen copy is frozen for

	// orderCounter is the last order id given, or the highest number that a deleted object gave out
	// to fence clients where that is higher, or the shard's token floor. versionFloor is the highest
	// version of data that a deleted semaphore had, or the token floor. Invariant: neither goes back,
	// through deletion of semaphores and moves of the bucket, and they stay in the shard when the copy
	// has left.
	orderCounter   uint64
	versionFloor   uint64
	sessionCounter uint64 // counter of the last session id given

	semaphores container.HashSet[semaphore]        // by hashName, without those in that ring
	objects    [kindCount]map[string]*hostedObject // by kind, by semaphoreKey

	// A bucket has a time of its own, which stands still while it is not active. Deadlines of its
	// sessions, waiters and objects are in it, and move with it unchanged. It was timeBase at log
	// time logBase, and is timeBase while the bucket is not active. A bucket that never moved has
	// log time.
	timeBase, logBase uint64
	timers            deadlines // of its sessions, waiters and hosted objects
	timer             timer     // in clock.deadlines, at the first of timers, while active
}

// raiseCounters has the bucket give out order ids and versions above floor.
func (b *bucket) raiseCounters(floor uint64) {
	b.orderCounter, b.versionFloor = max(b.orderCounter, floor), max(b.versionFloor, floor)
}

// nextVersion returns the version that follows this one of a semaphore's data, 0 of a new semaphore.
// No semaphore of its name had it.
func (b *bucket) nextVersion(version uint64) uint64 { return max(version, b.versionFloor) + 1 }

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

// deadlineKey is that of the first of the bucket's own deadlines: in clock.deadlines a bucket
// stands for it.
func (b *bucket) deadlineKey() (kind deadlineKind, id uint64, number uint32) {
	if _, rec := b.timers.first(); rec != nil {
		return rec.deadlineKey()
	}
	return 0, 0, b.number
}

// appendSemaphoreKey is the place of a semaphore, or a hosted object, in the order of its bucket:
// the node id as 8 bytes, then the name.
func appendSemaphoreKey(b []byte, node uint64, name []byte) []byte {
	return append(binary.BigEndian.AppendUint64(b, node), name...)
}

// requireTier reports whether the buckets are of this shard's tier; else the command is answered.
func requireTier(m *Machine, x *BucketsBody) bool {
	ok := m.bucketTable.ensure(x)
	if !ok {
		m.reply(protocol.StatusBadRequest, textOtherTier)
	}
	return ok
}

// applyBuckets activates empty buckets. A remote session whose home bucket becomes active here is
// unknown there, so it ends.
func applyBuckets(m *Machine, c *rawCommand) {
	var x BucketsBody
	if !x.read(c.body) || x.Total == 0 {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	if !requireTier(m, &x) {
		return
	}
	for i := x.First; i < x.First+x.Count; i++ {
		if b := &m.buckets[i]; b.state == bucketAbsent && b.epoch == 0 {
			b.state, b.epoch = bucketActive, max(x.Epoch, 1)
			b.raiseCounters(m.tokenFloor)
		}
	}
	m.copyCount = m.countCopies()
	endUnknownRemotes(m, x.First, x.Count)
	m.reply(protocol.StatusOK, "")
}

// object finds a hosted object in an Apply, which has a buffer for the key.
func (b *bucket) object(m *Machine, kind kindNumber, node uint64, name []byte) *hostedObject {
	return b.objects[kind][string(m.nameKey(node, name))]
}

// readObject is object for a read: reads run beside each other.
func (b *bucket) readObject(kind kindNumber, node uint64, name []byte) *hostedObject {
	var key [8 + protocol.MaxNameLen]byte
	return b.objects[kind][string(appendSemaphoreKey(key[:0], node, name))]
}

// empty reports whether the copy has no semaphores and no hosted objects.
func (b *bucket) empty() bool {
	count := b.semaphores.Len() + int(b.newestCount)
	for _, objects := range b.objects {
		count += len(objects)
	}
	return count == 0
}
