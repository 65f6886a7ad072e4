package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// Snapshot is the state of a machine at the moment of BeginSnapshot, being written while the
// machine goes on.
//
// The writer walks over the records in steps. A record that is about to change, or to go, before
// the walk reached it is set aside first, in its old form; a later record is not part of it.
// Each record carries the mark of the newest snapshot that has it or must not have it, so that none
// is written twice. The queue of a semaphore is many records, so no single change sets much aside.
//
// Layout: snapshotMagic, the machine's format version in a byte, then chunks of at most chunkBytes:
// length and CRC-32C, 4 bytes each, big-endian, then bytes of the list of records, which chunks cut
// anywhere. The last record says how many there were and what their digest is.
type Snapshot struct {
	m        *Machine // nil once it is over
	format   uint8
	snapMark uint32
	busy     bool // another one was being written when this one began

	stepRecords int

	buf, spare []byte // records that wait for the writer; changed under the lock only
	records    uint64
	sum        uint64 // digest of the records so far

	buckets        []bucket
	newest         []*semaphore
	ending         []*sessionRecord
	endedCreateIDs expiringRange
	endedRemotes   expiringRange

	stage      stage
	node       uint64     // the walk is at this node
	nodeSaved  bool       // its own record was looked at
	id         uint64     // behind this session or remote session
	name       []byte     // from this name on
	kind       kindNumber // of the hosted objects the walk is at
	semaphore  *semaphore
	afterOrder uint64 // behind this entry of sem
	inQueue    bool   // among its waiters
}

// expiringRange is a range of a retained queue; the numbers below next are written.
type expiringRange struct{ next, end uint64 }

type stage uint8

const (
	stageBuckets stage = iota
	stageNewest
	stageNodes
	stageHomeSessions
	stageRemoteSessions
	stageSemaphores
	stageObjects
	stageEnding
	stageEndedCreateIDs
	stageEndedRemotes
	stageDone
)

const (
	snapshotMagic = "sbshard" // a byte with the format version follows
	introLen      = len(snapshotMagic) + 1
	chunkBytes    = 256 << 10
	stepRecords   = 500       // records looked at while the machine waits
	stepBytes     = 256 << 10 // about; one record more at most
)

var errBusy = errors.New("shard: another snapshot of this shard is being written; begin one when it is done")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BeginSnapshot fixes the state as it is now, at a small cost. The caller keeps Apply away
// meanwhile, and calls WriteTo or Close soon: until then every change costs a copy. One snapshot
// can be under way at a time; WriteTo of a second one fails.
func (m *Machine) BeginSnapshot() *Snapshot {
	if m.snapshot != nil {
		return &Snapshot{busy: true}
	}
	m.snapMark++
	s := &Snapshot{m: m, format: m.format, snapMark: m.snapMark, stepRecords: stepRecords,
		ending: slices.Concat(m.ending, m.orphaned)}
	s.buf = appendHeader(nil, m, &s.sum)
	s.records = 1
	s.buckets = slices.Clone(m.buckets)
	for i := range s.buckets {
		b := &s.buckets[i]
		b.semaphores, b.objects, b.timers = container.HashSet[semaphore]{}, [kindCount]map[string]*hostedObject{},
			deadlines{}
	}
	s.newest = slices.Collect(m.semaphores.allNewest())
	s.endedCreateIDs = expiringRange{m.endedCreateIDs.Base(), m.endedCreateIDs.End()}
	s.endedRemotes = expiringRange{m.endedRemotes.Base(), m.endedRemotes.End()}
	m.snapshot = s
	return s
}

// Busy reports whether another snapshot was being written when this one began. Such a one is empty.
func (s *Snapshot) Busy() bool { return s.busy }

// WriteTo writes the snapshot. It takes l, which must keep Apply away, for short steps; other reads
// may go on, and w is written to without it. When it returns, with an error or without, the
// snapshot is over.
func (s *Snapshot) WriteTo(w io.Writer, l sync.Locker) error {
	if s.busy {
		return errBusy
	}
	if _, err := w.Write(snapshotIntro(s.format)); err != nil {
		l.Lock()
		s.Close()
		l.Unlock()
		return err
	}
	for more := true; more; {
		l.Lock()
		if s.m == nil {
			l.Unlock()
			return errors.New("shard: snapshot was closed; begin another one")
		}
		more = s.step()
		full := s.buf
		s.buf, s.spare = s.spare[:0], nil
		if !more {
			full = s.appendEnd(full)
			s.Close()
		}
		l.Unlock()
		err := writeChunks(w, full)
		if err != nil {
			l.Lock()
			s.Close()
			l.Unlock()
			return err
		}
		if cap(full) <= 4*stepBytes {
			s.spare = full
		}
	}
	return nil
}

// Close ends a snapshot; Apply must be kept away. It does nothing after WriteTo has returned.
func (s *Snapshot) Close() {
	if s.m != nil && s.m.snapshot == s {
		s.m.snapshot = nil
	}
	s.m = nil
	s.buckets, s.newest, s.ending, s.semaphore = nil, nil, nil, nil
}

// snapshotIntro returns the beginning of a snapshot of this format version.
func snapshotIntro(format uint8) []byte { return append([]byte(snapshotMagic), format) }

func writeChunks(w io.Writer, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), chunkBytes)
		var head [8]byte
		binary.BigEndian.PutUint32(head[:], uint32(n))
		binary.BigEndian.PutUint32(head[4:], crc32.Checksum(b[:n], castagnoli))
		if _, err := w.Write(head[:]); err != nil {
			return err
		}
		if _, err := w.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (s *Snapshot) appendEnd(b []byte) []byte {
	start := len(b)
	b = varint.Append(b, s.records, s.sum)
	var none uint64
	return closeRecord(b, start, 0, recordEnd, 0, &none)
}

// savedRecord is a record with a mark of its own.
type savedRecord interface {
	snapshotMark() *uint32
	appendRecord(b []byte, sum *uint64) []byte
}

// touch comes before every change of a record: a snapshot that needs it sets it aside.
func (m *Machine) touch(x savedRecord) {
	if m.snapshot != nil {
		m.snapshot.save(x)
	}
}

func (s *Snapshot) save(x savedRecord) {
	if mark := x.snapshotMark(); *mark != s.snapMark {
		*mark = s.snapMark
		s.records++
		s.buf = x.appendRecord(s.buf, &s.sum)
	}
}

// keepEndedCreateID and keepEndedRemote save a key that goes before the walk has reached it.
func (s *Snapshot) keepEndedCreateID(number uint64, k container.ExpiringKey[[protocol.KeyLen]byte]) {
	if number >= s.endedCreateIDs.next && number < s.endedCreateIDs.end {
		s.saveEndedCreateID(number, k)
	}
}

func (s *Snapshot) keepEndedRemote(number uint64, k container.ExpiringKey[uint64]) {
	if number >= s.endedRemotes.next && number < s.endedRemotes.end {
		s.saveEndedRemote(number, k)
	}
}

func (s *Snapshot) saveEndedCreateID(number uint64, k container.ExpiringKey[[protocol.KeyLen]byte]) {
	s.records++
	s.buf = appendEndedCreateID(s.buf, k, number, &s.sum)
}

func (s *Snapshot) saveEndedRemote(number uint64, k container.ExpiringKey[uint64]) {
	s.records++
	s.buf = appendEndedRemote(s.buf, k, number, &s.sum)
}

// step walks on over a bounded number of records; false: the walk is over.
func (s *Snapshot) step() bool {
	left := s.stepRecords
	for left > 0 && len(s.buf) < stepBytes && s.stage != stageDone {
		before := left
		s.walk(&left)
		if left == before {
			left-- // going from stage to stage is work too, with many empty nodes
		}
	}
	return s.stage != stageDone
}

// walk does one piece of the present stage, or goes to the next one.
func (s *Snapshot) walk(left *int) {
	m := s.m
	switch s.stage {
	case stageBuckets:
		for len(s.buckets) > 0 && *left > 0 {
			*left--
			if b := &s.buckets[0]; b.state != bucketAbsent || b.epoch != 0 {
				s.records++
				s.buf = appendBucket(s.buf, b, &s.sum)
			}
			s.buckets = s.buckets[1:]
		}
		if len(s.buckets) == 0 {
			s.stage = stageNewest
		}
	case stageNewest:
		switch {
		case s.semaphore != nil:
			s.walkEntries(left)
		case len(s.newest) > 0:
			s.beginSemaphore(s.newest[0])
			s.newest = s.newest[1:]
		default:
			s.stage = stageNodes
		}
	case stageNodes:
		var n *node
		m.nodeIndex.Ascend(func(o *node) bool {
			return o.id < s.node || o.id == s.node && s.nodeSaved
		}, func(o *node) bool {
			n = o
			return false
		})
		if n == nil {
			s.stage = stageEnding
			return
		}
		s.save(n)
		s.node, s.nodeSaved, s.id, s.stage = n.id, true, 0, stageHomeSessions
	case stageHomeSessions:
		n := s.currentNode()
		if n == nil || !s.walkHomeSessions(n, left) {
			s.id, s.stage = 0, stageRemoteSessions
		}
	case stageRemoteSessions:
		n := s.currentNode()
		if n == nil || !s.walkRemoteSessions(n, left) {
			s.name, s.stage = s.name[:0], stageSemaphores
		}
	case stageSemaphores:
		if s.semaphore != nil {
			s.walkEntries(left)
			return
		}
		if n := s.currentNode(); n == nil || !s.walkSemaphores(n, left) {
			s.name, s.kind, s.stage = s.name[:0], 0, stageObjects
		}
	case stageObjects:
		if n := s.currentNode(); n != nil && s.walkObjects(n, left) {
			return
		}
		s.name = s.name[:0]
		if s.kind++; s.kind == kindCount {
			s.stage = stageNodes
		}
	case stageEnding:
		if len(s.ending) == 0 {
			s.stage = stageEndedCreateIDs
			return
		}
		s.save(s.ending[0])
		s.ending = s.ending[1:]
	case stageEndedCreateIDs:
		r := &s.endedCreateIDs
		if r.next = max(r.next, m.endedCreateIDs.Base()); r.next >= r.end {
			s.stage = stageEndedRemotes
			return
		}
		s.saveEndedCreateID(r.next, m.endedCreateIDs.At(r.next))
		r.next++
	case stageEndedRemotes:
		r := &s.endedRemotes
		if r.next = max(r.next, m.endedRemotes.Base()); r.next >= r.end {
			s.stage = stageDone
			return
		}
		s.saveEndedRemote(r.next, m.endedRemotes.At(r.next))
		r.next++
	}
}

// currentNode is the node the walk is at, nil if it is gone meanwhile with all of its records.
func (s *Snapshot) currentNode() (n *node) {
	s.m.nodeIndex.Ascend(func(o *node) bool { return o.id < s.node }, func(o *node) bool {
		if o.id == s.node {
			n = o
		}
		return false
	})
	return n
}

// walkIndex continues over records of a node, as far as this step goes; more: there are others.
func walkIndex[R comparable](
	s *Snapshot, records *container.Index[R], left *int, before func(R) bool, save func(R),
) (more bool) {
	records.Ascend(before, func(o R) bool {
		if more = *left <= 0 || len(s.buf) >= stepBytes; more {
			return false
		}
		*left--
		save(o)
		return true
	})
	return more
}

func (s *Snapshot) walkHomeSessions(n *node, left *int) (more bool) {
	return walkIndex(s, &n.homeSessions, left, func(o *homeSession) bool { return o.id <= s.id }, func(o *homeSession) {
		s.save(o.sessionRecord)
		s.id = o.id
	})
}

func (s *Snapshot) walkRemoteSessions(n *node, left *int) (more bool) {
	return walkIndex(s, &n.remoteSessions, left, func(id uint64) bool { return id <= s.id }, func(id uint64) {
		s.save(s.m.sessions.get(id))
		s.id = id
	})
}

func (s *Snapshot) walkSemaphores(n *node, left *int) (more bool) {
	n.semaphores.Ascend(func(o *semaphore) bool { return bytes.Compare(o.name, s.name) < 0 }, func(o *semaphore) bool {
		if more = *left <= 0 || len(s.buf) >= stepBytes; more {
			return false
		}
		*left--
		s.name = append(append(s.name[:0], o.name...), 0)
		s.beginSemaphore(o)
		if s.semaphore != nil {
			s.walkEntries(left)
		}
		more = s.semaphore != nil
		return !more
	})
	return more
}

// beginSemaphore saves a semaphore and goes on with its entries.
func (s *Snapshot) beginSemaphore(x *semaphore) {
	s.save(x)
	if x.owners.n+x.waiters.n > 0 {
		s.semaphore, s.afterOrder, s.inQueue = x, 0, false
	}
}

// walkEntries goes on over the owners and waiters of s.semaphore. An entry that moved from one to
// the other meanwhile was set aside.
func (s *Snapshot) walkEntries(left *int) {
	t := &s.semaphore.owners
	if s.inQueue {
		t = &s.semaphore.waiters
	}
	for e := t.seekOrder(s.afterOrder); e != nil; e = next(e, byOrder) {
		if *left <= 0 || len(s.buf) >= stepBytes {
			return
		}
		*left--
		s.save(e)
		s.afterOrder = e.orderID
	}
	if s.inQueue {
		s.semaphore = nil
		return
	}
	s.afterOrder, s.inQueue = 0, true
}
