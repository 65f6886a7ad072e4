package wal

import (
	"encoding/binary"
	"fmt"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// index is what the log has. It is built by apply alone, from the records in their order, when they
// are written and when the log is read at the start.
type index struct {
	replicas map[key]*replica
	live     int64 // bytes of entries
}

// none is a replica that the log has nothing of.
var none replica

func (x *index) replicaOf(k key) *replica {
	if p := x.replicas[k]; p != nil {
		return p
	}
	return &none
}

// replica is what the log has of one replica.
type replica struct {
	state   pb.State
	stateAt position // 0: no state

	snapshot      []byte // the record, encoded: the engine changes what it is given
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

func (x *entryIndex) empty() bool { return x.first == 0 || x.first > x.last }

func (x *entryIndex) clear() { *x = entryIndex{} }

// chunkOf returns an entry's chunk; nil if there is none.
func (x *entryIndex) chunkOf(i uint64) *chunk {
	n := i / chunkLen
	if n < x.base || n-x.base >= uint64(len(x.chunks)) {
		return nil
	}
	return x.chunks[n-x.base]
}

// get returns an entry's position and size; position 0 if it is not in the log.
func (x *entryIndex) get(i uint64) (position, uint32) {
	if x.empty() || i < x.first || i > x.last {
		return 0, 0
	}
	c := x.chunkOf(i)
	if c == nil {
		return 0, 0
	}
	return c.at[i%chunkLen], c.size[i%chunkLen]
}

// maxHole bounds the chunks of a hole that may be filled later.
const maxHole = 1 << 24

var errIndex = fmt.Errorf("%w: the indexes of entries are out of order", errRecord)

// set notes an entry's position. It widens the range of the log.
func (x *entryIndex) set(i uint64, at position, size uint32) error {
	if i == 0 {
		return errIndex
	}
	n := i / chunkLen
	switch {
	case x.empty():
		*x = entryIndex{first: i, last: i, base: n, chunks: append(x.chunks[:0], new(chunk))}
	case n < x.base:
		if x.base-n > maxHole {
			return errIndex
		}
		x.chunks = append(make([]*chunk, x.base-n, x.base-n+uint64(len(x.chunks))), x.chunks...)
		x.base = n
	case n-x.base >= uint64(len(x.chunks)):
		if n-x.base-uint64(len(x.chunks)) > maxHole {
			return errIndex
		}
		for n-x.base >= uint64(len(x.chunks)) {
			x.chunks = append(x.chunks, nil)
		}
	}
	c := x.chunks[n-x.base]
	if c == nil {
		c = new(chunk)
		x.chunks[n-x.base] = c
	}
	if c.at[i%chunkLen] != 0 {
		x.bytes -= int64(c.size[i%chunkLen])
	}
	c.at[i%chunkLen], c.size[i%chunkLen] = at, size
	if c.oldest == 0 || at < c.oldest {
		c.oldest = at
	}
	x.bytes += int64(size)
	x.first, x.last = min(x.first, i), max(x.last, i)
	return nil
}

func (x *entryIndex) unset(from, to uint64) {
	for i := from; i <= to; i++ {
		c := x.chunkOf(i)
		if c == nil {
			i |= chunkLen - 1
			continue
		}
		if c.at[i%chunkLen] != 0 {
			x.bytes -= int64(c.size[i%chunkLen])
			c.at[i%chunkLen] = 0
		}
	}
}

// truncate removes the entries from an index on.
func (x *entryIndex) truncate(from uint64) {
	if x.empty() || from > x.last {
		return
	}
	if from <= x.first {
		x.clear()
		return
	}
	x.unset(from, x.last)
	x.last = from - 1
	keep := x.last/chunkLen - x.base + 1
	if keep < uint64(len(x.chunks)) {
		clear(x.chunks[keep:])
		x.chunks = x.chunks[:keep]
	}
	if c := x.chunks[keep-1]; c != nil {
		c.findOldest()
	}
}

// cut removes the entries up to an index.
func (x *entryIndex) cut(to uint64) {
	if x.empty() || to < x.first {
		return
	}
	if to >= x.last {
		x.clear()
		return
	}
	x.unset(x.first, to)
	x.first = to + 1
	drop := x.first/chunkLen - x.base
	if drop > 0 {
		// A copy now and then frees the room of the former ones.
		if drop > uint64(len(x.chunks))/2 {
			x.chunks = append([]*chunk(nil), x.chunks[drop:]...)
		} else {
			clear(x.chunks[:drop])
			x.chunks = x.chunks[drop:]
		}
		x.base += drop
	}
	if c := x.chunks[0]; c != nil {
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
func (x *entryIndex) hole() (uint64, bool) {
	if x.empty() {
		return 0, false
	}
	for i := x.first; i <= x.last; i++ {
		if p, _ := x.get(i); p == 0 {
			return i, true
		}
	}
	return 0, false
}

// inSegment calls f with the entries that are in a segment, in order, until f returns false.
func (x *entryIndex) inSegment(number uint32, f func(i uint64, at position, size uint32) bool) {
	if x.empty() {
		return
	}
	for n, c := range x.chunks {
		if c == nil || c.oldest.segment() > number {
			continue
		}
		c.findOldest() // what made it too low may be removed
		if c.oldest == 0 || c.oldest.segment() > number {
			continue
		}
		for s, p := range c.at {
			if p != 0 && p.segment() == number && !f((x.base+uint64(n))*chunkLen+uint64(s), p, c.size[s]) {
				return
			}
		}
	}
}

func (x *index) apply(r *record) error {
	if r.kind == removedRecord {
		if p := x.replicas[r.key]; p != nil {
			x.live -= p.entries.bytes
		}
		delete(x.replicas, r.key)
		return nil
	}
	p := x.replicas[r.key]
	if p == nil {
		if r.kind == cutRecord {
			return nil
		}
		p = new(replica)
		x.replicas[r.key] = p
	}
	was := p.entries.bytes
	err := p.apply(r)
	x.live += p.entries.bytes - was
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
