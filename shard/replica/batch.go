package replica

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// headerRoom is kept free in front of a batch's commands: the header is known only when the batch
// is proposed.
const headerRoom = 64

// batch is a list of commands on their way into the log, and what waits for their outcomes.
//
// It has one owner at a time: the proposal queue while it is open or sealed, the proposer while it
// encodes, then the list of batches in flight. The goroutine that removes it from that list reports
// the outcome and recycles it. The engine copies the bytes before Propose returns, so buf is free
// from then on.
type batch struct {
	epoch, seq uint64
	began      int64 // when it was proposed, by the host's clock
	buf        []byte
	origins    []Origin // one per command
	waiters    []internalWaiter
	queuing    []uint64 // sessions of the commands that only queue up, while all commands do: see handOff
}

// internalWaiter waits for a command that the replica itself submitted.
type internalWaiter struct {
	command int
	fn      func(error) // called once, must not block; or
	taskID  uint64      // fn is nil: the id of a command of the leader's step machine
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
	b.queuing = b.queuing[:0]
}

func (b *batch) empty() bool { return len(b.origins) == 0 }

func (b *batch) size() int { return len(b.buf) - headerRoom }

func (b *batch) add(c shard.Command, o Origin) {
	b.buf = shard.AppendCommand(b.buf, c)
	b.origins = append(b.origins, o)
}

// encode puts the header in front of the commands and returns the whole entry, which aliases the
// batch.
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

// maxPooledBuffer is the largest buffer that is kept for another batch.
const maxPooledBuffer = 1 << 20

// batchPool keeps a few batches for reuse, guarded by the queue's lock. Unlike a sync.Pool it does
// not grow with the number of processors, and garbage collection does not empty it.
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

// statusOfReply finds the reply to a command among the events of its batch; nil if it is OK or
// there is none.
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
