package delivery

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
)

// frameBlocks encodes the frames of one call into few buffers that never change again, so that
// neighbours go out as one slice shared by all connections. Frames are numbered from 0.
type frameBlocks struct {
	scratch []byte // the block being filled; reused
	blocks  [][]byte
	refs    []frameRef
}

type frameRef struct{ block, from, to int }

const (
	blockSize   = 32 << 10  // a block is closed at this size; one slow connection can keep it alive
	keepScratch = 256 << 10 // a larger scratch buffer is not kept
)

func (f *frameBlocks) add(kind protocol.Kind, id, shard uint64, m protocol.Message) {
	from := len(f.scratch)
	f.scratch = protocol.AppendFrame(f.scratch, kind, id, shard, m)
	f.refs = append(f.refs, frameRef{len(f.blocks), from, len(f.scratch)})
	if len(f.scratch) >= blockSize {
		f.seal()
	}
}

// seal makes the frames added so far final. It is called before slices.
func (f *frameBlocks) seal() {
	if len(f.scratch) > 0 {
		f.blocks = append(f.blocks, bytes.Clone(f.scratch))
		f.scratch = f.scratch[:0]
	}
}

// slices appends frames first..last-1 in order, as one slice per block.
func (f *frameBlocks) slices(first, last int, to [][]byte) [][]byte {
	for first < last {
		r := f.refs[first]
		end := first + 1
		for end < last && f.refs[end].block == r.block {
			end++
		}
		stop := f.refs[end-1].to
		to = append(to, f.blocks[r.block][r.from:stop:stop])
		first = end
	}
	return to
}

// reset drops everything but memory. Slices that were returned stay valid.
func (f *frameBlocks) reset() {
	clear(f.blocks)
	f.blocks, f.refs = f.blocks[:0], f.refs[:0]
	if cap(f.scratch) > keepScratch {
		f.scratch = nil
	}
}
