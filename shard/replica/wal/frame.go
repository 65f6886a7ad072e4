package wal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// A frame is the unit of one write: a head, and the records of all calls that share the write.
// Frames begin at multiples of frameAlign.
//
//	 0  CRC-32C of the rest of the head and of the payload
//	 4  length of the payload
//	 8  position of the frame
//	16  synced: everything before this position was on disk when the frame was written
//	24  CRC of the frame before, or of the segment's header: the chain
//	28  number of the first segment that is needed
const (
	frameHead  = 32
	frameAlign = 8
)

type frame struct {
	sum     uint32
	at      position
	synced  position
	prev    uint32
	first   uint32
	payload []byte
	size    int64 // with head and padding
}

// seal fills in the head and the padding of a frame whose payload is there. It returns the CRC.
func seal(b []byte, payload int, at, synced position, prev, first uint32) (sum uint32) {
	le := binary.LittleEndian
	le.PutUint32(b[4:], uint32(payload))
	le.PutUint64(b[8:], uint64(at))
	le.PutUint64(b[16:], uint64(synced))
	le.PutUint32(b[24:], prev)
	le.PutUint32(b[28:], first)
	sum = crc32.Checksum(b[4:frameHead+payload], castagnoli)
	le.PutUint32(b, sum)
	clear(b[frameHead+payload:])
	return sum
}

// frameSize is the length of a frame with such a payload.
func frameSize(payload int) int64 {
	return int64((frameHead + payload + frameAlign - 1) / frameAlign * frameAlign)
}

// openFrame reads the frame at an offset of a segment; ok is false without a whole frame.
func openFrame(content []byte, segment uint32, offset int64) (f frame, ok bool) {
	le := binary.LittleEndian
	if offset+frameHead > int64(len(content)) {
		return f, false
	}
	b := content[offset:]
	f.at = at(segment, offset)
	if position(le.Uint64(b[8:])) != f.at {
		return f, false
	}
	n := int64(le.Uint32(b[4:]))
	if frameHead+n > int64(len(b)) {
		return f, false
	}
	f.sum = le.Uint32(b)
	if crc32.Checksum(b[4:frameHead+n], castagnoli) != f.sum {
		return f, false
	}
	f.synced, f.prev, f.first = position(le.Uint64(b[16:])), le.Uint32(b[24:]), le.Uint32(b[28:])
	f.payload = b[frameHead : frameHead+n]
	f.size = frameSize(int(n))
	return f, true
}

// A segment's header fills its first page, so that no later write touches the header's sector.
//
//	 0  magic
//	 8  format version
//	12  number of the segment
//	16  identity of the log
//	24  end of the segment before: 0 for the first segment
//	32  CRC of the last frame before that end
//	36  number of the first segment that is needed
//	40  CRC-32C of all that
const (
	headerSize = 4096
	headerLen  = 44
)

// FormatVersion is the version of the log's files.
const FormatVersion = 1

var headerMagic = []byte("signwal\n")

type header struct {
	version uint32
	number  uint32
	id      uint64
	prevEnd position
	prevSum uint32
	first   uint32
	sum     uint32 // where the chain of the segment begins
}

func (h *header) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, headerMagic)
	le := binary.LittleEndian
	le.PutUint32(b[8:], FormatVersion)
	le.PutUint32(b[12:], h.number)
	le.PutUint64(b[16:], h.id)
	le.PutUint64(b[24:], uint64(h.prevEnd))
	le.PutUint32(b[32:], h.prevSum)
	le.PutUint32(b[36:], h.first)
	h.sum = crc32.Checksum(b[:40], castagnoli)
	le.PutUint32(b[40:], h.sum)
	return b
}

// parseHeader reads the header of a segment; false: it has none.
func parseHeader(b []byte) (h header, ok bool) {
	if len(b) < headerLen || !bytes.Equal(b[:8], headerMagic) {
		return h, false
	}
	le := binary.LittleEndian
	h = header{
		version: le.Uint32(b[8:]), number: le.Uint32(b[12:]), id: le.Uint64(b[16:]),
		prevEnd: position(le.Uint64(b[24:])),
		prevSum: le.Uint32(b[32:]), first: le.Uint32(b[36:]), sum: le.Uint32(b[40:]),
	}
	return h, crc32.Checksum(b[:40], castagnoli) == h.sum
}
