package shard

import (
	"encoding/binary"

	"github.com/signalbox-dev/signalbox/protocol"
)

// The state is a set of records; a snapshot is their list, the digest the sum of their hashes. Records refer to each other by id and come in any
// order.
//
// A record is its kind (1 byte), a length, and its fields: numbers as uvarints, byte strings with their length before them. What is
// not in a record is not part of the state: the shape of trees, who is young, counters, serial numbers (which link an entry to its
// semaphore within one snapshot only).
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
)

// appendRecord puts kind and length before the fields that encode appends, and adds the record's hash to sum. skip tells how many of the
// fields' first bytes are left out of the hash.
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

func (m *Machine) appendHeader(b []byte, sum *uint64) []byte {
	start := len(b)
	b = binary.AppendUvarint(b, m.id)
	b = binary.AppendUvarint(b, m.applied)
	b = binary.AppendUvarint(b, m.epoch)
	b = binary.AppendUvarint(b, m.logTime)
	b = binary.AppendUvarint(b, uint64(m.limits.Waiters))
	b = binary.AppendUvarint(b, uint64(m.limits.Semaphores))
	b = binary.AppendUvarint(b, uint64(m.limits.Answers))
	b = binary.AppendUvarint(b, uint64(m.work.deadlines))
	b = binary.AppendUvarint(b, uint64(m.work.sweeps))
	b = binary.AppendUvarint(b, uint64(m.work.releases))
	b = append(b, m.tier)
	b = binary.AppendUvarint(b, uint64(len(m.buckets)))

	t := &m.takeovers
	b = appendBool(b, m.handingOver)
	b = binary.AppendUvarint(b, t.generation)
	b = appendBool(b, t.sweeping)
	b = binary.AppendUvarint(b, t.sweepStart)
	b = binary.AppendUvarint(b, t.sweepNode)
	b = binary.AppendUvarint(b, t.sweepSession)
	b = binary.AppendUvarint(b, uint64(len(t.open)))
	for _, o := range t.open {
		b = binary.AppendUvarint(b, o.generation)
		b = binary.AppendUvarint(b, o.at)
		b = appendBool(b, o.planned)
		b = binary.AppendUvarint(b, uint64(o.first))
		b = binary.AppendUvarint(b, uint64(o.count))
	}
	b = binary.AppendUvarint(b, uint64(len(m.dropping)))
	for _, n := range m.dropping {
		b = binary.AppendUvarint(b, n.id)
	}
	b = binary.AppendUvarint(b, uint64(len(m.ending)))
	for _, p := range m.ending {
		b = binary.AppendUvarint(b, p.id)
	}
	b = binary.AppendUvarint(b, uint64(len(m.orphaned)))
	for _, p := range m.orphaned {
		b = binary.AppendUvarint(b, p.id)
	}
	c := &m.clearing
	b = appendBool(appendBool(b, c.active), c.homesDone)
	b = binary.AppendUvarint(b, c.node)
	b = binary.AppendUvarint(b, c.session)
	b = binary.AppendUvarint(b, uint64(len(m.imports)))
	for i := range m.imports {
		x := &m.imports[i]
		b = binary.AppendUvarint(b, uint64(x.first))
		b = binary.AppendUvarint(b, uint64(x.count))
		b = binary.AppendUvarint(b, x.epoch)
		b = appendBytes(b, x.next)
		b = appendBytes(b, x.openSemaphore)
		b = appendBytes(b, x.openTrack)
		b = appendBytes(b, x.trackBytes)
	}
	b = binary.AppendUvarint(b, uint64(len(m.dropped)))
	last := uint64(0)
	for _, id := range m.dropped {
		b = binary.AppendUvarint(b, id-last)
		last = id
	}
	return closeRecord(b, start, 0, recordHeader, 0, sum)
}

func appendBucket(b []byte, x *bucket, sum *uint64) []byte {
	if x.state == bucketAbsent && x.epoch == 0 {
		return b
	}
	start := len(b)
	b = binary.AppendUvarint(b, uint64(x.number))
	b = append(b, byte(x.state))
	b = binary.AppendUvarint(b, x.epoch)
	b = binary.AppendUvarint(b, x.orderCounter)
	b = binary.AppendUvarint(b, x.sessionCounter)
	b = binary.AppendUvarint(b, x.moveEpoch)
	b = binary.AppendUvarint(b, x.timeBase)
	b = binary.AppendUvarint(b, x.logBase)
	return closeRecord(b, start, 0, recordBucket, 0, sum)
}

func appendNode(b []byte, n *node, sum *uint64) []byte {
	start := len(b)
	b = binary.AppendUvarint(b, n.id)
	b = binary.AppendUvarint(b, n.revision)
	b = appendConfig(b, n.config)
	b = appendBool(b, n.dropped)
	b = binary.AppendUvarint(b, n.graceFloor)
	b = binary.AppendUvarint(b, n.graceFloorAt)
	b = binary.AppendUvarint(b, uint64(len(n.formerGraces)))
	for _, f := range n.formerGraces {
		b = binary.AppendUvarint(b, f.generation)
		b = binary.AppendUvarint(b, f.grace)
	}
	return closeRecord(b, start, 0, recordNode, 0, sum)
}

// appendSessionRecord appends a session or a remote session.
func appendSessionRecord(b []byte, p *sessionRecord, sum *uint64) []byte {
	start := len(b)
	b = binary.AppendUvarint(b, p.id)
	b = binary.AppendUvarint(b, p.node.id)
	b = binary.AppendUvarint(b, p.epoch)
	b = binary.AppendUvarint(b, p.low)
	b = appendString(b, p.description)
	b = appendBool(b, p.ended)
	b = appendBool(b, p.detached)
	b = appendTimer(b, &p.timer)
	live := p.answers.list[p.answers.head:]
	b = binary.AppendUvarint(b, uint64(len(live)))
	for i := range live {
		b = appendAnswer(b, &live[i])
	}
	s := p.home
	if s == nil {
		b = binary.AppendUvarint(b, p.lastUsed)
		return closeRecord(b, start, 0, recordRemoteSession, 0, sum)
	}
	b = appendTimer(b, &s.expiry)
	b = append(b, s.key[:]...)
	b = append(b, s.createID[:]...)
	b = binary.AppendUvarint(b, s.nonce)
	b = appendString(b, s.client)
	b = binary.AppendUvarint(b, s.created)
	b = binary.AppendUvarint(b, s.attachedAt)
	b = binary.AppendUvarint(b, s.generation)
	b = binary.AppendUvarint(b, uint64(s.timeout))
	b = appendBool(b, s.attached)
	return closeRecord(b, start, 0, recordHomeSession, 0, sum)
}

func appendSemaphore(b []byte, s *semaphore, sum *uint64) []byte {
	start := len(b)
	b = binary.AppendUvarint(b, s.serial)
	skip := len(b) - start
	b = binary.AppendUvarint(b, s.node.id)
	b = appendBytes(b, s.name)
	b = appendBytes(b, s.data)
	b = binary.AppendUvarint(b, s.limit)
	b = binary.AppendUvarint(b, s.version)
	b = binary.AppendUvarint(b, s.revision)
	b = binary.AppendUvarint(b, s.created)
	b = appendBool(b, s.ephemeral)
	return closeRecord(b, start, skip, recordSemaphore, 0, sum)
}

func appendEntry(b []byte, e *entry, sum *uint64) []byte {
	start := len(b)
	b = binary.AppendUvarint(b, e.semaphore.serial)
	skip := len(b) - start
	b = binary.AppendUvarint(b, e.session.id)
	b = binary.AppendUvarint(b, e.orderID)
	b = binary.AppendUvarint(b, e.count)
	b = binary.AppendUvarint(b, e.seq)
	b = binary.AppendUvarint(b, e.timeout)
	b = binary.AppendUvarint(b, e.since)
	b = appendBytes(b, e.data)
	b = appendBool(b, e.waiting)
	b = appendTimer(b, &e.timer)
	return closeRecord(b, start, skip, recordEntry, hash(e.semaphore.node.id, e.semaphore.name), sum)
}

func appendEndedCreateID(b []byte, k retainedKey[[protocol.KeyLen]byte], number uint64, sum *uint64) []byte {
	start := len(b)
	b = binary.AppendUvarint(b, number)
	skip := len(b) - start
	b = append(b, k.key[:]...)
	b = binary.AppendUvarint(b, k.until)
	return closeRecord(b, start, skip, recordEndedCreateID, 0, sum)
}

func appendEndedRemote(b []byte, k retainedKey[uint64], number uint64, sum *uint64) []byte {
	start := len(b)
	b = binary.AppendUvarint(b, number)
	skip := len(b) - start
	b = binary.AppendUvarint(b, k.key)
	b = binary.AppendUvarint(b, k.until)
	return closeRecord(b, start, skip, recordEndedRemote, 0, sum)
}

func appendTimer(b []byte, t *timer) []byte {
	b = appendBool(b, t.pos > 0)
	if t.pos > 0 {
		b = binary.AppendUvarint(b, t.at)
	}
	return b
}
