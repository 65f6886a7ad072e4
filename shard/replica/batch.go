package replica

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// headroom is left free in front of a batch's commands: its header is only known when it is proposed, and is then put right before them.
const headerRoom = 64

// batch is a list of commands on its way into the log, and who waits for them.
//
// It has one owner at a time: the line while it is open or sealed, the proposer while it encodes, then the list of batches in flight, and whoever takes
// it off that list delivers the outcome and gives it back. The engine copies the bytes of a proposal before Propose returns, so that buf is free again
// from then on.
type batch struct {
	epoch, seq uint64
	began      int64 // when it was proposed, by the host's clock
	buf        []byte
	origins    []Origin // one per command
	waiters    []internalWaiter
}

// internalWaiter is a command of the replica's own in a batch.
type internalWaiter struct {
	command int
	fn      func(error) // called once, must not block; or
	taskID  uint64      // fn is nil: a command of the leader's duties, with this note
}

func (b *batch) reset() {
	b.epoch, b.seq, b.began = 0, 0, 0
	if cap(b.buf) < headerRoom {
		b.buf = make([]byte, headerRoom, 4<<10)
	}
	b.buf = b.buf[:headerRoom]
	b.origins = b.origins[:0]
	clear(b.waiters)
	b.waiters = b.waiters[:0]
}

func (b *batch) empty() bool { return len(b.origins) == 0 }

func (b *batch) size() int { return len(b.buf) - headerRoom }

func (b *batch) add(c shard.Command, o Origin) {
	b.buf = shard.AppendCommand(b.buf, c)
	b.origins = append(b.origins, o)
}

// encode puts the header in front of the commands and returns the whole entry, which aliases the batch.
func (b *batch) encode(h shard.Header) []byte {
	var room [headerRoom]byte
	head := shard.AppendHeader(room[:0], h)
	if len(head) > headerRoom {
		return append(head, b.buf[headerRoom:]...)
	}
	from := headerRoom - len(head)
	copy(b.buf[from:], head)
	return b.buf[from:]
}

// maxPooledBuffer is the largest buffer that is kept for the next batch.
const maxPooledBuffer = 1 << 20

// batchPool keeps a few batches for reuse. It is guarded by the line's lock; unlike a sync.Pool it does not grow with the number of processors,
// and is not emptied by the garbage collector.
type batchPool struct{ free []*batch }

func (p *batchPool) get() *batch {
	n := len(p.free)
	if n == 0 {
		b := new(batch)
		b.reset()
		return b
	}
	b := p.free[n-1]
	p.free[n-1] = nil
	p.free = p.free[:n-1]
	return b
}

func (p *batchPool) put(b *batch) {
	if len(p.free) >= 16 {
		return
	}
	if cap(b.buf) > maxPooledBuffer {
		b.buf = nil
	}
	b.reset()
	p.free = append(p.free, b)
}

// statusOfReply finds the reply to a command among the events of its batch: nil when it is OK or when the command has no reply.
func statusOfReply(ev *shard.Events, command int) error {
	for i := range ev.List {
		e := &ev.List[i]
		if e.Kind == shard.EventReply && e.Command == command {
			if e.Status == protocol.StatusOK {
				return nil
			}
			return &protocol.Error{Status: e.Status, Message: e.Text}
		}
	}
	return nil
}
