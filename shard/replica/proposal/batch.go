package proposal

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// Origin identifies the request that waits for a command's outcome. The zero Origin: no request.
type Origin struct {
	Conn    uint64        // ids are never reused in a process
	Request uint64        // request id on Conn
	Kind    protocol.Kind // of the request
	Tag     uint64        // for the caller's use
}

// headerRoom is kept free in front of a batch's commands: the header is known only when the batch
// is proposed.
const headerRoom = 64

// Batch is a list of commands on their way into the log, and the waiters for their outcomes.
//
// It has one owner at a time: the queue while it is open or sealed, the proposer while it encodes,
// then the list of batches in flight. The goroutine that removes it from that list reports the
// outcome and recycles it. The engine copies the bytes before Propose returns, so buf is free from
// then on.
type Batch struct {
	Epoch, Seq uint64
	Began      int64    // when it was proposed, by the host's clock
	Origins    []Origin // one per command
	Waiters    []Waiter
	buf        []byte
	queuing    []uint64 // sessions of the commands that only queue up, while all commands do: see handOff
}

// Waiter waits for a command that the replica itself submitted.
type Waiter struct {
	Command int         // which of its batch; set by the queue
	Done    func(error) // called once, must not block; or
	Task    uint64      // Done is nil: the id of a command of the leader's step machine
}

func (b *Batch) reset() {
	b.Epoch, b.Seq, b.Began = 0, 0, 0
	if cap(b.buf) < headerRoom {
		b.buf = make([]byte, headerRoom, 4<<10)
	}
	b.buf = b.buf[:headerRoom]
	b.Origins = b.Origins[:0]
	clear(b.Waiters)
	b.Waiters = b.Waiters[:0]
	b.queuing = b.queuing[:0]
}

func (b *Batch) empty() bool { return len(b.Origins) == 0 }

func (b *Batch) size() int { return len(b.buf) - headerRoom }

func (b *Batch) add(c shard.Command, o Origin) {
	b.buf = shard.AppendCommand(b.buf, c)
	b.Origins = append(b.Origins, o)
}

// Encode puts the header in front of the commands and returns the whole entry, which aliases the
// batch.
func (b *Batch) Encode(h shard.Header) []byte {
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
type batchPool struct{ free []*Batch }

func (p *batchPool) get() *Batch {
	n := len(p.free)
	if n == 0 {
		b := new(Batch)
		b.reset()
		return b
	}
	b := p.free[n-1]
	p.free[n-1] = nil
	p.free = p.free[:n-1]
	return b
}

func (p *batchPool) put(b *Batch) {
	if len(p.free) >= 16 {
		return
	}
	if cap(b.buf) > maxPooledBuffer {
		b.buf = nil
	}
	b.reset()
	p.free = append(p.free, b)
}
