package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// ErrUndetermined: a call was sent, and its connection was lost before the reply. It may or may not
// have been carried out.
var ErrUndetermined = errors.New("connection was lost before the reply; the outcome of the call is unknown")

// sender holds the calls and one-way messages to one address. Its goroutine connects when there are
// some. It ends, with the sender, after the idle timeout.
type sender struct {
	m       *Transport
	address string
	wake    chan struct{} // capacity 1; something is queued

	mu     sync.Mutex
	queue  []outgoingFrame
	bytes  int
	calls  map[uint64]*pendingCall // waiting for a reply, sent or not
	nextID uint64
	closed bool // not in Transport.senders any more; nothing may be queued
}

// outgoingFrame is a frame to send. The queue owns the payload.
type outgoingFrame struct {
	kind, arg byte
	id        uint64
	call      *pendingCall
	payload   []byte
}

func (o *outgoingFrame) size() int { return frameHeader + callHeader + len(o.payload) + 64 }

// pendingCall is a call in progress. The goroutine that removes it from the table sends to
// done, once.
type pendingCall struct {
	ctx  context.Context
	sent bool // guarded by the sender's mu
	done chan callResult
}

type callResult struct {
	body []byte
	err  error
}

// Send sends a one-way message. It never waits: the message is queued, and lost if the queue is
// full, the peer is unreachable or the connection breaks. Messages to an address arrive in order.
// The transport owns the payload. A message to this instance is delivered without a connection.
func (m *Transport) Send(address string, kind uint8, payload []byte) {
	address = normalize(address)
	if len(payload) > m.cfg.Limits.Payload {
		m.stats.MessagesDropped.Add(1)
		m.warn("message too large, dropped", "kind", kind, "bytes", len(payload), "allowed", m.cfg.Limits.Payload)
		return
	}
	if address == m.cfg.Advertise {
		m.stats.MessagesSent.Add(1)
		m.localInbox.put(m.cfg.Advertise, kind, payload)
		return
	}
	if !m.enqueue(address, outgoingFrame{kind: frameMessage, arg: kind, payload: payload}) {
		m.stats.MessagesDropped.Add(1)
	}
}

// Call calls a method of the instance at address and waits for the reply until ctx ends. The other
// end gets the deadline, and is told if ctx ends early. The transport owns the body, the caller the
// reply.
//
// Errors: the handler's *protocol.Error unchanged. StatusUnavailable (the peer is unreachable),
// StatusOverloaded (too many calls wait for it) and StatusUnsupported (unknown method): nothing was
// carried out. [ErrUndetermined], and ctx's error: unknown.
func (m *Transport) Call(ctx context.Context, address string, method uint8, body []byte) ([]byte, error) {
	address = normalize(address)
	if len(body) > m.cfg.Limits.Payload {
		return nil, protocol.Errorf(protocol.StatusBadRequest,
			"body of a call has %d bytes; at most %d are allowed", len(body), m.cfg.Limits.Payload)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.stats.CallsSent.Add(1)
	if address == m.cfg.Advertise {
		return m.callLocal(ctx, method, body)
	}
	c := &pendingCall{ctx: ctx, done: make(chan callResult, 1)}
	o := outgoingFrame{kind: frameCall, arg: method, call: c, payload: body}
	p, id, err := m.enqueueCall(address, o)
	if err != nil {
		return nil, err
	}
	select {
	case r := <-c.done:
		return r.body, r.err
	case <-ctx.Done():
	}
	p.cancel(id, c)
	return nil, ctx.Err()
}

// callLocal calls a handler of this instance, within the limits of other instances' calls.
func (m *Transport) callLocal(ctx context.Context, method uint8, body []byte) ([]byte, error) {
	select {
	case m.localCalls <- struct{}{}:
	default:
		m.stats.CallsRefused.Add(1)
		return nil, errTooManyCalls(cap(m.localCalls))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan callResult, 1)
	ok := m.start(func() {
		defer func() { <-m.localCalls }()
		defer context.AfterFunc(m.ctx, cancel)()
		m.stats.CallsReceived.Add(1)
		answer, err := m.runHandler(ctx, method, m.cfg.Advertise, body)
		switch {
		case callerGone(ctx, err): // the caller uses its own ctx
		case err != nil:
			done <- callResult{err: wireError(err)}
		default:
			done <- callResult{body: answer}
		}
	})
	if !ok {
		<-m.localCalls
		return nil, protocol.Errorf(protocol.StatusUnavailable, "%v", errTransportClosed)
	}
	select {
	case r := <-done:
		return r.body, r.err
	case <-ctx.Done():
		if m.ctx.Err() != nil {
			return nil, ErrUndetermined
		}
		return nil, ctx.Err()
	}
}

func (m *Transport) enqueue(address string, o outgoingFrame) bool {
	_, _, err := m.enqueueCall(address, o)
	return err == nil
}

func (m *Transport) enqueueCall(address string, o outgoingFrame) (p *sender, id uint64, err error) {
	for {
		p, err := m.senderFor(address)
		if err != nil {
			return nil, 0, err
		}
		id, err := p.enqueue(o)
		if err == errSenderClosed {
			continue // it closed between the two steps
		}
		return p, id, err
	}
}

// senderFor returns the sender to an address, and creates it if needed.
func (m *Transport) senderFor(address string) (*sender, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return nil, protocol.Errorf(protocol.StatusUnavailable, "%v", errTransportClosed)
	}
	if p := m.senders[address]; p != nil {
		return p, nil
	}
	if err := checkAddress(address); err != nil {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "%v", err)
	}
	if len(m.senders) >= m.cfg.Limits.Peers {
		return nil, protocol.Errorf(protocol.StatusOverloaded,
			"calls to %d instances are in progress, the limit; retry later", len(m.senders))
	}
	p := &sender{m: m, address: address, wake: make(chan struct{}, 1), calls: make(map[uint64]*pendingCall)}
	m.senders[address] = p
	m.wg.Go(p.run)
	return p, nil
}

var errSenderClosed = errors.New("peer has ended")

func (p *sender) enqueue(o outgoingFrame) (id uint64, err error) {
	l := &p.m.cfg.Limits
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, errSenderClosed
	}
	if len(p.queue) >= l.QueueMessages || len(p.queue) > 0 && p.bytes+o.size() > l.QueueBytes {
		return 0, protocol.Errorf(protocol.StatusOverloaded,
			"%d messages of %d bytes wait to be sent to the instance at %s, and at most %d of %d bytes may; retry later",
			len(p.queue), p.bytes, p.address, l.QueueMessages, l.QueueBytes)
	}
	if o.call != nil {
		p.nextID++
		o.id = p.nextID
		p.calls[o.id] = o.call
	}
	p.queue = append(p.queue, o)
	p.bytes += o.size()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return o.id, nil
}

// cancel forgets a call whose caller no longer waits, and tells the other end if the call was sent.
func (p *sender) cancel(id uint64, c *pendingCall) {
	p.mu.Lock()
	_, waits := p.calls[id]
	delete(p.calls, id)
	sent := c.sent
	p.mu.Unlock()
	if waits && sent {
		_, _ = p.enqueue(outgoingFrame{kind: frameCancel, id: id})
	}
}

// takeQueue empties the queue and marks its calls as sent: from here on their outcome is open.
// Cancelled calls are left out.
func (p *sender) takeQueue(into []outgoingFrame) []outgoingFrame {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.queue {
		if o.call != nil {
			if p.calls[o.id] != o.call {
				continue
			}
			o.call.sent = true
		}
		into = append(into, o)
	}
	clear(p.queue)
	p.queue, p.bytes = p.queue[:0], 0
	return into
}

// failQueued fails everything in the queue: the peer is unreachable. Calls that were sent have
// ended before.
func (p *sender) failQueued(err error) {
	p.mu.Lock()
	calls := p.calls
	p.calls = make(map[uint64]*pendingCall)
	for _, o := range p.queue {
		if o.kind == frameMessage {
			p.m.stats.MessagesDropped.Add(1)
		}
	}
	clear(p.queue)
	p.queue, p.bytes = p.queue[:0], 0
	p.mu.Unlock()
	for _, c := range calls {
		c.done <- callResult{err: err}
	}
}

// failSent fails the calls that were sent: their connection is lost.
func (p *sender) failSent() {
	p.mu.Lock()
	var lost []*pendingCall
	for id, c := range p.calls {
		if c.sent {
			lost = append(lost, c)
			delete(p.calls, id)
		}
	}
	p.mu.Unlock()
	for _, c := range lost {
		c.done <- callResult{err: ErrUndetermined}
	}
}

// run connects and sends until the sender was idle for long, or the transport closes.
func (p *sender) run() {
	l := &p.m.cfg.Limits
	backoff := time.Duration(0)
	var ended time.Time // of the last connection or dial; the back-off counts from here
	var unreachable unreachableLog
	for {
		if !p.awaitWork(l.IdleTimeout) {
			break
		}
		if backoff > 0 && !beat.Sleep(p.m.ctx, backoff/2+rand.N(backoff/2+1)-time.Since(ended)) {
			break
		}
		began := time.Now()
		c, err := p.m.dial(p.m.ctx, p.address, purposeCalls)
		if err != nil {
			if p.m.ctx.Err() != nil {
				break
			}
			p.m.dialErrors.note(p.address, "", err)
			unreachable.failed(p, err, began)
			ended = time.Now()
			backoff = min(max(l.BackoffMin, 2*backoff), l.BackoffMax)
			p.failQueued(unreachableError(p.address, err))
			continue
		}
		p.m.dialErrors.note(p.address, c.peer, nil)
		unreachable.reached(p)
		began = time.Now()
		p.writeLoop(c)
		c.closeDialed()
		p.failSent()
		ended = time.Now()
		// After a connection that lasted, the next one starts at once; one that did not counts as a
		// failure.
		if ended.Sub(began) > l.BackoffMax {
			backoff = 0
		} else {
			backoff = min(max(l.BackoffMin, 2*backoff), l.BackoffMax)
		}
	}
	p.close()
	p.failSent()
	p.failQueued(protocol.Errorf(protocol.StatusUnavailable, "%v", errTransportClosed))
}

// unreachableError wraps both StatusUnavailable and the cause.
func unreachableError(address string, err error) error {
	return &unreachable{protocol.Errorf(protocol.StatusUnavailable, "instance at %s is unreachable", address), err}
}

type unreachable struct {
	status *protocol.Error
	cause  error
}

func (e *unreachable) Error() string   { return fmt.Sprintf("%v: %v", e.status, e.cause) }
func (e *unreachable) Unwrap() []error { return []error{e.status, e.cause} }

// awaitWork waits until something is queued. False: the sender closes, because it was idle or the
// transport closes.
func (p *sender) awaitWork(idle time.Duration) bool {
	t := time.NewTimer(idle)
	defer t.Stop()
	for {
		p.mu.Lock()
		waits := len(p.queue) > 0
		p.mu.Unlock()
		if p.m.ctx.Err() != nil {
			return false
		}
		if waits {
			return true
		}
		select {
		case <-p.wake:
		case <-p.m.ctx.Done():
			return false
		case <-t.C:
			if p.closeIfIdle() {
				return false
			}
			t.Reset(idle)
		}
	}
}

func (p *sender) closeIfIdle() bool {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) > 0 || len(p.calls) > 0 {
		return false
	}
	p.closed = true
	delete(p.m.senders, p.address)
	return true
}

func (p *sender) close() {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.m.senders[p.address] == p {
		delete(p.m.senders, p.address)
	}
}

// writeLoop sends the queue on the connection, and keep-alives, until it breaks, was idle, or is
// stale and nothing is under way. Only this goroutine takes from the queue: what comes while the
// connection closes waits for the next one.
func (p *sender) writeLoop(c *conn) {
	var reading sync.WaitGroup
	reading.Go(func() { p.readLoop(c) })
	defer reading.Wait()
	defer c.close()

	idle, alive := time.NewTimer(p.m.cfg.Limits.IdleTimeout), time.NewTimer(beat.Next(p.m.cfg.Limits.KeepAlive))
	defer idle.Stop()
	defer alive.Stop()
	var batch []outgoingFrame
	var buf []byte
	for {
		batch = p.takeQueue(batch[:0])
		if len(batch) > 0 {
			idle.Reset(p.m.cfg.Limits.IdleTimeout)
		}
		for i := range batch {
			o := &batch[i]
			if o.call != nil && o.call.ctx.Err() != nil {
				continue // its caller is gone, and it was not sent
			}
			buf = o.appendTo(buf)
			switch o.kind {
			case frameMessage:
				p.m.stats.MessagesSent.Add(1)
			}
			if len(buf) < maxWrite && i < len(batch)-1 {
				continue
			}
			if err := c.write(buf); err != nil {
				for _, o := range batch[i+1:] {
					if o.kind == frameMessage {
						p.m.stats.MessagesDropped.Add(1)
					}
				}
				return
			}
			buf = shrink(buf)
		}
		if len(buf) > 0 { // the last ones were skipped
			if c.write(buf) != nil {
				return
			}
			buf = shrink(buf)
		}
		clear(batch)
		select {
		case <-p.wake:
		case <-c.done:
			return
		case <-alive.C:
			if c.stale() && p.idle() || c.write(pingFrame) != nil {
				return
			}
			alive.Reset(beat.Next(p.m.cfg.Limits.KeepAlive))
		case <-idle.C:
			if p.idle() {
				return
			}
			idle.Reset(p.m.cfg.Limits.IdleTimeout)
		}
	}
}

// idle reports that nothing is queued and no reply expected.
func (p *sender) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue) == 0 && len(p.calls) == 0
}

// shrink empties a buffer, and releases one that grew for a large frame.
func shrink(b []byte) []byte {
	if cap(b) > 4*maxWrite {
		return nil
	}
	return b[:0]
}

// appendTo appends the frame. A call's remaining time is as of now.
func (o *outgoingFrame) appendTo(b []byte) []byte {
	var head [callHeader]byte
	binary.BigEndian.PutUint64(head[:], o.id)
	switch o.kind {
	case frameMessage:
		return appendFrame(slices.Grow(b, frameHeader+len(o.payload)), frameMessage, o.arg, nil, o.payload)
	case frameCancel:
		return appendFrame(b, frameCancel, 0, head[:8], nil)
	}
	if deadline, ok := o.call.ctx.Deadline(); ok {
		binary.BigEndian.PutUint64(head[8:], uint64(max(1, time.Until(deadline).Microseconds())))
	}
	return appendFrame(slices.Grow(b, frameHeader+callHeader+len(o.payload)), frameCall, o.arg, head[:], o.payload)
}

// readLoop reads replies until the connection breaks.
func (p *sender) readLoop(c *conn) {
	defer c.close()
	for {
		_, status, payload, err := c.next(nil)
		if err != nil {
			return
		}
		if len(payload) < replyHeader {
			p.m.closeMalformed(c, errFrame)
			return
		}
		id := binary.BigEndian.Uint64(payload)
		p.mu.Lock()
		waits := p.calls[id]
		if waits != nil && waits.sent {
			delete(p.calls, id)
		} else {
			waits = nil
		}
		p.mu.Unlock()
		if waits == nil {
			continue // its caller is gone
		}
		if protocol.Status(status) == protocol.StatusOK {
			waits.done <- callResult{body: payload[replyHeader:]}
		} else {
			waits.done <- callResult{err: &protocol.Error{Status: protocol.Status(status),
				Message: string(payload[replyHeader:])}}
		}
	}
}
