package gateway

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// maxQueued bounds what waits for a client that reads slowly, in bytes. The longest description
	// always fits.
	maxQueued = 64 << 20
	// queuedCost is about what a queued message takes beside its encoded form: a Pong has 2 bytes.
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

	mu      sync.Mutex
	queue   []queued
	bytes   int // of queue, and of the message that is being sent
	writing bool
	last    bool          // a message at once is queued: guarded ones do not wait any more
	empty   chan struct{} // closed when all is sent, if somebody waits
}

type queued struct {
	m     *response
	size  int
	when  urgency
	after func() // called when the message was sent, or is not sent any more; may be nil
}

func newOutbox(ctx context.Context, to interface{ Send(*response) error }, healthy func() bool, fail func(error)) *outbox {
	return &outbox{ctx: ctx, send: to.Send, healthy: healthy, fail: fail}
}

// put queues a message. It does not wait.
func (o *outbox) put(m *response, when urgency) { o.putThen(m, when, nil) }

// putThen calls after once the message was sent or dropped.
func (o *outbox) putThen(m *response, when urgency, after func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := queued{m: m, size: proto.Size(m) + queuedCost, when: when, after: after}
	if o.bytes > 0 && o.bytes+q.size > maxQueued && when != atOnce {
		o.fail(protocol.Errorf(protocol.StatusOverloaded, "more than %d bytes wait to be sent; read the stream faster", maxQueued))
		return
	}
	o.queue = append(o.queue, q)
	o.bytes += q.size
	o.last = o.last || when == atOnce
	if !o.writing {
		o.writing = true
		go o.write()
	}
}

// flush waits until all is sent, for a while.
func (o *outbox) flush(d time.Duration) {
	o.mu.Lock()
	if !o.writing {
		o.mu.Unlock()
		return
	}
	if o.empty == nil {
		o.empty = make(chan struct{})
	}
	empty := o.empty
	o.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-empty:
	case <-t.C:
	case <-o.ctx.Done():
	}
}

func (o *outbox) write() {
	for {
		q, ok := o.take()
		if !ok {
			return
		}
		if o.awaitTurn(q) {
			// After an error the stream is over, and what is left is dropped here.
			_ = o.send(q.m)
		}
		if q.after != nil {
			q.after()
		}
		o.mu.Lock()
		o.bytes -= q.size
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
