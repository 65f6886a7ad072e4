package shard

import (
	"encoding/binary"
	"math/bits"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
	"github.com/signalbox-dev/signalbox/shard/container"
	"github.com/signalbox-dev/signalbox/shard/queue"
)

// The state is a set of records; a snapshot is their list, the digest the sum of their hashes.
// Records refer to each other by id and come in any order.
//
// A record is its kind (1 byte), a length, and its fields: numbers as uvarints, byte strings with
// their length before them. What is not in a record is not part of the state: the shape of trees,
// the ring of the newest semaphores, counters, serial numbers (which link an entry to its semaphore
// within one snapshot only).
type recordKind uint8

const (
	recordHeader        recordKind = 1
	recordBucket        recordKind = 2
	recordNode          recordKind = 3
	recordHomeSession   recordKind = 4
	recordRemoteSession recordKind = 5
	recordSemaphore     recordKind = 6
	recordEntry         recordKind = 7
	recordEndedCreateID recordKind = 8
	recordEndedRemote   recordKind = 9
	recordEnd           recordKind = 10
	recordProcess       recordKind = 11
	recordTrack         recordKind = 12
	recordLimit         recordKind = 13

	recordQueue recordKind = 40 // a semaphore that is not plain: the fields of recordSemaphore, and more
	recordPlace recordKind = 41 // an entry that is not plain: the fields of recordEntry, and more
)

// closeRecord puts kind and length before the fields from start on, and adds the record's hash to
// sum. skip is how many of the fields' first bytes are left out of the hash.
func closeRecord(b []byte, start, skip int, kind recordKind, seed uint64, sum *uint64) []byte {
	fields := b[start:]
	*sum += hash(seed^uint64(kind), fields[skip:])
	var head [1 + binary.MaxVarintLen64]byte
	head[0] = byte(kind)
	n := 1 + binary.PutUvarint(head[1:], uint64(len(fields)))
	b = append(b, head[:n]...) // make room, then move the fields behind the head
	copy(b[start+n:], b[start:start+len(fields)])
	copy(b[start:], head[:n])
	return b
}

// headerRecord is what there is one of.
type headerRecord struct {
	m                          *Machine
	buckets                    uint64
	dropping, ending, orphaned []uint64 // ids
	dropped                    []nodeIDs
}

func (x *headerRecord) fields(f *varint.Fields) {
	m := x.m
	t, c := &m.takeovers, &m.clearing
	f.Uint(&m.id, &m.applied, &m.epoch, &m.logTime)
	for _, v := range []*int{&m.limits.Waiters, &m.limits.Semaphores, &m.limits.Answers,
		&m.work.deadlines, &m.work.sweeps, &m.work.releases} {
		n := uint64(*v)
		if f.Uint(&n); f.Reading() {
			*v = int(n)
		}
	}
	varint.Byte(f, &m.tier)
	f.Uint(&x.buckets, &m.tokenFloor)
	f.Bool(&m.transferring)
	f.Uint(&m.stood, &m.stoodAt)
	f.Uint(&t.generation)
	f.Bool(&t.sweeping)
	f.Uint(&t.sweepStart, &t.sweepNode, &t.sweepSession)
	varint.List(f, &t.open, varint.NoLimit, func(o *takeover, f *varint.Fields) {
		f.Uint(&o.generation, &o.at)
		f.Bool(&o.planned)
		f.Uint32(&o.first, &o.count)
	})
	for _, ids := range []*[]uint64{&x.dropping, &x.ending, &x.orphaned} {
		varint.List(f, ids, varint.NoLimit, func(id *uint64, f *varint.Fields) { f.Uint(id) })
	}
	f.Bool(&c.active, &c.homesDone)
	f.Uint(&c.node, &c.session)
	varint.List(f, (*[]importState)(&m.imports), varint.NoLimit, func(o *importState, f *varint.Fields) {
		f.Uint32(&o.first, &o.count)
		f.Uint(&o.epoch)
		for _, b := range []*[]byte{&o.next, &o.openSemaphore, &o.openObject, &o.objectBytes} {
			f.Bytes(b, varint.NoLimit)
		}
	})
	varint.List(f, &x.dropped, varint.NoLimit, func(r *nodeIDs, f *varint.Fields) { f.Uint(&r.first, &r.last) })
}

func appendHeader(b []byte, m *Machine, sum *uint64) []byte {
	x := headerRecord{m: m, buckets: uint64(len(m.buckets))}
	for _, n := range m.dropping {
		x.dropping = append(x.dropping, n.id)
	}
	for _, p := range m.ending {
		x.ending = append(x.ending, p.id)
	}
	for _, p := range m.orphaned {
		x.orphaned = append(x.orphaned, p.id)
	}
	last := uint64(0) // each is written as the distance from the one before
	for _, r := range m.dropped {
		x.dropped = append(x.dropped, nodeIDs{r.first - last, r.last - r.first})
		last = r.last
	}
	return closeRecord(varint.Encode(b, x.fields), len(b), 0, recordHeader, 0, sum)
}

func appendBucket(b []byte, x *bucket, sum *uint64) []byte {
	if x.state == bucketAbsent && x.epoch == 0 {
		return b
	}
	start := len(b)
	b = varint.Encode(varint.Append(b, uint64(x.number)), bucketFields(x))
	return closeRecord(b, start, 0, recordBucket, 0, sum)
}

// bucketFields are those behind the number.
func bucketFields(b *bucket) func(*varint.Fields) {
	return func(f *varint.Fields) {
		varint.Byte(f, &b.state)
		f.Uint(&b.epoch, &b.orderCounter, &b.versionFloor, &b.sessionCounter, &b.moveEpoch, &b.timeBase, &b.logBase)
	}
}

func (n *node) snapshotMark() *uint32          { return &n.snapMark }
func (r *sessionRecord) snapshotMark() *uint32 { return &r.snapMark }
func (s *semaphore) snapshotMark() *uint32     { return &s.snapMark }
func (e *entry) snapshotMark() *uint32         { return &e.snapMark }

func (n *node) appendRecord(b []byte, sum *uint64) []byte {
	return closeRecord(varint.Encode(b, n.fields), len(b), 0, recordNode, 0, sum)
}

func (n *node) fields(f *varint.Fields) {
	f.Uint(&n.id, &n.revision)
	configFields(f, &n.config)
	f.Bool(&n.dropped)
	f.Uint(&n.graceFloor, &n.graceFloorAt)
	varint.List(f, &n.formerGraces, varint.NoLimit, func(g *formerGrace, f *varint.Fields) {
		f.Uint(&g.generation, &g.grace)
	})
}

// appendRecord appends a session or a remote session.
func (r *sessionRecord) appendRecord(b []byte, sum *uint64) []byte {
	start := len(b)
	b = varint.Append(b, r.id, r.node.id, r.epoch, r.low)
	b = varint.AppendBytes(b, r.description)
	b = varint.AppendBool(b, r.ended, r.detached)
	if r.home == nil {
		b = appendTimer(b, &r.timer)
	} else {
		b = varint.AppendBool(b, false) // the format has a timer of each; its own comes below
	}
	live := r.answers.list[r.answers.head:]
	b = varint.Append(b, uint64(len(live)))
	for i := range live {
		b = appendAnswer(b, &live[i])
	}
	s := r.home
	if s == nil {
		b = varint.Append(b, r.lastSeen)
		if r.ending != nil {
			b = r.appendEnding(b)
		}
		return closeRecord(b, start, 0, recordRemoteSession, 0, sum)
	}
	b = appendTimer(b, &r.timer)
	b = append(b, s.key[:]...)
	b = append(b, s.createID[:]...)
	b = varint.Append(b, s.nonce)
	b = varint.AppendBytes(b, s.client)
	b = varint.Append(b, s.created, r.lastSeen, s.generation, uint64(s.timeout))
	b = varint.AppendBool(b, s.attached)
	if parent := r.node.families.parent(r.id); parent != 0 || s.link != 0 || r.ending != nil {
		b = varint.Append(b, parent, uint64(s.link))
		if r.ending != nil {
			b = r.appendEnding(b)
		}
	}
	return closeRecord(b, start, 0, recordHomeSession, 0, sum)
}

func (r *sessionRecord) appendEnding(b []byte) []byte {
	return varint.Encode(b, func(f *varint.Fields) { queue.EndingFields(f, r.ending) })
}

func (s *semaphore) appendRecord(b []byte, sum *uint64) []byte {
	start := len(b)
	b = varint.Append(b, s.serial)
	skip := len(b) - start
	b = varint.Append(b, s.node.id)
	b = varint.AppendBytes(b, s.name)
	b = varint.AppendBytes(b, s.data)
	b = varint.Append(b, s.limit, s.version, s.revision, s.created)
	b = varint.AppendBool(b, s.ephemeral)
	kind := recordSemaphore
	if q := s.core(); !q.IsPlain() {
		b, kind = varint.Encode(b, q.Fields), recordQueue
	}
	return closeRecord(b, start, skip, kind, 0, sum)
}

func (e *entry) appendRecord(b []byte, sum *uint64) []byte {
	start := len(b)
	b = varint.Append(b, e.semaphore.serial)
	skip := len(b) - start
	b = varint.Append(b, e.session.id, e.orderID, e.count, e.seq, e.timeout, e.since)
	b = varint.AppendBytes(b, e.data)
	b = varint.AppendBool(b, e.waiting)
	b = appendTimer(b, &e.timer)
	kind := recordEntry
	if p := e.semaphore.core().PartOf(e.orderID); p != nil {
		b, kind = varint.Encode(b, p.Fields), recordPlace
	}
	return closeRecord(b, start, skip, kind, hash(e.semaphore.node.id, e.semaphore.name), sum)
}

func appendEndedCreateID(
	b []byte, k container.ExpiringKey[[protocol.KeyLen]byte], number uint64, sum *uint64,
) []byte {
	start := len(b)
	b = varint.Append(b, number)
	skip := len(b) - start
	b = append(b, k.Key[:]...)
	b = varint.Append(b, k.Until)
	return closeRecord(b, start, skip, recordEndedCreateID, 0, sum)
}

func appendEndedRemote(b []byte, k container.ExpiringKey[uint64], number uint64, sum *uint64) []byte {
	start := len(b)
	b = varint.Append(b, number)
	skip := len(b) - start
	b = varint.Append(b, k.Key, k.Until)
	return closeRecord(b, start, skip, recordEndedRemote, 0, sum)
}

func appendTimer(b []byte, t *timer) []byte {
	b = varint.AppendBool(b, t.pos > 0)
	if t.pos > 0 {
		b = varint.Append(b, t.at)
	}
	return b
}

// Digest is a hash of the whole state: two replicas that applied the same log have the same, a
// restored one included. It walks everything, and may run beside other reads.
func (m *Machine) Digest() uint64 {
	var sum uint64
	var b []byte
	b = appendHeader(b[:0], m, &sum)
	for i := range m.buckets {
		b = appendBucket(b[:0], &m.buckets[i], &sum)
	}
	m.nodeIndex.All(func(n *node) bool {
		b = n.appendRecord(b[:0], &sum)
		return true
	})
	for p := range m.sessions.All() {
		b = p.appendRecord(b[:0], &sum)
	}
	for s := range m.semaphores.all(m.buckets) {
		b = s.appendRecord(b[:0], &sum)
		for e := s.owners.first; e != nil; e = next(e, byOrder) {
			b = e.appendRecord(b[:0], &sum)
		}
		for e := s.waiters.first; e != nil; e = next(e, byOrder) {
			b = e.appendRecord(b[:0], &sum)
		}
	}
	for i := range m.buckets {
		for _, objects := range m.buckets[i].objects {
			for _, x := range objects {
				b = x.appendRecord(b[:0], &sum)
			}
		}
	}
	for i, k := range m.endedCreateIDs.Queue() {
		b = appendEndedCreateID(b[:0], k, uint64(i), &sum)
	}
	for i, k := range m.endedRemotes.Queue() {
		b = appendEndedRemote(b[:0], k, uint64(i), &sum)
	}
	return sum
}

// hash is a 64-bit hash made of multiplications, for state that agrees by accident or not at all;
// it does not withstand an enemy.
func hash(seed uint64, b []byte) uint64 {
	const (
		k1 = 0x9e3779b97f4a7c15
		k2 = 0xd6e8feb86659fd93
		k3 = 0xa0761d6478bd642f
	)
	h := container.Mix(seed + k1 + uint64(len(b))*k2)
	for ; len(b) >= 16; b = b[16:] {
		hi, lo := bits.Mul64(binary.LittleEndian.Uint64(b)^h^k2, binary.LittleEndian.Uint64(b[8:])^k3)
		h = container.Mix(hi^lo) + bits.RotateLeft64(h, 23)
	}
	var tail [16]byte
	copy(tail[:], b)
	hi, lo := bits.Mul64(binary.LittleEndian.Uint64(tail[:])^h^k2, binary.LittleEndian.Uint64(tail[8:])^k3)
	return container.Mix(hi ^ lo ^ bits.RotateLeft64(h, 41))
}
