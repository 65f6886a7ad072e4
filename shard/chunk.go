package shard

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
	"github.com/signalbox-dev/signalbox/shard/queue"
)

// A chunk of an export: format version (1 byte), the run (as in a command's body), the cursor it
// begins at, the cursor of the chunk that follows (empty after the last), records, a hash of all
// that (8 bytes). A record is its kind (1 byte) and its fields with their length before them, in
// order of an export:
//
//	counters   per bucket: what it has given out, and its time
//	session    at home in the run
//	ended      create ids of sessions that ended lately
//	session    record: what is known here of a session: attach epoch, low-water mark,
//	           description, and remembered answers to requests on the run's semaphores
//	semaphore  then its entries; one that continues from the chunk before is named by a
//	           "more" record instead
//	process    whole, behind the session records of its members
//	part       of a track's or limit's record, from its beginning on, where that is longer than a
//	           chunk
//	track      the rest of its record, behind the session records of its sessions
//	limit      the same of a rate limit's tree
//
// The session records of an object fill as many chunks as they need. The chunk with the end of the
// object has all of them, since a session that ended in between would be unknown; without
// descriptions then.
//
// A session's record comes before the first entry or object of the session in each chunk, without
// answers. All deadlines are in the bucket's time, which moves with it.
const (
	chunkCounters      = 1
	chunkHomeSession   = 2
	chunkEndedCreateID = 3
	chunkSessionRecord = 4
	chunkSemaphore     = 5
	chunkSemaphoreMore = 6
	chunkEntry         = 7
	chunkProcess       = 8
	chunkTrack         = 9
	chunkTrackPart     = 10
	chunkLimit         = 11
	chunkLimitPart     = 12

	chunkQueue = 40 // a semaphore that is not plain: the fields of chunkSemaphore, and more
	chunkPlace = 41 // an entry that is not plain: the fields of chunkEntry, and more
)

const chunkSeed = 0x6275636b6574 // of the hash

// exportCursor is a position in an export: behind the item that it names. The zero value is the
// beginning.
type exportCursor struct {
	section byte
	bucket  uint64
	node    uint64
	id      uint64 // session, or order id, or bytes of an object's record
	seq     uint64 // of an answer, or an object's session
	key     []byte // create id, or semaphore key
}

// Sections of an export, in order.
const (
	sectionCounters = iota
	sectionSessions
	sectionEndedCreateIDs
	sectionAnswers
	sectionSemaphores
	sectionObjects // and a section for each further kind of them
	sectionEnd     = sectionObjects + kindCount
)

func (e *exportCursor) append(b []byte) []byte {
	b = append(b, e.section)
	b = varint.Append(b, e.bucket, e.node, e.id, e.seq)
	return varint.AppendBytes(b, e.key)
}

func (e *exportCursor) read(b []byte) bool {
	*e = exportCursor{}
	if len(b) == 0 {
		return true
	}
	r := varint.Reader{Rest: b}
	e.section = r.Byte()
	e.bucket, e.node, e.id, e.seq = r.Uint(), r.Uint(), r.Uint(), r.Uint()
	e.key = r.Bytes(varint.NoLimit)
	return !r.Failed && len(r.Rest) == 0 && e.section < sectionEnd
}

// compare orders positions as an export visits them. A position within a session's answers sorts
// before the position after the session.
func (e *exportCursor) compare(o *exportCursor) int {
	return cmp.Or(cmp.Compare(e.section, o.section), cmp.Compare(e.bucket, o.bucket), cmp.Compare(e.node, o.node),
		bytes.Compare(e.key, o.key),
		cmp.Compare(e.id, o.id), cmp.Compare(e.seq-1, o.seq-1))
}

// chunk is one that was read and checked. Byte strings alias it.
type chunk struct {
	format      uint8
	start, next exportCursor
	nextBytes   []byte
	nodes       []uint64 // that the records name; one may be there more than once
	records     []byte   // see each
}

// chunkRecord is one of the kinds; only its fields are set. A chunk has thousands of them, so each
// is read when its turn comes: the log waits for an import, and for the collection of its garbage.
type chunkRecord struct {
	kind byte

	bucket, orderCounter, versionFloor, sessionCounter, timeBase uint64 // counters

	id, node, epoch, nonce      uint64
	desc                        []byte
	key, create                 [protocol.KeyLen]byte // create alone with chunkEndedCreateID
	client                      []byte
	created, timeout, remaining uint64
	parent                      uint64 // 0: none
	link                        protocol.Link
	attached, ended             bool

	low     uint64
	answers []answer
	ending  *protocol.Ending // of an ended session; nil: it is not known

	name, data                []byte
	limit, version            uint64
	ephemeral, waiting, timed bool

	orderID, count, seq, since, at uint64
	queue                          *queue.Queue // chunkQueue
	part                           *queue.Part  // chunkPlace

	object kindNumber
	piece  bool // of an object's record
}

// readChunk takes a chunk of the run apart and checks all that does not depend on the state.
func readChunk(b []byte, x *BucketsBody) (*chunk, bool) {
	if len(b) < 9 || hash(chunkSeed, b[:len(b)-8]) != binary.BigEndian.Uint64(b[len(b)-8:]) {
		return nil, false
	}
	r := varint.Reader{Rest: b[:len(b)-8]}
	var of BucketsBody
	format := r.Byte()
	if format == 0 || format > FormatVersion || !of.readFrom(&r) || of != *x {
		return nil, false
	}
	c := &chunk{format: format}
	at, next := r.Bytes(varint.NoLimit), r.Bytes(varint.NoLimit)
	if r.Failed || !c.start.read(at) || !c.next.read(next) || len(next) > 0 && c.next.compare(&c.start) <= 0 {
		return nil, false
	}
	c.nextBytes, c.records = next, r.Rest
	inSemaphore := false
	ok := c.each(x, func(rec *chunkRecord) bool {
		entry := rec.kind == chunkEntry || rec.kind == chunkPlace
		if entry && !inSemaphore {
			return false
		}
		inSemaphore = rec.kind == chunkSemaphore || rec.kind == chunkQueue || rec.kind == chunkSemaphoreMore ||
			inSemaphore && (entry || rec.kind == chunkSessionRecord)
		if n := len(c.nodes); rec.node != 0 && (n == 0 || c.nodes[n-1] != rec.node) {
			c.nodes = append(c.nodes, rec.node)
		}
		return true
	})
	return c, ok
}

// each reads the records of the run, until yield returns false or a record is malformed; ok says
// that neither happened. A record is valid until yield returns.
func (c *chunk) each(x *BucketsBody, yield func(*chunkRecord) bool) (ok bool) {
	r := varint.Reader{Rest: c.records}
	var rec chunkRecord
	for len(r.Rest) > 0 {
		rec = chunkRecord{kind: r.Byte(), answers: rec.answers[:0]}
		f := varint.Reader{Rest: r.Bytes(varint.NoLimit)}
		ok := rec.read(&f, x)
		if r.Failed || f.Failed || !ok || len(f.Rest) != 0 || !yield(&rec) {
			return false
		}
	}
	return true
}

func (b *BucketsBody) contains(bucket uint64) bool {
	return bucket >= uint64(b.First) && bucket-uint64(b.First) < uint64(b.Count)
}

func (c *chunkRecord) read(r *varint.Reader, x *BucketsBody) bool {
	switch c.kind {
	case chunkCounters:
		c.bucket, c.orderCounter, c.versionFloor, c.sessionCounter, c.timeBase = r.Uint(), r.Uint(), r.Uint(), r.Uint(), r.Uint()
		return x.contains(c.bucket)
	case chunkHomeSession:
		c.id, c.node, c.epoch, c.desc = r.Uint(), r.Uint(), r.Uint(), r.Bytes(varint.NoLimit)
		r.Fixed(c.key[:])
		r.Fixed(c.create[:])
		c.nonce, c.client, c.created = r.Uint(), r.Bytes(varint.NoLimit), r.Uint()
		c.timeout, c.attached, c.at = r.Uint(), r.Bool(), r.Uint()
		if len(r.Rest) > 0 {
			c.parent, c.link = r.Uint(), protocol.Link(r.Byte())
		}
		home := uint64(protocol.HomeBucket(c.create, x.Total))
		return x.contains(home) && protocol.SessionTier(c.id) == x.Tier &&
			uint64(protocol.SessionBucket(c.id)) == home && c.id>>56 == 0 &&
			c.timeout <= 1<<32-1 && len(c.desc) <= maxDescription
	case chunkEndedCreateID:
		r.Fixed(c.create[:])
		c.remaining = r.Uint()
		return c.remaining <= Retention
	case chunkSessionRecord:
		c.id, c.node, c.epoch, c.low, c.desc, c.ended = r.Uint(), r.Uint(), r.Uint(), r.Uint(),
			r.Bytes(varint.NoLimit), r.Bool()
		n := r.Count(varint.NoLimit)
		for after := uint64(0); n > 0; n-- {
			a, ok := readAnswer(r, after)
			if !ok || !x.contains(uint64(a.bucket)) {
				return false
			}
			after = a.seq
			c.answers = append(c.answers, a)
		}
		if len(r.Rest) > 0 {
			c.ending = new(protocol.Ending)
			varint.Decode(r, func(f *varint.Fields) { EndingFields(f, c.ending) })
		}
		return c.id != 0 && len(c.desc) <= maxDescription
	case chunkSemaphore, chunkQueue:
		c.node, c.name, c.data = r.Uint(), r.Bytes(varint.NoLimit), r.Bytes(varint.NoLimit)
		c.limit, c.version, c.created, c.ephemeral = r.Uint(), r.Uint(), r.Uint(), r.Bool()
		if c.kind == chunkQueue {
			var ok bool
			if c.queue, ok = queue.Read(r, c.limit); !ok || c.ephemeral && c.queue.HasOptions() {
				return false
			}
		}
		return c.limit > 0 && c.validName(x)
	case chunkSemaphoreMore:
		c.node, c.name = r.Uint(), r.Bytes(varint.NoLimit)
		return c.validName(x)
	case chunkEntry, chunkPlace:
		c.id, c.orderID, c.count, c.seq, c.timeout, c.since = r.Uint(), r.Uint(), r.Uint(),
			r.Uint(), r.Uint(), r.Uint()
		c.data, c.waiting, c.timed, c.at = r.Bytes(varint.NoLimit), r.Bool(), r.Bool(), r.Uint()
		if c.kind == chunkPlace {
			var ok bool
			if c.part, ok = queue.ReadPart(r, c.waiting); !ok {
				return false
			}
		}
		bound := uint64(0)
		if !c.waiting {
			bound = c.part.Bound()
		}
		return c.count > 0 && (c.waiting || c.timed == (bound != 0) && c.at == bound)
	}
	return c.readObject(r, x)
}

func (c *chunkRecord) validName(x *BucketsBody) bool {
	return len(c.name) > 0 && len(c.name) <= protocol.MaxNameLen &&
		x.contains(uint64(protocol.Bucket(c.node, c.name, x.Total)))
}

type chunkWriter struct {
	buf             []byte
	fields          []byte
	maxBytes        int
	scanBudget      int             // records that may still be looked at
	writtenSessions map[uint64]bool // whose session record is in this chunk
}

func (w *chunkWriter) full() bool { return len(w.buf) >= w.maxBytes || w.scanBudget <= 0 }

func (w *chunkWriter) put(kind byte, fields []byte) {
	w.buf = append(w.buf, kind)
	w.buf = varint.AppendBytes(w.buf, fields)
	w.fields = fields[:0]
}

func (w *chunkWriter) counters(b *bucket) {
	w.put(chunkCounters, varint.Append(w.fields, uint64(b.number), b.orderCounter, b.versionFloor, b.sessionCounter, b.timeBase))
}

func (w *chunkWriter) homeSession(s *homeSession) {
	f := varint.Append(w.fields, s.id, s.node.id, s.epoch)
	f = varint.AppendBytes(f, s.description)
	f = append(f, s.key[:]...)
	f = append(f, s.createID[:]...)
	f = varint.Append(f, s.nonce)
	f = varint.AppendBytes(f, s.client)
	f = varint.Append(f, s.created, uint64(s.timeout))
	f = varint.AppendBool(f, s.attached)
	f = varint.Append(f, s.timer.at)
	if parent := s.node.families.parent(s.id); parent != 0 || s.link != 0 {
		f = varint.Append(f, parent, uint64(s.link))
	}
	w.put(chunkHomeSession, f)
}

func (w *chunkWriter) endedCreateID(key [protocol.KeyLen]byte, remain uint64) {
	w.put(chunkEndedCreateID, varint.Append(append(w.fields, key[:]...), remain))
}

// sessionRecord adds a session's record, with some answers.
func (w *chunkWriter) sessionRecord(p *sessionRecord, withDescription bool, answers []answer) {
	f := varint.Append(w.fields, p.id, p.node.id, p.epoch, p.low)
	description := ""
	if withDescription {
		description = p.description
	}
	f = varint.AppendBytes(f, description)
	f = varint.AppendBool(f, p.ended)
	f = varint.Append(f, uint64(len(answers)))
	for i := range answers {
		f = appendAnswer(f, &answers[i])
	}
	if p.ending != nil {
		f = varint.Encode(f, func(x *varint.Fields) { EndingFields(x, p.ending) })
	}
	w.put(chunkSessionRecord, f)
	w.writtenSessions[p.id] = true
}

func (w *chunkWriter) semaphore(s *semaphore, more bool) {
	f := varint.Append(w.fields, s.node.id)
	f = varint.AppendBytes(f, s.name)
	if more {
		w.put(chunkSemaphoreMore, f)
		return
	}
	f = varint.AppendBytes(f, s.data)
	f = varint.Append(f, s.limit, s.version, s.created)
	f = varint.AppendBool(f, s.ephemeral)
	if q := s.core(); !q.IsPlain() {
		w.put(chunkQueue, varint.Encode(f, q.Fields))
	} else {
		w.put(chunkSemaphore, f)
	}
}

func (w *chunkWriter) entry(e *entry) {
	if !w.writtenSessions[e.session.id] {
		w.sessionRecord(e.session, true, nil)
	}
	f := varint.Append(w.fields, e.session.id, e.orderID, e.count, e.seq, e.timeout, e.since)
	f = varint.AppendBytes(f, e.data)
	f = varint.AppendBool(f, e.waiting)
	f = varint.AppendBool(f, e.timer.pos > 0)
	f = varint.Append(f, e.timer.at)
	if p := e.semaphore.core().PartOf(e.orderID); p != nil {
		w.put(chunkPlace, varint.Encode(f, p.Fields))
	} else {
		w.put(chunkEntry, f)
	}
}

func (w *chunkWriter) finish(format uint8, x *BucketsBody, at, next []byte) []byte {
	b := make([]byte, 0, len(w.buf)+len(at)+len(next)+64)
	b = AppendBuckets(append(b, format), *x)
	b = varint.AppendBytes(varint.AppendBytes(b, at), next)
	b = append(b, w.buf...)
	return binary.BigEndian.AppendUint64(b, hash(chunkSeed, b))
}
