package meta

import (
	"encoding/binary"
	"hash/crc32"
	"hash/crc64"
	"io"
)

// A snapshot is the magic, the format version in a byte (the highest that the cluster's version
// allows), and chunks: 4 bytes big-endian length of the payload, 4 bytes CRC-32C of it, the
// payload. A payload is a section's number in a byte and its records. Sections come in the order of
// the list below, the end last; nodes in order of path, ops in order of number, trusts in order of
// name, in as many chunks as they need. The end carries the digest, by which the reader checks its
// own work too.
const (
	snapshotMagic = "sbmeta"

	sectionHead  = 1
	sectionNodes = 2
	sectionOps   = 3
	sectionEnd   = 4 // applied index, digest as 8 bytes big-endian
	sectionTrust = 5 // before the end; of format version 2

	targetChunk = 64 << 10 // a chunk is closed when it is longer
	maxChunk    = 64 << 20
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	ecma       = crc64.MakeTable(crc64.ECMA)
)

// Snapshot is a state to be written. It needs no lock.
type Snapshot struct {
	state State
}

// BeginSnapshot takes the present state. Apply must not run meanwhile; it may while the snapshot is
// written.
func (m *Machine) BeginSnapshot() *Snapshot { return &Snapshot{m.State} }

// WriteTo writes the snapshot in many small writes; see Restore. It may be called again.
func (p *Snapshot) WriteTo(w io.Writer) (int64, error) {
	out := chunkWriter{w: w}
	out.write(append([]byte(snapshotMagic), p.state.Formats().Meta))
	digest := crc64.New(ecma)
	section := byte(0)
	var payload []byte
	p.state.records(func(kind byte, record []byte) bool {
		_, _ = digest.Write(record)
		if kind != section || len(payload) > targetChunk {
			out.chunk(payload)
			section = kind
			payload = append(payload[:0], kind)
		}
		payload = append(payload, record...)
		return out.err == nil
	})
	out.chunk(payload)
	payload = binary.AppendUvarint(append(payload[:0], sectionEnd), p.state.applied)
	out.chunk(binary.BigEndian.AppendUint64(payload, digest.Sum64()))
	return out.n, out.err
}

// chunkWriter writes nothing after the first error.
type chunkWriter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *chunkWriter) write(b []byte) {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(b)
	c.n += int64(n)
	c.err = err
}

func (c *chunkWriter) chunk(payload []byte) {
	if len(payload) == 0 {
		return
	}
	var frame [8]byte
	binary.BigEndian.PutUint32(frame[:4], uint32(len(payload)))
	binary.BigEndian.PutUint32(frame[4:], crc32.Checksum(payload, castagnoli))
	c.write(frame[:])
	c.write(payload)
}
