package wal

import (
	"encoding/binary"
	"fmt"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// index locates the log's contents. It is built by apply alone, from the records in their order,
// when they are written and when the log is read at the start.
type index struct {
	replicas map[key]*replica
	live     int64 // bytes of entries
}

// none is a replica without records in the log.
var none replica

func (i *index) replicaOf(k key) *replica {
	if p := i.replicas[k]; p != nil {
		return p
	}
	return &none
}

// replica is the index of one replica.
type replica struct {
	state   pb.State
	stateAt position // 0: no state

	snapshot      []byte // the record, encoded: the engine changes its arguments
	snapshotIndex uint64
	snapshotTerm  uint64
	snapshotAt    position // 0: no snapshot

	bootstrap   []byte
	bootstrapAt position // 0: no bootstrap record

	entries entryIndex
	before  entryIndex // while a damaged log is read: those from before the skipped part
}

// chunkLen is the number of entries of a chunk, a power of two.
const chunkLen = 256

// chunk has the positions and sizes of entries, of those whose index divided by chunkLen is equal.
type chunk struct {
	at   [chunkLen]position // of the entry's head; 0: unknown
	size [chunkLen]uint32   // without the head
	// oldest is not above any position in the chunk. Removed entries may keep it too low.
	oldest position
}

// entryIndex finds the entries of a log. It takes 12 bytes of memory for each.
//
// While the log is read at the start there may be holes: an entry that was moved comes later than
// the entries after it. There are none at the end.
type entryIndex struct {
	first, last uint64 // first > last or 0: no entries
	base        uint64 // number of chunks[0]
	chunks      []*chunk
	bytes       int64 // of live entries
}

func (e *entryIndex) empty() bool { return e.first == 0 || e.first > e.last }

func (e *entryIndex) clear() { *e = entryIndex{} }

// chunkOf returns an entry's chunk, or nil.
func (e *entryIndex) chunkOf(i uint64) *chunk {
	n := i / chunkLen
	if n < e.base || n-e.base >= uint64(len(e.chunks)) {
		return nil
	}
	return e.chunks[n-e.base]
}

// get returns an entry's position and size; position 0 if it is not in the log.
func (e *entryIndex) get(i uint64) (position, uint32) {
	if e.empty() || i < e.first || i > e.last {
		return 0, 0
	}
	c := e.chunkOf(i)
	if c == nil {
		return 0, 0
	}
	return c.at[i%chunkLen], c.size[i%chunkLen]
}

// maxHole bounds the chunks of a hole that may be filled later.
const maxHole = 1 << 24

var errIndex = fmt.Errorf("%w: the indexes of entries are out of order", errRecord)

// set notes an entry's position. It widens the range of the log.
func (e *entryIndex) set(i uint64, at position, size uint32) error {
	if i == 0 {
		return errIndex
	}
	n := i / chunkLen
	switch {
	case e.empty():
		*e = entryIndex{first: i, last: i, base: n, chunks: append(e.chunks[:0], new(chunk))}
	case n < e.base:
		if e.base-n > maxHole {
			return errIndex
		}
		e.chunks = append(make([]*chunk, e.base-n, e.base-n+uint64(len(e.chunks))), e.chunks...)
		e.base = n
	case n-e.base >= uint64(len(e.chunks)):
		if n-e.base-uint64(len(e.chunks)) > maxHole {
			return errIndex
		}
		for n-e.base >= uint64(len(e.chunks)) {
			e.chunks = append(e.chunks, nil)
		}
	}
	c := e.chunks[n-e.base]
	if c == nil {
		c = new(chunk)
		e.chunks[n-e.base] = c
	}
	if c.at[i%chunkLen] != 0 {
		e.bytes -= int64(c.size[i%chunkLen])
	}
	c.at[i%chunkLen], c.size[i%chunkLen] = at, size
	if c.oldest == 0 || at < c.oldest {
		c.oldest = at
	}
	e.bytes += int64(size)
	e.first, e.last = min(e.first, i), max(e.last, i)
	return nil
}

func (e *entryIndex) unset(from, to uint64) {
	for i := from; i <= to; i++ {
		c := e.chunkOf(i)
		if c == nil {
			i |= chunkLen - 1
			continue
		}
		if c.at[i%chunkLen] != 0 {
			e.bytes -= int64(c.size[i%chunkLen])
			c.at[i%chunkLen] = 0
		}
	}
}

// truncate removes the entries from an index on.
func (e *entryIndex) truncate(from uint64) {
	if e.empty() || from > e.last {
		return
	}
	if from <= e.first {
		e.clear()
		return
	}
	e.unset(from, e.last)
	e.last = from - 1
	keep := e.last/chunkLen - e.base + 1
	if keep < uint64(len(e.chunks)) {
		clear(e.chunks[keep:])
		e.chunks = e.chunks[:keep]
	}
	if c := e.chunks[keep-1]; c != nil {
		c.findOldest()
	}
}

// cut removes the entries up to an index.
func (e *entryIndex) cut(to uint64) {
	if e.empty() || to < e.first {
		return
	}
	if to >= e.last {
		e.clear()
		return
	}
	e.unset(e.first, to)
	e.first = to + 1
	drop := e.first/chunkLen - e.base
	if drop > 0 {
		// A copy now and then frees the room of the former ones.
		if drop > uint64(len(e.chunks))/2 {
			e.chunks = append([]*chunk(nil), e.chunks[drop:]...)
		} else {
			clear(e.chunks[:drop])
			e.chunks = e.chunks[drop:]
		}
		e.base += drop
	}
	if c := e.chunks[0]; c != nil {
		c.findOldest()
	}
}

func (c *chunk) findOldest() {
	c.oldest = 0
	for _, p := range c.at {
		if p != 0 && (c.oldest == 0 || p < c.oldest) {
			c.oldest = p
		}
	}
}

// hole returns the first index from which on an entry is missing.
func (e *entryIndex) hole() (uint64, bool) {
	if e.empty() {
		return 0, false
	}
	for i := e.first; i <= e.last; i++ {
		if p, _ := e.get(i); p == 0 {
			return i, true
		}
	}
	return 0, false
}

// inSegment calls f with the entries that are in a segment, in order, until f returns false.
func (e *entryIndex) inSegment(number uint32, f func(i uint64, at position, size uint32) bool) {
	if e.empty() {
		return
	}
	for n, c := range e.chunks {
		if c == nil || c.oldest.segment() > number {
			continue
		}
		c.findOldest() // the entries that made it too low may be removed
		if c.oldest == 0 || c.oldest.segment() > number {
			continue
		}
		for s, p := range c.at {
			if p != 0 && p.segment() == number && !f((e.base+uint64(n))*chunkLen+uint64(s), p, c.size[s]) {
				return
			}
		}
	}
}

func (i *index) apply(r *record) error {
	if r.kind == removedRecord {
		if p := i.replicas[r.key]; p != nil {
			i.live -= p.entries.bytes
		}
		delete(i.replicas, r.key)
		return nil
	}
	p := i.replicas[r.key]
	if p == nil {
		if r.kind == cutRecord {
			return nil
		}
		p = new(replica)
		i.replicas[r.key] = p
	}
	was := p.entries.bytes
	err := p.apply(r)
	i.live += p.entries.bytes - was
	return err
}

func (p *replica) apply(r *record) error {
	switch r.kind {
	case stateRecord:
		p.state, p.stateAt = r.state, r.at
	case snapshotRecord, installedRecord:
		if r.index < p.snapshotIndex {
			return nil
		}
		if r.kind == installedRecord && r.index > p.snapshotIndex {
			p.entries.clear()
		}
		p.snapshot, p.snapshotIndex, p.snapshotTerm, p.snapshotAt =
			append([]byte(nil), r.body...), r.index, r.term, r.at
	case bootstrapRecord:
		p.bootstrap, p.bootstrapAt = append([]byte{}, r.body...), r.at
	case cutRecord:
		p.entries.cut(r.index)
	case entriesRecord, movedRecord:
		if r.kind == entriesRecord {
			p.entries.truncate(r.index)
		}
		at := r.at
		for body, i := r.body, r.index; len(body) > 0; i++ {
			n := binary.LittleEndian.Uint32(body[4:])
			if err := p.entries.set(i, at, n); err != nil {
				return err
			}
			body, at = body[entryHead+n:], at+position(entryHead+n)
		}
	}
	return nil
}
