package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// kind is the kind of a record in a frame.
type kind byte

const (
	stateRecord     kind = iota + 1 // hard state
	entriesRecord                   // entries; they replace the replica's earlier ones from the first index on
	movedRecord                     // entries that are copied from the oldest segment
	snapshotRecord                  // a snapshot's record
	installedRecord                 // a leader's snapshot: its record, and no entries
	bootstrapRecord                 // bootstrap information
	cutRecord                       // entries up to an index are removed
	removedRecord                   // everything of the replica is removed
)

// key identifies a replica's log.
type key struct{ shard, replica uint64 }

// position is a place in the log: the number of a segment, and an offset in it.
type position uint64

const (
	offsetBits = 32
	maxOffset  = 1<<offsetBits - 1
)

func at(segment uint32, offset int64) position {
	return position(segment)<<offsetBits | position(offset)
}

func (p position) segment() uint32 { return uint32(p >> offsetBits) }
func (p position) offset() int64   { return int64(p & maxOffset) }

func (p position) String() string {
	return fmt.Sprintf("byte %d of segment %d", p.offset(), p.segment())
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendHead(b []byte, what kind, k key) []byte {
	b = append(b, byte(what))
	b = binary.AppendUvarint(b, k.shard)
	return binary.AppendUvarint(b, k.replica)
}

func appendState(b []byte, k key, s pb.State) []byte {
	b = appendHead(b, stateRecord, k)
	b = binary.AppendUvarint(b, s.Term)
	b = binary.AppendUvarint(b, s.Vote)
	return binary.AppendUvarint(b, s.Commit)
}

// entryHead precedes each entry in a record: CRC-32C and length of its encoding.
const entryHead = 4 + 4

func appendEntries(b []byte, k key, entries []pb.Entry) []byte {
	b = appendEntriesHead(b, entriesRecord, k, entries[0].Index, len(entries))
	for i := range entries {
		e := &entries[i]
		from := len(b)
		n := entryHead + e.Size()
		b = append(b, make([]byte, n)...)
		body := pb.MustMarshalTo(e, b[from+entryHead:])
		b = b[:from+entryHead+len(body)]
		binary.LittleEndian.PutUint32(b[from:], crc32.Checksum(body, castagnoli))
		binary.LittleEndian.PutUint32(b[from+4:], uint32(len(body)))
	}
	return b
}

func appendEntriesHead(b []byte, what kind, k key, first uint64, count int) []byte {
	b = appendHead(b, what, k)
	b = binary.AppendUvarint(b, first)
	return binary.AppendUvarint(b, uint64(count))
}

// appendDocument appends a record that is a message of the engine: a snapshot or bootstrap record.
func appendDocument(b []byte, what kind, k key, index, term uint64, document []byte) []byte {
	b = appendHead(b, what, k)
	b = binary.AppendUvarint(b, index)
	b = binary.AppendUvarint(b, term)
	b = binary.AppendUvarint(b, uint64(len(document)))
	return append(b, document...)
}

func appendCut(b []byte, k key, index uint64) []byte {
	return binary.AppendUvarint(appendHead(b, cutRecord, k), index)
}

func appendRemoved(b []byte, k key) []byte { return appendHead(b, removedRecord, k) }

// record is a decoded record. Its bytes are those of the frame.
type record struct {
	kind  kind
	key   key
	state pb.State // of a stateRecord

	index, term uint64   // of a snapshot; of a cut
	body        []byte   // a document; entries, each with its head
	count       uint64   // entries
	at          position // of body
}

var errRecord = errors.New("a record cannot be read")

// records calls apply with each record of a frame's payload, whose first byte is at base.
func records(payload []byte, base position, apply func(*record) error) error {
	d := decoder{b: payload}
	for d.pos < len(payload) {
		r := record{kind: kind(d.byte()), key: key{d.uvarint(), d.uvarint()}}
		switch r.kind {
		case stateRecord:
			r.state = pb.State{Term: d.uvarint(), Vote: d.uvarint(), Commit: d.uvarint()}
		case entriesRecord, movedRecord:
			r.index, r.count = d.uvarint(), d.uvarint()
			from := d.pos
			for range r.count {
				head := d.bytes(entryHead)
				if d.failed {
					return errRecord
				}
				d.bytes(uint64(binary.LittleEndian.Uint32(head[4:])))
			}
			if d.failed {
				return errRecord
			}
			r.body, r.at = payload[from:d.pos], base+position(from)
		case snapshotRecord, installedRecord, bootstrapRecord:
			r.index, r.term = d.uvarint(), d.uvarint()
			r.body = d.bytes(d.uvarint())
			r.at = base + position(d.pos-len(r.body))
		case cutRecord:
			r.index = d.uvarint()
		case removedRecord:
		default:
			return errRecord
		}
		if d.failed {
			return errRecord
		}
		if r.at == 0 {
			r.at = base + position(d.pos)
		}
		if err := apply(&r); err != nil {
			return err
		}
	}
	return nil
}

// decoder reads a payload. After a failure everything it returns is zero.
type decoder struct {
	b      []byte
	pos    int
	failed bool
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b[d.pos:])
	if d.failed || n <= 0 {
		d.failed = true
		return 0
	}
	d.pos += n
	return v
}

func (d *decoder) bytes(n uint64) []byte {
	if d.failed || n > uint64(len(d.b)-d.pos) {
		d.failed = true
		return nil
	}
	d.pos += int(n)
	return d.b[d.pos-int(n) : d.pos]
}
