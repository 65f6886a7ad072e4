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
func (t *Transport) Send(address string, kind uint8, payload []byte) {
	address = normalize(address)
	if len(payload) > t.cfg.Limits.Payload {
		t.stats.MessagesDropped.Add(1)
		t.warn("message too large, dropped", "kind", kind, "bytes", len(payload), "allowed", t.cfg.Limits.Payload)
		return
	}
	if address == t.cfg.Advertise {
		t.stats.MessagesSent.Add(1)
		t.localInbox.put(t.cfg.Advertise, kind, payload)
		return
	}
	if !t.enqueue(address, outgoingFrame{kind: frameMessage, arg: kind, payload: payload}) {
		t.stats.MessagesDropped.Add(1)
	}
}

// Call calls a method of the instance at address and waits for the reply until ctx ends. The other
// end gets the deadline, and a cancellation if ctx ends early. The transport owns the body, the
// caller the reply.
//
// Errors: the handler's *protocol.Error unchanged. StatusUnavailable (the peer is unreachable),
// StatusOverloaded (too many calls wait for it) and StatusUnsupported (unknown method): nothing was
// carried out. [ErrUndetermined], and ctx's error: unknown.
func (t *Transport) Call(ctx context.Context, address string, method uint8, body []byte) ([]byte, error) {
	address = normalize(address)
	if len(body) > t.cfg.Limits.Payload {
		return nil, protocol.Errorf(protocol.StatusBadRequest,
			"body of a call has %d bytes; at most %d are allowed", len(body), t.cfg.Limits.Payload)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.stats.CallsSent.Add(1)
	if address == t.cfg.Advertise {
		return t.callLocal(ctx, method, body)
	}
	c := &pendingCall{ctx: ctx, done: make(chan callResult, 1)}
	o := outgoingFrame{kind: frameCall, arg: method, call: c, payload: body}
	p, id, err := t.enqueueCall(address, o)
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
func (t *Transport) callLocal(ctx context.Context, method uint8, body []byte) ([]byte, error) {
	select {
	case t.localCalls <- struct{}{}:
	default:
		t.stats.CallsRefused.Add(1)
		return nil, errTooManyCalls(cap(t.localCalls))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan callResult, 1)
	ok := t.start(func() {
		defer func() { <-t.localCalls }()
		defer context.AfterFunc(t.ctx, cancel)()
		t.stats.CallsReceived.Add(1)
		answer, err := t.runHandler(ctx, method, t.cfg.Advertise, body)
		switch {
		case callerGone(ctx, err): // the caller uses its own ctx
		case err != nil:
			done <- callResult{err: wireError(err)}
		default:
			done <- callResult{body: answer}
		}
	})
	if !ok {
		<-t.localCalls
		return nil, protocol.Errorf(protocol.StatusUnavailable, "%v", errTransportClosed)
	}
	select {
	case r := <-done:
		return r.body, r.err
	case <-ctx.Done():
		if t.ctx.Err() != nil {
			return nil, ErrUndetermined
		}
		return nil, ctx.Err()
	}
}

func (t *Transport) enqueue(address string, o outgoingFrame) bool {
	_, _, err := t.enqueueCall(address, o)
	return err == nil
}

func (t *Transport) enqueueCall(address string, o outgoingFrame) (p *sender, id uint64, err error) {
	for {
		p, err := t.senderFor(address)
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
func (t *Transport) senderFor(address string) (*sender, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return nil, protocol.Errorf(protocol.StatusUnavailable, "%v", errTransportClosed)
	}
	if p := t.senders[address]; p != nil {
		return p, nil
	}
	if err := checkAddress(address); err != nil {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "%v", err)
	}
	if len(t.senders) >= t.cfg.Limits.Peers {
		return nil, protocol.Errorf(protocol.StatusOverloaded,
			"calls to %d instances are in progress, the limit; retry later", len(t.senders))
	}
	p := &sender{m: t, address: address, wake: make(chan struct{}, 1), calls: make(map[uint64]*pendingCall)}
	t.senders[address] = p
	t.wg.Go(p.run)
	return p, nil
}

var errSenderClosed = errors.New("peer has ended")

func (s *sender) enqueue(o outgoingFrame) (id uint64, err error) {
	l := &s.m.cfg.Limits
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, errSenderClosed
	}
	if len(s.queue) >= l.QueueMessages || len(s.queue) > 0 && s.bytes+o.size() > l.QueueBytes {
		return 0, protocol.Errorf(protocol.StatusOverloaded,
			"%d messages of %d bytes wait to be sent to the instance at %s, and at most %d of %d bytes may; retry later",
			len(s.queue), s.bytes, s.address, l.QueueMessages, l.QueueBytes)
	}
	if o.call != nil {
		s.nextID++
		o.id = s.nextID
		s.calls[o.id] = o.call
	}
	s.queue = append(s.queue, o)
	s.bytes += o.size()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return o.id, nil
}

// cancel forgets a call whose caller no longer waits, and cancels it at the other end if sent.
func (s *sender) cancel(id uint64, c *pendingCall) {
	s.mu.Lock()
	_, waits := s.calls[id]
	delete(s.calls, id)
	sent := c.sent
	s.mu.Unlock()
	if waits && sent {
		_, _ = s.enqueue(outgoingFrame{kind: frameCancel, id: id})
	}
}

// takeQueue empties the queue and marks its calls as sent: from here on their outcome is open.
// Cancelled calls are left out.
func (s *sender) takeQueue(into []outgoingFrame) []outgoingFrame {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.queue {
		if o.call != nil {
			if s.calls[o.id] != o.call {
				continue
			}
			o.call.sent = true
		}
		into = append(into, o)
	}
	clear(s.queue)
	s.queue, s.bytes = s.queue[:0], 0
	return into
}

// failQueued fails everything in the queue: the peer is unreachable. Calls that were sent have
// ended before.
func (s *sender) failQueued(err error) {
	s.mu.Lock()
	calls := s.calls
	s.calls = make(map[uint64]*pendingCall)
	for _, o := range s.queue {
		if o.kind == frameMessage {
			s.m.stats.MessagesDropped.Add(1)
		}
	}
	clear(s.queue)
	s.queue, s.bytes = s.queue[:0], 0
	s.mu.Unlock()
	for _, c := range calls {
		c.done <- callResult{err: err}
	}
}

// failSent fails the calls that were sent: their connection is lost.
func (s *sender) failSent() {
	s.mu.Lock()
	var lost []*pendingCall
	for id, c := range s.calls {
		if c.sent {
			lost = append(lost, c)
			delete(s.calls, id)
		}
	}
	s.mu.Unlock()
	for _, c := range lost {
		c.done <- callResult{err: ErrUndetermined}
	}
}

// run connects and sends until the sender was idle for long, or the transport closes.
func (s *sender) run() {
	l := &s.m.cfg.Limits
	backoff := time.Duration(0)
	var ended time.Time // of the last connection or dial; the back-off counts from here
	var unreachable unreachableLog
	for {
		if !s.awaitWork(l.IdleTimeout) {
			break
		}
		if backoff > 0 && !beat.Sleep(s.m.ctx, backoff/2+rand.N(backoff/2+1)-time.Since(ended)) {
			break
		}
		began := time.Now()
		c, err := s.m.dial(s.m.ctx, s.address, purposeCalls)
		if err != nil {
			if s.m.ctx.Err() != nil {
				break
			}
			s.m.dialErrors.note(s.address, "", err)
			unreachable.failed(s, err, began)
			ended = time.Now()
			backoff = min(max(l.BackoffMin, 2*backoff), l.BackoffMax)
			s.failQueued(unreachableError(s.address, err))
			continue
		}
		s.m.dialErrors.note(s.address, c.peer, nil)
		unreachable.reached(s)
		began = time.Now()
		s.writeLoop(c)
		c.closeDialed()
		s.failSent()
		ended = time.Now()
		// After a connection that lasted, the next one starts at once; one that did not counts as a
		// failure.
		if ended.Sub(began) > l.BackoffMax {
			backoff = 0
		} else {
			backoff = min(max(l.BackoffMin, 2*backoff), l.BackoffMax)
		}
	}
	s.close()
	s.failSent()
	s.failQueued(protocol.Errorf(protocol.StatusUnavailable, "%v", errTransportClosed))
}

// unreachableError wraps both StatusUnavailable and the cause.
func unreachableError(address string, err error) error {
	return &unreachable{protocol.Errorf(protocol.StatusUnavailable, "instance at %s is unreachable", address), err}
}

type unreachable struct {
	status *protocol.Error
	cause  error
}

func (u *unreachable) Error() string   { return fmt.Sprintf("%v: %v", u.status, u.cause) }
func (u *unreachable) Unwrap() []error { return []error{u.status, u.cause} }

// awaitWork waits until something is queued. It returns false if the sender closes, because it was
// idle or the transport closes.
func (s *sender) awaitWork(idle time.Duration) bool {
	t := time.NewTimer(idle)
	defer t.Stop()
	for {
		s.mu.Lock()
		waits := len(s.queue) > 0
		s.mu.Unlock()
		if s.m.ctx.Err() != nil {
			return false
		}
		if waits {
			return true
		}
		select {
		case <-s.wake:
		case <-s.m.ctx.Done():
			return false
		case <-t.C:
			if s.closeIfIdle() {
				return false
			}
			t.Reset(idle)
		}
	}
}

func (s *sender) closeIfIdle() bool {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 || len(s.calls) > 0 {
		return false
	}
	s.closed = true
	delete(s.m.senders, s.address)
	return true
}

func (s *sender) close() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.m.senders[s.address] == s {
		delete(s.m.senders, s.address)
	}
}

// writeLoop sends the queue on the connection, and keep-alives, until it breaks, was idle, or is
// stale and nothing is under way. Only this goroutine takes from the queue: messages queued while
// the connection closes wait for the next one.
func (s *sender) writeLoop(c *conn) {
	var reading sync.WaitGroup
	reading.Go(func() { s.readLoop(c) })
	defer reading.Wait()
	defer c.close()

	idle, alive := time.NewTimer(s.m.cfg.Limits.IdleTimeout), time.NewTimer(beat.Next(s.m.cfg.Limits.KeepAlive))
	defer idle.Stop()
	defer alive.Stop()
	var batch []outgoingFrame
	var buf []byte
	for {
		batch = s.takeQueue(batch[:0])
		if len(batch) > 0 {
			idle.Reset(s.m.cfg.Limits.IdleTimeout)
		}
		for i := range batch {
			o := &batch[i]
			if o.call != nil && o.call.ctx.Err() != nil {
				continue // its caller is gone, and it was not sent
			}
			buf = o.appendTo(buf)
			switch o.kind {
			case frameMessage:
				s.m.stats.MessagesSent.Add(1)
			}
			if len(buf) < maxWrite && i < len(batch)-1 {
				continue
			}
			if err := c.write(buf); err != nil {
				for _, o := range batch[i+1:] {
					if o.kind == frameMessage {
						s.m.stats.MessagesDropped.Add(1)
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
		case <-s.wake:
		case <-c.done:
			return
		case <-alive.C:
			if c.stale() && s.idle() || c.write(pingFrame) != nil {
				return
			}
			alive.Reset(beat.Next(s.m.cfg.Limits.KeepAlive))
		case <-idle.C:
			if s.idle() {
				return
			}
			idle.Reset(s.m.cfg.Limits.IdleTimeout)
		}
	}
}

// idle reports that nothing is queued and no reply expected.
func (s *sender) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) == 0 && len(s.calls) == 0
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
func (s *sender) readLoop(c *conn) {
	defer c.close()
	for {
		_, status, payload, err := c.next(nil)
		if err != nil {
			return
		}
		if len(payload) < replyHeader {
			s.m.closeMalformed(c, errFrame)
			return
		}
		id := binary.BigEndian.Uint64(payload)
		s.mu.Lock()
		waits := s.calls[id]
		if waits != nil && waits.sent {
			delete(s.calls, id)
		} else {
			waits = nil
		}
		s.mu.Unlock()
		if waits == nil {
			continue // its caller is gone
		}
		if protocol.Status(status) == protocol.StatusOK {
			waits.done <- callResult{body: payload[replyHeader:]}
		} else {
			waits.done <- callResult{err: &protocol.Error{Status: protocol.Status(status),
				Refusal: protocol.Refusal(payload[8]), Message: string(payload[replyHeader:])}}
		}
	}
}
