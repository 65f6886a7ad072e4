package shard

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
	"github.com/signalbox-dev/signalbox/shard/container"
	"github.com/signalbox-dev/signalbox/shard/queue"
)

// Restore makes a machine from a snapshot. Any bytes are safe: an incomplete snapshot, or
// does not have the digest it names, is an error. ErrFormat says that it was written by a newer
// binary. Memory grows with the bytes read, not with what they promise.
func Restore(r io.Reader) (*Machine, error) {
	x, err := readSnapshot(r)
	if err != nil {
		return nil, err
	}
	if got := x.m.Digest(); got != x.digest {
		return nil, fmt.Errorf(
			"shard: snapshot says its digest is %016x, its records have %016x; take another snapshot", x.digest, got)
	}
	return x.m, nil
}

// readSnapshot reads and links the records; the digest is not compared.
func readSnapshot(r io.Reader) (*restorer, error) {
	in := recordReader{r: bufio.NewReader(r)}
	format, err := in.open()
	if err != nil {
		return nil, err
	}
	x := &restorer{m: New(0), nodes: make(map[uint64]*node), semaphores: make(map[uint64]*semaphore)}
	x.m.format = format
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

type numbered[K comparable] struct {
	number uint64
	container.ExpiringKey[K]
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
	case recordSemaphore, recordQueue:
		ok = x.semaphore(&r, kind == recordQueue)
	case recordEntry, recordPlace:
		ok = x.entry(&r, kind == recordPlace)
	case recordEndedCreateID:
		k := numbered[[protocol.KeyLen]byte]{number: r.Uint()}
		r.Fixed(k.Key[:])
		k.Until = r.Uint()
		x.endedCreateIDs = append(x.endedCreateIDs, k)
	case recordEndedRemote:
		k := numbered[uint64]{number: r.Uint()}
		k.Key, k.Until = r.Uint(), r.Uint()
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
	m, h := x.m, headerRecord{m: x.m}
	varint.Decode(r, h.fields)
	if h.buckets > maxBuckets {
		return false
	}
	m.buckets = make([]bucket, h.buckets)
	for i := range m.buckets {
		m.buckets[i].number = uint32(i)
	}
	fits := func(first, count uint32) bool {
		return uint64(first) <= h.buckets && uint64(count) <= h.buckets-uint64(first)
	}
	for _, o := range m.takeovers.open {
		if !fits(o.first, o.count) {
			return false
		}
	}
	for i := range m.imports {
		if !fits(m.imports[i].first, m.imports[i].count) {
			return false
		}
	}
	x.dropping, x.ending, x.orphaned = h.dropping, h.ending, h.orphaned
	last := uint64(0)
	for _, d := range h.dropped {
		first := last + d.first
		end := first + d.last
		if end < first || len(m.dropped) > 0 && first <= last+1 {
			return false
		}
		m.dropped, last = append(m.dropped, nodeIDs{first, end}), end
	}
	return true
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
	varint.Decode(r, bucketFields(b))
	return b.state < bucketStates
}

func (x *restorer) node(r *varint.Reader) bool {
	n := new(node)
	varint.Decode(r, n.fields)
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
		p = &sessionRecord{sessionUse: &unused}
	}
	p.id = r.Uint()
	l := sessionLink{session: p, node: r.Uint()}
	var low uint64
	p.epoch, low, p.description, p.ended, p.detached =
		r.Uint(), r.Uint(), string(r.Bytes(varint.NoLimit)), r.Bool(), r.Bool()
	l.scheduled, l.at = readTimer(r)
	n := r.Count(varint.NoLimit)
	if n > 0 || low != 1 {
		p.ownUse().low = low
	}
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
		if l.scheduled {
			return false // that timer is of a session without a home
		}
		l.due, l.dueAt = readTimer(r)
		r.Fixed(s.key[:])
		r.Fixed(s.createID[:])
		s.nonce, s.client, s.created, s.lastSeen, s.generation =
			r.Uint(), string(r.Bytes(varint.NoLimit)), r.Uint(), r.Uint(), r.Uint()
		s.timeout, s.attached = uint32(r.Uint()), r.Bool()
		if len(r.Rest) > 0 {
			l.parent, s.link = r.Uint(), protocol.Link(r.Byte())
		}
	} else {
		p.lastSeen = r.Uint()
	}
	if len(r.Rest) > 0 {
		p.ownUse().ending = new(protocol.Ending)
		varint.Decode(r, func(f *varint.Fields) { queue.EndingFields(f, p.ending) })
	}
	if x.m.sessions.get(p.id) != nil {
		return false
	}
	x.m.sessions.add(p)
	x.sessions = append(x.sessions, l)
	return true
}

func (x *restorer) semaphore(r *varint.Reader, queued bool) bool {
	serial, node := r.Uint(), r.Uint()
	s := newSemaphore(r.Bytes(varint.NoLimit))
	l := semaphoreLink{s: s, node: node}
	s.setData(r.Bytes(varint.NoLimit))
	s.limit, s.version, s.revision, s.created, s.ephemeral = r.Uint(), r.Uint(), r.Uint(), r.Uint(), r.Bool()
	x.m.serial++
	s.serial = x.m.serial
	if queued {
		q, ok := queue.Read(r, s.limit)
		if !ok || s.ephemeral && q.HasOptions() || q.IsPlain() {
			return false
		}
		s.setQueue(q)
	}
	if len(s.name) == 0 || len(s.name) > protocol.MaxNameLen || x.semaphores[serial] != nil {
		return false
	}
	x.semaphores[serial] = s
	x.semaphoreLinks = append(x.semaphoreLinks, l)
	return true
}

func (x *restorer) entry(r *varint.Reader, placed bool) bool {
	e := new(entry)
	l := entryLink{e: e, serial: r.Uint(), session: r.Uint()}
	e.orderID, e.count, e.seq, e.timeout, e.since = r.Uint(), r.Uint(), r.Uint(), r.Uint(), r.Uint()
	e.data, e.waiting = r.Copy(varint.NoLimit), r.Bool()
	l.scheduled, l.at = readTimer(r)
	ok := true
	if placed {
		l.part, ok = queue.ReadPart(r, e.waiting)
	}
	x.entries = append(x.entries, l)
	return ok && e.count > 0
}

// maxRecord bounds a record; the largest are the header and the memory of a very busy session.
const maxRecord = 64 << 20

var errSnapshot = errors.New("shard: snapshot is damaged; take another one")

func damaged(what string) error { return fmt.Errorf("%w (%s)", errSnapshot, what) }

// recordReader takes chunks apart into records.
type recordReader struct {
	r   *bufio.Reader
	buf []byte // bytes of checked chunks
	pos int
}

// open reads the beginning of a snapshot, and returns its format version.
func (r *recordReader) open() (format uint8, err error) {
	var head [introLen]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return 0, readError(err)
	}
	format = head[len(snapshotMagic)]
	if string(head[:len(snapshotMagic)]) != snapshotMagic || format == 0 {
		return 0, damaged("it does not begin like one")
	}
	if format > FormatVersion {
		return 0, ErrFormat
	}
	return format, nil
}

func (r *recordReader) more() error {
	var head [8]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return readError(err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > chunkBytes {
		return damaged("chunk length")
	}
	if r.pos > 0 {
		r.buf = r.buf[:copy(r.buf, r.buf[r.pos:])]
		r.pos = 0
	}
	at := len(r.buf)
	r.buf = slices.Grow(r.buf, int(n))[:at+int(n)]
	if _, err := io.ReadFull(r.r, r.buf[at:]); err != nil {
		return readError(err)
	}
	if crc32.Checksum(r.buf[at:], castagnoli) != binary.BigEndian.Uint32(head[4:]) {
		return damaged("checksum")
	}
	return nil
}

// next reads a record; its fields are valid until the next call.
func (r *recordReader) next() (recordKind, []byte, error) {
	for {
		if rest := r.buf[r.pos:]; len(rest) > 1 {
			n, width := binary.Uvarint(rest[1:])
			if width < 0 || n > maxRecord {
				return 0, nil, damaged("record length")
			}
			if end := 1 + width + int(n); width > 0 && end <= len(rest) {
				r.pos += end
				return recordKind(rest[0]), rest[1+width : end], nil
			}
		}
		if err := r.more(); err != nil {
			return 0, nil, err
		}
	}
}

func (r *recordReader) close() error {
	if r.pos != len(r.buf) {
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
