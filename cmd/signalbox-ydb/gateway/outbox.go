package gateway

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// maxQueued bounds the bytes queued for a client that reads slowly. Beyond it the stream ends.
	maxQueued = 64 << 20
	// maxReserved bounds the descriptions among them, and a description waits for room. One of
	// maxDescription bytes fits, and the other messages have the rest.
	maxReserved = maxDescription + queuedCost
	// queuedCost is about the bytes of a queued message beside its encoded form. A Pong has 2.
	queuedCost = 256
	// healthCheck is how often a message that must wait for the session to be renewed is looked at.
	healthCheck = 20 * time.Millisecond
)

// urgency says when a message may be sent.
type urgency bool

const (
	guarded urgency = false // while the session may be relied on for the client's timeout
	atOnce  urgency = true  // always: the last message of a stream
)

// outbox sends a stream's messages in order, on a goroutine that exists while there are some.
type outbox struct {
	ctx     context.Context // the stream's
	send    func(*response) error
	healthy func() bool
	fail    func(error)
	total   *atomic.Int64 // of all streams, in bytes
	kept    *share        // of the stream: queue, and descriptions that were read

	turn chan struct{} // the reservation that waits for room has it

	mu       sync.Mutex
	queue    []queued
	bytes    int // of queue, of the message that is being sent, and of reservations
	reserved int // the part of bytes that is reservations and descriptions
	writing  bool
	last     bool          // a message at once is queued: guarded ones do not wait any more
	empty    chan struct{} // closed when all is sent, if somebody waits
	room     chan struct{} // closed when a message was sent, if a reservation waits
}

type queued struct {
	m        *response
	size     int
	reserved bool // size was reserved
	when     urgency
	after    func() // called when the message was sent, or is not sent any more; may be nil
}

func newOutbox(
	ctx context.Context, to interface{ Send(*response) error }, healthy func() bool, fail func(error),
	total *atomic.Int64,
	kept *share,
) *outbox {
	return &outbox{ctx: ctx, send: to.Send, healthy: healthy, fail: fail, total: total, kept: kept,
		turn: make(chan struct{}, 1)}
}

// reserve takes room for a description, and waits until there is some. It is false if the stream
// ends first. Reservations are served in order. putReserved or unreserve follows.
func (o *outbox) reserve(m *response) (reserved bool) {
	size := proto.Size(m) + queuedCost
	o.kept.add(size) // it is in memory while it waits
	defer func() {
		if !reserved {
			o.kept.add(-size)
		}
	}()
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-o.ctx.Done():
		return false
	}
	for {
		o.mu.Lock()
		if o.reserved+size <= maxReserved && o.bytes+size <= maxQueued {
			o.reserved += size
			o.count(size)
			o.mu.Unlock()
			return true
		}
		o.room = make(chan struct{})
		room := o.room
		o.mu.Unlock()
		select {
		case <-room:
		case <-o.ctx.Done():
			return false
		}
	}
}

// unreserve gives the room of a description back.
func (o *outbox) unreserve(m *response) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.free(proto.Size(m)+queuedCost, true)
}

// count counts bytes. mu is held.
func (o *outbox) count(size int) {
	o.bytes += size
	o.total.Add(int64(size))
}

// free takes bytes out of the count. mu is held.
func (o *outbox) free(size int, reserved bool) {
	o.count(-size)
	o.kept.add(-size)
	if reserved {
		o.reserved -= size
	}
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// put queues a message. It does not wait.
func (o *outbox) put(m *response, when urgency) { o.putThen(m, when, nil) }

// putThen calls after once the message was sent or dropped.
func (o *outbox) putThen(m *response, when urgency, after func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := queued{m: m, size: proto.Size(m) + queuedCost, when: when, after: after}
	if o.bytes > 0 && o.bytes+q.size > maxQueued && when != atOnce {
		o.fail(protocol.Errorf(protocol.StatusOverloaded, "more than %d bytes wait to be sent; read the stream faster",
			maxQueued))
		return
	}
	o.count(q.size)
	o.kept.add(q.size)
	o.enqueue(q)
}

// putReserved is putThen of a description that has room.
func (o *outbox) putReserved(m *response, after func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.enqueue(queued{m: m, size: proto.Size(m) + queuedCost, reserved: true, when: guarded, after: after})
}

// enqueue appends a message, which is counted. mu is held.
func (o *outbox) enqueue(q queued) {
	o.queue = append(o.queue, q)
	o.last = o.last || q.when == atOnce
	if !o.writing {
		o.writing = true
		go o.write()
	}
}

// flush waits until all is sent, for a while.
func (o *outbox) flush(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-o.sent():
	case <-t.C:
	case <-o.ctx.Done():
	}
}

// sent is closed when all is sent.
func (o *outbox) sent() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.writing {
		all := make(chan struct{})
		close(all)
		return all
	}
	if o.empty == nil {
		o.empty = make(chan struct{})
	}
	return o.empty
}

func (o *outbox) write() {
	for {
		q, ok := o.take()
		if !ok {
			return
		}
		if o.awaitTurn(q) {
			// After an error the stream is over, and the remaining messages are dropped here.
			_ = o.send(q.m)
		}
		if q.after != nil {
			q.after()
		}
		o.mu.Lock()
		o.free(q.size, q.reserved)
		o.mu.Unlock()
	}
}

func (o *outbox) take() (q queued, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		o.queue, o.writing = nil, false
		if o.empty != nil {
			close(o.empty)
			o.empty = nil
		}
		return q, false
	}
	q = o.queue[0]
	o.queue[0] = queued{}
	o.queue = o.queue[1:]
	return q, true
}

// awaitTurn waits until a message may be sent. It is false if it may not be sent any more.
func (o *outbox) awaitTurn(q queued) bool {
	for q.when == guarded && !o.healthy() {
		o.mu.Lock()
		last := o.last
		o.mu.Unlock()
		if last {
			return false
		}
		select {
		case <-time.After(healthCheck):
		case <-o.ctx.Done():
			return false
		}
	}
	return o.ctx.Err() == nil
}
