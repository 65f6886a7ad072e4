package meta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// Restore reads what Snapshot.WriteTo wrote, up to its end chunk and no further. It never panics,
// and allocates no more than the size of its input. What it accepts is a state from which Apply can
// continue, whatever made the bytes.
func Restore(r io.Reader) (*Machine, error) {
	intro := make([]byte, len(snapshotMagic)+1)
	if _, err := io.ReadFull(r, intro); err != nil {
		return nil, fmt.Errorf("the snapshot of the meta shard is cut short: %w", err)
	}
	if string(intro[:len(snapshotMagic)]) != snapshotMagic {
		return nil, errors.New("these bytes are no snapshot of a meta shard; check which file is restored")
	}
	if v := intro[len(snapshotMagic)]; v == 0 || v > FormatVersion {
		return nil, fmt.Errorf(
			"the snapshot of the meta shard has format version %d, this binary reads %d; run the version that wrote it", v,
			FormatVersion)
	}
	in := restorer{in: r, format: intro[len(snapshotMagic)]}
	for !in.ended {
		if err := in.chunk(); err != nil {
			return nil, err
		}
	}
	if err := in.state.Check(); err != nil {
		return nil, err
	}
	if got := in.state.Digest(); got != in.digest {
		return nil, fmt.Errorf("the snapshot of the meta shard has digest %016x but says %016x; take another copy",
			got, in.digest)
	}
	return &Machine{State: in.state}, nil
}

var errSnapshot = errors.New("a record in the snapshot of the meta shard is damaged; take another copy")

type restorer struct {
	in      io.Reader
	format  uint8
	payload bytes.Buffer
	state   State
	section byte // of the last chunk
	digest  uint64
	ended   bool
}

func (t *restorer) chunk() error {
	var frame [8]byte
	if _, err := io.ReadFull(t.in, frame[:]); err != nil {
		return fmt.Errorf("the snapshot of the meta shard is cut short: %w", err)
	}
	n := int64(binary.BigEndian.Uint32(frame[:4]))
	if n < 1 || n > maxChunk {
		return errSnapshot
	}
	// The buffer grows with the bytes that arrive, not with the stated length.
	t.payload.Reset()
	if _, err := io.CopyN(&t.payload, t.in, n); err != nil {
		return fmt.Errorf("the snapshot of the meta shard is cut short: %w", err)
	}
	if crc32.Checksum(t.payload.Bytes(), castagnoli) != binary.BigEndian.Uint32(frame[4:]) {
		return errSnapshot
	}
	r := &varint.Reader{Rest: t.payload.Bytes()}
	last := t.section
	t.section = r.Byte()
	switch {
	case t.section == sectionHead && last == 0:
		varint.Decode(r, t.state.headFields)
	case t.section == sectionNodes && (last == sectionHead || last == sectionNodes):
		t.nodes(r)
	case t.section == sectionOps && last >= sectionHead && last <= sectionOps:
		t.ops(r)
	case t.section == sectionTrust && t.format >= formatTrusts && last >= sectionHead && last != sectionEnd:
		t.trusts(r)
	case t.section == sectionEnd && last >= sectionHead:
		t.state.applied = r.Uint()
		var sum [8]byte
		r.Fixed(sum[:])
		t.digest = binary.BigEndian.Uint64(sum[:])
		t.ended = true
	default:
		return errSnapshot
	}
	if !r.Done() {
		return errSnapshot
	}
	return nil
}

func (t *restorer) nodes(r *varint.Reader) {
	for len(r.Rest) > 0 {
		n := new(Node)
		varint.Decode(r, n.fields)
		_, path := t.state.nodes.get(n.Path)
		_, id := t.state.ids.get(n.ID)
		if r.Failed || path || id || t.state.nodes.len() >= MaxNodes {
			r.Fail()
			return
		}
		t.state.putNode(n)
	}
}

func (t *restorer) trusts(r *varint.Reader) {
	for len(r.Rest) > 0 {
		var x Trust
		if varint.Decode(r, x.fields); r.Failed || len(t.state.trusts) >= maxTrusts {
			r.Fail()
			return
		}
		t.state.trusts = append(t.state.trusts, x)
	}
}

func (t *restorer) ops(r *varint.Reader) {
	for len(r.Rest) > 0 {
		var o opRecord
		varint.Decode(r, o.fields)
		op, e := string(o.op[:]), o.opEntry
		_, known := t.state.ops.get(op)
		_, taken := t.state.opOrder.get(e.number)
		if r.Failed || known || taken || e.number > t.state.opCount || t.state.ops.len() >= MaxOps {
			r.Fail()
			return
		}
		t.state.ops = t.state.ops.put(op, e)
		t.state.opOrder = t.state.opOrder.put(e.number, op)
	}
}
