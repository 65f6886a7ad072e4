package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
)

// A shard hosts other objects beside semaphores: coordination processes, the tracks of rollouts,
// and the trees of rate limits. The core of each kind is a package of its own. The hosted files do
// what every kind needs: they look objects up, link them to sessions, arm their timers, count their
// bytes, and save, restore and move them. A new kind is a row of hostedKinds and a hostedState.

// kindNumber is the place of a kind in hostedKinds, and in arrays by kind. Kinds are always taken
// in this order.
type kindNumber uint8

const (
	kindProcess kindNumber = 0
	kindTrack   kindNumber = 1
	kindLimit   kindNumber = 2
	kindCount              = 3
)

// hostedKind has the shard's functions and numbers of a kind. Snapshots and exports have its
// numbers, which are never reused.
type hostedKind struct {
	name      string              // for errors
	missing   *protocol.Error     // the answer to a read, or to an operator, when there is none of a name
	notFound  *protocol.Error     // the answer to a session's request then
	object    protocol.ObjectType // rises with the kind: lists are paged by it
	record    recordKind          // in a snapshot
	chunk     byte                // in an export
	chunkPart byte                // a part of a record that is longer than a chunk; 0: no record is
	deadline  deadlineKind        // of its timers
	bucket    func(node uint64, name []byte, buckets uint32) uint32
	validName func([]byte) bool
	decode    func(record []byte) (hostedState, error)
}

var (
	errNoTrack = protocol.Refuse(protocol.RefusalNoTrack, textNoTrack)
	errNoLimit = protocol.Refuse(protocol.RefusalNoLimit, textNoLimit)
)

var hostedKinds = [kindCount]hostedKind{
	kindProcess: {
		name: "process", missing: protocol.Refuse(protocol.RefusalNoProcess, textNoProcess),
		notFound: protocol.Refuse(protocol.RefusalNotMember, textNotMember+"; join first"),
		object:   protocol.ObjectProcess, record: recordProcess, chunk: chunkProcess, deadline: deadlineProcess,
		bucket: protocol.ProcessBucket, validName: validProcessName, decode: decodeProcess,
	},
	kindTrack: {
		name: "track", missing: errNoTrack, notFound: errNoTrack,
		object: protocol.ObjectTrack, record: recordTrack, chunk: chunkTrack,
		chunkPart: chunkTrackPart, deadline: deadlineTrack,
		bucket: protocol.Bucket, validName: validTrackName, decode: decodeTrack,
	},
	kindLimit: {
		name: "rate limit", missing: errNoLimit, notFound: errNoLimit,
		object: protocol.ObjectLimit, record: recordLimit, chunk: chunkLimit,
		chunkPart: chunkLimitPart, deadline: deadlineLimit,
		bucket: protocol.Bucket, validName: validLimitName, decode: decodeLimit,
	},
}

// hostedState is an object of a kind, as the shard uses it. Times are those of
// the object's bucket.
type hostedState interface {
	Append(record []byte) []byte // its whole state, as the kind's decode reads it
	Bytes() uint64               // that count against its node's quota
	Next() (at uint64, ok bool)  // when it has something to do by itself
	Check() error                // the invariant that does not hold, if any

	// sessions appends the sessions that take part in it, each once, in an order that follows from
	// the state.
	sessions(list []uint64) []uint64
	// part is what a session has in it: how many members or instances, and a label of the first.
	part(session uint64) (label string, count int)
	// size is about how many parts it has.
	size() int

	// highest is the highest of the numbers that it gave out to fence clients.
	highest() uint64
	// bumpCounters advances the numbers that it gives out to fence clients, each to what next gives
	// for it, see Machine.BumpCounters.
	bumpCounters(next func(uint64) uint64)

	// wake is called when Next has come.
	wake(*Machine, *hostedObject)
	// sessionEnded takes a session that has ended out of it.
	sessionEnded(m *Machine, x *hostedObject, session uint64)
	// requestDone follows the answer to a request: it emits what the request changed.
	requestDone(*Machine, *hostedObject)
}

// hostedObject is an object as a record of this shard.
//
// Invariant: it is among the holdings of exactly the sessions that take part in it. Invariant:
// between Applies its timer is scheduled one before what state.Next says, if that says anything.
type hostedObject struct {
	kind         kindNumber
	bucket       *bucket
	node         *node
	name         []byte // never changed in place
	state        hostedState
	revision     uint64 // log index of the last call that may have changed it
	timer        timer  // in the bucket's time
	snapMark     uint32
	chargedBytes uint64 // as counted by its node; 0 while it is not there
	called       bool   // in Machine.calledProcesses
	deleted      bool
}

func objectLess(a, b *hostedObject) bool { return bytes.Compare(a.name, b.name) < 0 }

func (h *hostedObject) key() (node uint64, name []byte) { return h.node.id, h.name }

func (h *hostedObject) timerRef() *timer { return &h.timer }

// deadlineKey says the node. Objects of one kind, node and bucket that are due together fire in
// order of name.
func (h *hostedObject) deadlineKey() (deadlineKind, uint64, uint32) {
	return hostedKinds[h.kind].deadline, h.node.id, h.bucket.number
}

// mayChange reports whether sessions may leave the object: a copy that is not active stays as it
// is, unless its node is gone.
func (h *hostedObject) mayChange() bool { return h.bucket.state == bucketActive || h.node.dropped }

// newObject makes the record of an object that this Apply adds. It is not linked yet.
func newObject(m *Machine, kind kindNumber, b *bucket, n *node, name []byte, state hostedState) *hostedObject {
	return &hostedObject{kind: kind, bucket: b, node: n, name: bytes.Clone(name),
		state: state, revision: m.applied, snapMark: m.snapMark}
}

// link puts an object into its bucket and node.
func (h *hostedObject) link(m *Machine) {
	objects := &h.bucket.objects[h.kind]
	if *objects == nil {
		*objects = make(map[string]*hostedObject)
	}
	(*objects)[string(m.nameKey(h.node.id, h.name))] = h
	h.node.objects[h.kind].Insert(h, objectLess)
	h.charge(h.quotaBytes())
}

// delete removes an object for good. The next one of the name begins above its numbers, so that what
// they fenced stays fenced.
func (h *hostedObject) delete(m *Machine) {
	h.bucket.orderCounter = max(h.bucket.orderCounter, h.state.highest())
	h.unlink(m)
}

// unlink takes an object out, with what its sessions know of it.
func (h *hostedObject) unlink(m *Machine) {
	m.touch(h)
	m.unschedule(h)
	for _, id := range h.state.sessions(nil) {
		if p := m.sessions.get(id); p != nil && p.removeHolding(m, h) && !p.ended {
			p.remoteIdle(m)
		}
	}
	delete(h.bucket.objects[h.kind], string(m.nameKey(h.node.id, h.name)))
	h.node.objects[h.kind].Remove(h, objectLess)
	h.charge(0)
	h.deleted = true
}

// charge counts the object's bytes at its node again; 0 while it is not there.
func (h *hostedObject) charge(bytes uint64) {
	h.node.bytes += bytes - h.chargedBytes // modulo 2^64
	h.chargedBytes = bytes
}

func (h *hostedObject) quotaBytes() uint64 {
	return objectBytes + uint64(len(h.name)) + h.state.Bytes()
}

// schedule schedules the timer: it is due when time is above it, and an object has something to do
// when time has reached Next.
func (h *hostedObject) schedule(m *Machine) {
	at, ok := h.state.Next()
	if !ok {
		m.unschedule(h)
		return
	}
	m.schedule(h, max(at, 1)-1)
}

// object finds an object. Errors: WRONG_SHARD; NOT_FOUND for the node or the object.
func (r reader) object(kind kindNumber, node uint64, name []byte) (*hostedObject, error) {
	b := r.m.activeObjectBucket(kind, node, name)
	if b == nil {
		return nil, wrongShard()
	}
	if _, err := r.node(node); err != nil {
		return nil, err
	}
	x := b.readObject(kind, node, name)
	if x == nil {
		return nil, hostedKinds[kind].missing
	}
	return x, nil
}

// objectPage is a request for a page of a node's objects.
type objectPage struct {
	node           uint64
	prefix, cursor []byte
	limit          uint32
}

// listObjects visits a page of a node's objects of one kind in the active buckets of this shard, in
// order of name. The cursor is the last name of the page before; next is set if there is another
// page. Errors: BAD_REQUEST, NOT_FOUND.
func (r reader) listObjects(kind kindNumber, req objectPage, next *[]byte, visit func(*hostedObject)) error {
	n, err := r.node(req.node)
	if err != nil {
		return err
	}
	l, err := newListing(req.prefix, req.cursor, req.limit)
	if err != nil {
		return err
	}
	n.objects[kind].Ascend(func(x *hostedObject) bool {
		return bytes.Compare(x.name, l.from) < 0
	}, func(x *hostedObject) bool {
		take, more := l.look(x.name, x.bucket, 48, next)
		if take {
			visit(x)
		}
		return more
	})
	return nil
}

// objectsFrom yields the objects of one kind that are active here, in order of node and name, from
// the one named on.
func (r reader) objectsFrom(kind kindNumber, first uint64, name []byte, yield func(*hostedObject) bool) {
	more := true
	r.m.nodeIndex.Ascend(func(n *node) bool { return n.id < first }, func(n *node) bool {
		if n.dropped {
			return true
		}
		before := func(x *hostedObject) bool { return n.id == first && bytes.Compare(x.name, name) < 0 }
		n.objects[kind].Ascend(before, func(x *hostedObject) bool {
			more = x.bucket.state != bucketActive || yield(x)
			return more
		})
		return more
	})
}
