package shard

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// maxRecord bounds a record; the largest are the header and the memory of a very busy session.
const maxRecord = 64 << 20

// Restore makes a machine from a snapshot. Any bytes are safe: what is not a whole snapshot, or
// does not have the digest it names, is an error. ErrFormat says that it was written by a newer
// binary. Memory grows with the bytes read, not with what they promise.
func Restore(r io.Reader) (*Machine, error) {
	x, err := readSnapshot(r)
	if err != nil {
		return nil, err
	}
	if got := x.m.Digest(); got != x.digest {
		return nil, fmt.Errorf("shard: snapshot says its digest is %016x, its records have %016x; take another snapshot", x.digest, got)
	}
	return x.m, nil
}

// readSnapshot reads and links the records; the digest is not compared.
func readSnapshot(r io.Reader) (*restorer, error) {
	in := recordReader{r: bufio.NewReader(r)}
	if err := in.open(); err != nil {
		return nil, err
	}
	x := &restorer{m: New(0), nodes: make(map[uint64]*node), semaphores: make(map[uint64]*semaphore)}
	for !x.complete {
		kind, fields, err := in.next()
		if err != nil {
			return nil, err
		}
		if err := x.record(kind, fields); err != nil {
			return nil, err
		}
	}
	if err := in.close(); err != nil {
		return nil, err
	}
	if err := x.link(); err != nil {
		return nil, err
	}
	return x, nil
}

var errSnapshot = errors.New("shard: snapshot is damaged; take another one")

func damaged(what string) error { return fmt.Errorf("%w (%s)", errSnapshot, what) }

// recordReader takes chunks apart into records.
type recordReader struct {
	r   *bufio.Reader
	buf []byte // bytes of checked chunks
	pos int
}

func (in *recordReader) open() error {
	var head [len(snapshotMagic)]byte
	if _, err := io.ReadFull(in.r, head[:]); err != nil {
		return readError(err)
	}
	const last = len(snapshotMagic) - 1
	if string(head[:last]) != snapshotMagic[:last] || head[last] == 0 {
		return damaged("it does not begin like one")
	}
	if head[last] > snapshotMagic[last] {
		return ErrFormat
	}
	return nil
}

// more reads another chunk.
func (in *recordReader) more() error {
	var head [8]byte
	if _, err := io.ReadFull(in.r, head[:]); err != nil {
		return readError(err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > chunkBytes {
		return damaged("chunk length")
	}
	if in.pos > 0 {
		in.buf = in.buf[:copy(in.buf, in.buf[in.pos:])]
		in.pos = 0
	}
	at := len(in.buf)
	in.buf = slices.Grow(in.buf, int(n))[:at+int(n)]
	if _, err := io.ReadFull(in.r, in.buf[at:]); err != nil {
		return readError(err)
	}
	if crc32.Checksum(in.buf[at:], castagnoli) != binary.BigEndian.Uint32(head[4:]) {
		return damaged("checksum")
	}
	return nil
}

// next reads a record; its fields are valid until the next call.
func (in *recordReader) next() (recordKind, []byte, error) {
	for {
		if rest := in.buf[in.pos:]; len(rest) > 1 {
			n, width := binary.Uvarint(rest[1:])
			if width < 0 || n > maxRecord {
				return 0, nil, damaged("record length")
			}
			if end := 1 + width + int(n); width > 0 && end <= len(rest) {
				in.pos += end
				return recordKind(rest[0]), rest[1+width : end], nil
			}
		}
		if err := in.more(); err != nil {
			return 0, nil, err
		}
	}
}

func (in *recordReader) close() error {
	if in.pos != len(in.buf) {
		return damaged("bytes behind its end")
	}
	return nil
}

func readError(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return damaged("it is cut short")
	}
	return err
}

// restorer collects records, which come in any order, and links them at the end.
type restorer struct {
	m              *Machine
	hasHeader      bool
	complete       bool
	records        uint64
	digest         uint64
	nodes          map[uint64]*node
	dropping       []uint64
	ending         []uint64
	orphaned       []uint64
	sessions       []sessionLink
	semaphores     map[uint64]*semaphore
	semaphoreLinks []semaphoreLink
	entries        []entryLink
	objects        []objectLink
	endedCreateIDs []numbered[[protocol.KeyLen]byte]
	endedRemotes   []numbered[uint64]
}

type sessionLink struct {
	session   *sessionRecord
	node      uint64
	scheduled bool
	at        uint64
	due       bool
	dueAt     uint64
}

type semaphoreLink struct {
	s    *semaphore
	node uint64
}

type entryLink struct {
	e         *entry
	serial    uint64
	session   uint64
	scheduled bool
	at        uint64
}

type numbered[K comparable] struct {
	number uint64
	expiringKey[K]
}

func (x *restorer) record(kind recordKind, fields []byte) error {
	r := varint.Reader{Rest: fields}
	if !x.hasHeader && kind != recordHeader {
		return damaged("no header")
	}
	ok := true
	switch kind {
	case recordHeader:
		ok = !x.hasHeader && x.header(&r)
		x.hasHeader = true
	case recordBucket:
		ok = x.bucket(&r)
	case recordNode:
		ok = x.node(&r)
	case recordHomeSession, recordRemoteSession:
		ok = x.sessionRecord(&r, kind == recordHomeSession)
	case recordSemaphore:
		ok = x.semaphore(&r)
	case recordEntry:
		ok = x.entry(&r)
	case recordEndedCreateID:
		k := numbered[[protocol.KeyLen]byte]{number: r.Uint()}
		r.Fixed(k.key[:])
		k.until = r.Uint()
		x.endedCreateIDs = append(x.endedCreateIDs, k)
	case recordEndedRemote:
		k := numbered[uint64]{number: r.Uint()}
		k.key, k.until = r.Uint(), r.Uint()
		x.endedRemotes = append(x.endedRemotes, k)
	case recordEnd:
		ok = r.Uint() == x.records
		x.digest, x.complete = r.Uint(), true
	default:
		var known bool
		if known, ok = x.object(kind, &r); !known {
			return damaged("unknown record")
		}
	}
	x.records++
	if !ok || r.Failed || len(r.Rest) != 0 {
		return damaged(fmt.Sprintf("record of kind %d", kind))
	}
	return nil
}

func readTimer(r *varint.Reader) (armed bool, at uint64) {
	if armed = r.Bool(); armed {
		at = r.Uint()
	}
	return armed, at
}

func (x *restorer) header(r *varint.Reader) bool {
	m := x.m
	m.id, m.applied, m.epoch, m.logTime = r.Uint(), r.Uint(), r.Uint(), r.Uint()
	m.limits = Limits{Waiters: int(r.Uint()), Semaphores: int(r.Uint()), Answers: int(r.Uint())}
	m.work = workLimits{deadlines: int(r.Uint()), sweeps: int(r.Uint()), releases: int(r.Uint())}
	m.tier = r.Byte()
	total := r.Uint()
	if total > maxBuckets {
		return false
	}
	m.buckets = make([]bucket, total)
	for i := range m.buckets {
		m.buckets[i].number = uint32(i)
	}
	t := &m.takeovers
	m.handingOver = r.Bool()
	t.generation, t.sweeping, t.sweepStart, t.sweepNode, t.sweepSession =
		r.Uint(), r.Bool(), r.Uint(), r.Uint(), r.Uint()
	for range r.Count(varint.NoLimit) {
		o := takeover{generation: r.Uint(), at: r.Uint(), planned: r.Bool()}
		first, count := r.Uint(), r.Uint()
		if first > total || count > total-first {
			return false
		}
		o.first, o.count = uint32(first), uint32(count)
		t.open = append(t.open, o)
	}
	for range r.Count(varint.NoLimit) {
		x.dropping = append(x.dropping, r.Uint())
	}
	for range r.Count(varint.NoLimit) {
		x.ending = append(x.ending, r.Uint())
	}
	for range r.Count(varint.NoLimit) {
		x.orphaned = append(x.orphaned, r.Uint())
	}
	c := &m.clearing
	c.active, c.homesDone = r.Bool(), r.Bool()
	c.node, c.session = r.Uint(), r.Uint()
	for range r.Count(varint.NoLimit) {
		first, count := r.Uint(), r.Uint()
		if first > total || count > total-first {
			return false
		}
		m.imports = append(m.imports, importState{
			uint32(first), uint32(count), r.Uint(), r.Copy(varint.NoLimit), r.Copy(varint.NoLimit),
			r.Copy(varint.NoLimit), r.Copy(varint.NoLimit),
		})
	}
	last := uint64(0)
	for range r.Count(varint.NoLimit) {
		last += r.Uint()
		m.dropped = append(m.dropped, last)
	}
	return slices.IsSorted(m.dropped)
}

func (x *restorer) bucket(r *varint.Reader) bool {
	number := r.Uint()
	if number >= uint64(len(x.m.buckets)) {
		return false
	}
	b := &x.m.buckets[number]
	if b.state != bucketAbsent || b.epoch != 0 {
		return false
	}
	b.state = bucketState(r.Byte())
	b.epoch, b.orderCounter, b.sessionCounter = r.Uint(), r.Uint(), r.Uint()
	b.moveEpoch, b.timeBase, b.logBase = r.Uint(), r.Uint(), r.Uint()
	return b.state < bucketStates
}

func (x *restorer) node(r *varint.Reader) bool {
	n := &node{id: r.Uint(), revision: r.Uint()}
	n.config = readConfig(r)
	n.dropped = r.Bool()
	n.graceFloor, n.graceFloorAt = r.Uint(), r.Uint()
	for range r.Count(varint.NoLimit) {
		n.formerGraces = append(n.formerGraces, formerGrace{r.Uint(), r.Uint()})
	}
	if x.nodes[n.id] != nil {
		return false
	}
	x.nodes[n.id] = n
	return true
}

func (x *restorer) sessionRecord(r *varint.Reader, home bool) bool {
	var p *sessionRecord
	if home {
		p = newHomeSession().sessionRecord
	} else {
		p = new(sessionRecord)
	}
	p.id = r.Uint()
	l := sessionLink{session: p, node: r.Uint()}
	p.epoch, p.low, p.description, p.ended, p.detached =
		r.Uint(), r.Uint(), string(r.Bytes(varint.NoLimit)), r.Bool(), r.Bool()
	l.scheduled, l.at = readTimer(r)
	n := r.Count(varint.NoLimit)
	if n > 0 {
		p.answers.list = make([]answer, 0, min(n, 1024))
	}
	for after := uint64(0); n > 0; n-- {
		a, ok := readAnswer(r, after)
		if !ok {
			return false
		}
		after = a.seq
		p.answers.list = append(p.answers.list, a)
	}
	if s := p.home; s != nil {
		l.due, l.dueAt = readTimer(r)
		r.Fixed(s.key[:])
		r.Fixed(s.createID[:])
		s.nonce, s.client, s.created, s.attachedAt, s.generation =
			r.Uint(), string(r.Bytes(varint.NoLimit)), r.Uint(), r.Uint(), r.Uint()
		s.timeout, s.attached = uint32(r.Uint()), r.Bool()
	} else {
		p.lastUsed = r.Uint()
	}
	if x.m.sessions[p.id] != nil {
		return false
	}
	x.m.sessions[p.id] = p
	x.sessions = append(x.sessions, l)
	return true
}

func (x *restorer) semaphore(r *varint.Reader) bool {
	s := new(semaphore)
	serial := r.Uint()
	l := semaphoreLink{s: s, node: r.Uint()}
	s.name, s.data = bytes.Clone(r.Bytes(varint.NoLimit)), r.Copy(varint.NoLimit)
	s.limit, s.version, s.revision, s.created, s.ephemeral = r.Uint(), r.Uint(), r.Uint(), r.Uint(), r.Bool()
	x.m.serial++
	s.serial = x.m.serial
	if len(s.name) == 0 || len(s.name) > protocol.MaxNameLen || x.semaphores[serial] != nil {
		return false
	}
	x.semaphores[serial] = s
	x.semaphoreLinks = append(x.semaphoreLinks, l)
	return true
}

func (x *restorer) entry(r *varint.Reader) bool {
	e := new(entry)
	l := entryLink{e: e, serial: r.Uint(), session: r.Uint()}
	e.orderID, e.count, e.seq, e.timeout, e.since = r.Uint(), r.Uint(), r.Uint(), r.Uint(), r.Uint()
	e.data, e.waiting = r.Copy(varint.NoLimit), r.Bool()
	l.scheduled, l.at = readTimer(r)
	x.entries = append(x.entries, l)
	return e.count > 0
}

// link puts the records together.
func (x *restorer) link() error {
	for _, step := range []struct {
		name string
		do   func() bool
	}{
		{"nodes", x.linkNodes}, {"sessions", x.linkSessions}, {"semaphores", x.linkSemaphores},
		{"entries", x.linkEntries}, {"hosted objects", x.linkObjects}, {"ended sessions", x.linkEnding},
	} {
		if !step.do() {
			return damaged(step.name)
		}
	}
	m := x.m
	m.copyCount = m.countCopies()
	slices.SortFunc(x.endedCreateIDs,
		func(a, b numbered[[protocol.KeyLen]byte]) int { return cmp.Compare(a.number, b.number) })
	for _, k := range x.endedCreateIDs {
		m.endedCreateIDs.put(k.key, k.until)
	}
	slices.SortFunc(x.endedRemotes, func(a, b numbered[uint64]) int { return cmp.Compare(a.number, b.number) })
	for _, k := range x.endedRemotes {
		m.endedRemotes.put(k.key, k.until)
	}
	return nil
}

func (x *restorer) linkNodes() bool {
	m := x.m
	for _, id := range x.dropping {
		n := x.nodes[id]
		if n == nil || !n.dropped || slices.Contains(m.dropping, n) {
			return false
		}
		m.dropping = append(m.dropping, n)
	}
	ids := make([]uint64, 0, len(x.nodes))
	dropped := 0
	for id, n := range x.nodes {
		ids = append(ids, id)
		if n.dropped {
			dropped++
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		n := x.nodes[id]
		m.nodeIndex.insert(n, nodeLess)
		if !n.dropped {
			m.nodes[id] = n
		}
	}
	m.updatePeriods()
	return dropped == len(m.dropping)
}

func (x *restorer) linkSessions() bool {
	m := x.m
	slices.SortFunc(x.sessions, func(a, b sessionLink) int { return cmp.Compare(a.session.id, b.session.id) })
	for _, l := range x.sessions {
		p := l.session
		if p.node = x.nodes[l.node]; p.node == nil {
			return false
		}
		p.chargeAnswers()
		switch s := p.home; {
		case p.ended:
		case s != nil:
			if m.byCreateID[s.createID] != nil || m.homeBucketOf(s) == nil {
				return false
			}
			m.byCreateID[s.createID] = s
			p.node.addSession(s)
		default:
			p.node.remoteSessions.insert(p, sessionRecordLess)
		}
		if l.scheduled {
			m.schedule(p, l.at)
		}
		if l.due && !p.ended {
			m.schedule(p.home, l.dueAt)
		}
	}
	return true
}

func (x *restorer) linkSemaphores() bool {
	m := x.m
	slices.SortFunc(x.semaphoreLinks, func(a, b semaphoreLink) int {
		return cmp.Or(cmp.Compare(a.node, b.node), bytes.Compare(a.s.name, b.s.name))
	})
	for _, l := range x.semaphoreLinks {
		s := l.s
		if s.node = x.nodes[l.node]; s.node == nil || len(m.buckets) == 0 {
			return false
		}
		s.bucket = &m.buckets[protocol.Bucket(l.node, s.name, uint32(len(m.buckets)))]
		if m.semaphore(s.bucket, l.node, s.name) != nil {
			return false
		}
		m.link(s)
	}
	return true
}

func (x *restorer) linkEntries() bool {
	m := x.m
	slices.SortFunc(x.entries, func(a, b entryLink) int {
		return cmp.Or(cmp.Compare(a.serial, b.serial), cmp.Compare(a.e.orderID, b.e.orderID))
	})
	for i, l := range x.entries {
		e, s, p := l.e, x.semaphores[l.serial], m.sessions[l.session]
		if s == nil || p == nil || p.node != s.node {
			return false
		}
		if i > 0 && x.entries[i-1].serial == l.serial && x.entries[i-1].e.orderID == e.orderID {
			return false
		}
		if o := p.entries.seekName(s.name); o != nil && o.semaphore == s {
			return false
		}
		e.semaphore, e.session = s, p
		p.addEntry(e)
		s.node.addEntryUsage(e)
		if e.waiting {
			s.enqueue(e)
			if l.scheduled {
				m.schedule(e, l.at)
			}
			continue
		}
		if s.waiters.n > 0 || s.used+e.count < s.used || l.scheduled {
			return false
		}
		s.owners.insert(e, byOrder)
		s.used += e.count
	}
	return true
}

func (x *restorer) linkEnding() bool {
	m := x.m
	seen := make(map[uint64]bool, len(x.ending))
	for i, id := range slices.Concat(x.ending, x.orphaned) {
		p := m.sessions[id]
		if p == nil || !p.ended || seen[id] {
			return false
		}
		seen[id] = true
		if i < len(x.ending) {
			m.ending = append(m.ending, p)
		} else {
			m.orphaned = append(m.orphaned, p)
		}
	}
	gone := 0
	for _, l := range x.sessions {
		if l.session.ended {
			gone++
		}
	}
	return gone == len(m.ending)+len(m.orphaned)
}
