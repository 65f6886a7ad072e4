package peer

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/lni/dragonboat/v4/raftpb"
)

// The engine's decoder of message batches trusts its input. A negative length makes it count
// messages without end, a length beyond the end makes it panic, and two bytes of an empty message
// become a struct of several hundred. So the structure is checked first.

const (
	messageSize = int(unsafe.Sizeof(raftpb.Message{}))
	entrySize   = int(unsafe.Sizeof(raftpb.Entry{}))

	maxBatchMemory = 4 * maxRaftFrame // of a decoded batch
	maxTag         = 1 << 12
	maxSnapshot    = 64 << 10 // of a message; a larger one travels as chunks
)

// allowedTypes are the types of messages that instances send each other. The engine ends the
// process over its internal types.
var allowedTypes = func() (t [32]bool) {
	for _, x := range []raftpb.MessageType{
		raftpb.NoOP, raftpb.Ping, raftpb.Pong, raftpb.Propose, raftpb.Replicate, raftpb.ReplicateResp,
		raftpb.RequestVote, raftpb.RequestVoteResp,
		raftpb.Heartbeat, raftpb.HeartbeatResp, raftpb.ReadIndex, raftpb.ReadIndexResp, raftpb.Quiesce,
		raftpb.SnapshotReceived, raftpb.LeaderTransfer,
		raftpb.TimeoutNow, raftpb.RateLimit, raftpb.RequestPreVote, raftpb.RequestPreVoteResp,
	} {
		t[x] = true
	}
	return t
}()

func isAllowed(t raftpb.MessageType) bool {
	return t >= 0 && int(t) < len(allowedTypes) && allowedTypes[t]
}

// checkBatch checks an encoded raftpb.MessageBatch: its messages and entries are within their
// bounds, and decode to a bounded amount of memory.
func checkBatch(b []byte) error {
	memory := len(b)
	w := protoReader{rest: b}
	for w.more() {
		field, sub := w.field()
		switch {
		case field == 1 && sub == nil:
			w.bad = true
		case field == 1:
			memory += messageSize
			entries, ok := checkMessage(sub)
			if !ok {
				w.bad = true
			}
			memory += entries * entrySize
		case field == 3 && len(sub) > maxName:
			w.bad = true
		}
		if memory > maxBatchMemory {
			return fmt.Errorf("%w: raft messages would take more than %d bytes", errFrame, maxBatchMemory)
		}
	}
	if w.bad {
		return fmt.Errorf("%w: raft messages are truncated or malformed", errFrame)
	}
	return nil
}

func checkMessage(b []byte) (entries int, ok bool) {
	w := protoReader{rest: b}
	for w.more() {
		field, sub := w.field()
		switch field {
		case 11:
			w.bad = w.bad || sub == nil
			entries++
		case 12:
			w.bad = w.bad || sub == nil || len(sub) > maxSnapshot
		}
	}
	return entries, !w.bad
}

// protoReader reads the fields of one protobuf message without looking into them.
type protoReader struct {
	rest []byte
	bad  bool
}

func (p *protoReader) more() bool { return !p.bad && len(p.rest) > 0 }

// field reads the next field. sub is nil for a number, and not nil for bytes.
func (p *protoReader) field() (field int, sub []byte) {
	tag := p.varint()
	if p.bad || tag < 8 || tag > maxTag {
		p.bad = true
		return 0, nil
	}
	switch tag & 7 {
	case 0:
		p.varint()
		return int(tag >> 3), nil
	case 2:
		n := p.varint()
		if p.bad || n > uint64(len(p.rest)) {
			p.bad = true
			return 0, nil
		}
		sub = p.rest[:n:n]
		p.rest = p.rest[n:]
		return int(tag >> 3), sub
	}
	p.bad = true
	return 0, nil
}

// varint reads a number of at most ten bytes.
func (p *protoReader) varint() uint64 {
	x, n := binary.Uvarint(p.rest)
	if n <= 0 {
		p.bad = true
		return 0
	}
	p.rest = p.rest[n:]
	return x
}
