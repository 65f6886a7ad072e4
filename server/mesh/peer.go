package mesh

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
)

// ErrUndetermined says that a call may have been carried out or not: it was sent, and its connection was lost before the answer came.
var ErrUndetermined = errors.New("connection was lost before the answer came; whether the call was carried out is unknown")

// peer holds what waits to be sent to one address, calls and one-way messages. Its goroutine connects when something waits, and ends, with the peer, when
// there was nothing for the idle timeout.
type peer struct {
	m       *Mesh
	address string
	wake    chan struct{} // one place; something waits

	mu     sync.Mutex
	queue  []outgoing
	bytes  int
	calls  map[uint64]*call // waiting for an answer, sent or not
	nextID uint64
	ended  bool // no longer in the mesh's table; nothing may be queued
}

// outgoing is one frame to be. The payload belongs to the queue.
type outgoing struct {
	kind, arg byte
	id        uint64
	call      *call
	payload   []byte
}

func (o *outgoing) size() int { return frameHeader + callHeader + len(o.payload) + 64 }

// call is one call under way. done is sent to once, by whoever takes the call out of the table.
type call struct {
	ctx  context.Context
	sent bool // guarded by the peer's mu
	done chan result
}

type result struct {
	body []byte
	err  error
}

// Send sends a message one way. It never waits: the message is queued, and lost when the queue is full, the peer is not reached or the connection
// breaks. Messages to one address come in order. The payload belongs to the mesh from here on. Messages to this instance itself are handed over without a
// connection.
func (m *Mesh) Send(address string, kind uint8, payload []byte) {
	address = clean(address)
	if len(payload) > m.cfg.Limits.Payload {
		m.count.messagesDropped.Add(1)
		m.line("message is too large to be sent", "kind", kind, "bytes", len(payload), "allowed", m.cfg.Limits.Payload)
		return
	}
	if address == m.cfg.Advertise {
		m.count.messagesSent.Add(1)
		m.own.put(m.cfg.Advertise, kind, payload)
		return
	}
	if !m.enqueue(address, outgoing{kind: frameSend, arg: kind, payload: payload}) {
		m.count.messagesDropped.Add(1)
	}
}

// Call asks the instance at address and waits for its answer, for at most as long as ctx allows; the other end is told the deadline, and when ctx ends early.
// The body belongs to the mesh from here on, the answer to the caller.
//
// Errors: the handler's *protocol.Error as it was; StatusUnavailable when the peer was not reached, StatusOverloaded when too much waits for it, and
// StatusUnsupported when it has no such method: nothing was carried out then. [ErrUndetermined], and ctx's error: unknown.
func (m *Mesh) Call(ctx context.Context, address string, method uint8, body []byte) ([]byte, error) {
	address = clean(address)
	if len(body) > m.cfg.Limits.Payload {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "body of a call has %d bytes; at most %d are allowed", len(body), m.cfg.Limits.Payload)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.count.callsSent.Add(1)
	if address == m.cfg.Advertise {
		return m.callOwn(ctx, method, body)
	}
	c := &call{ctx: ctx, done: make(chan result, 1)}
	o := outgoing{kind: frameCall, arg: method, call: c, payload: body}
	p, id, err := m.enqueueCall(address, o)
	if err != nil {
		return nil, err
	}
	select {
	case r := <-c.done:
		return r.body, r.err
	case <-ctx.Done():
	}
	p.abandon(id, c)
	return nil, ctx.Err()
}

// callOwn calls a handler of this instance, within the same bounds as another instance's call.
func (m *Mesh) callOwn(ctx context.Context, method uint8, body []byte) ([]byte, error) {
	select {
	case m.ownCap <- struct{}{}:
	default:
		m.count.callsRefused.Add(1)
		return nil, errHandlers(cap(m.ownCap))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan result, 1)
	ok := m.start(func() {
		defer func() { <-m.ownCap }()
		defer context.AfterFunc(m.ctx, cancel)()
		m.count.callsReceived.Add(1)
		answer, err := m.answer(ctx, method, m.cfg.Advertise, body)
		switch {
		case gaveUp(ctx, err): // the caller goes by its own ctx
		case err != nil:
			done <- result{err: asError(err)}
		default:
			done <- result{body: answer}
		}
	})
	if !ok {
		<-m.ownCap
		return nil, protocol.Errorf(protocol.StatusUnavailable, "%v", errMeshClosed)
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

func (m *Mesh) enqueue(address string, o outgoing) bool {
	_, _, err := m.enqueueCall(address, o)
	return err == nil
}

func (m *Mesh) enqueueCall(address string, o outgoing) (p *peer, id uint64, err error) {
	for {
		p, err := m.peerOf(address)
		if err != nil {
			return nil, 0, err
		}
		id, err := p.put(o)
		if err == errEnded {
			continue // it ended between the two steps
		}
		return p, id, err
	}
}

// peerOf finds the peer, or makes it.
func (m *Mesh) peerOf(address string) (*peer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return nil, protocol.Errorf(protocol.StatusUnavailable, "%v", errMeshClosed)
	}
	if p := m.peers[address]; p != nil {
		return p, nil
	}
	if err := checkAddress(address); err != nil {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "%v", err)
	}
	if len(m.peers) >= m.cfg.Limits.Peers {
		return nil, protocol.Errorf(protocol.StatusOverloaded, "calls to %d instances are under way, the most that are allowed; retry later", len(m.peers))
	}
	p := &peer{m: m, address: address, wake: make(chan struct{}, 1), calls: make(map[uint64]*call)}
	m.peers[address] = p
	m.wg.Go(p.run)
	return p, nil
}

var errEnded = errors.New("peer has ended")

func (p *peer) put(o outgoing) (id uint64, err error) {
	l := &p.m.cfg.Limits
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return 0, errEnded
	}
	if len(p.queue) >= l.QueueMessages || len(p.queue) > 0 && p.bytes+o.size() > l.QueueBytes {
		return 0, protocol.Errorf(protocol.StatusOverloaded, "%d messages of %d bytes wait to be sent to the instance at %s, and at most %d of %d bytes may; retry later",
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

// abandon forgets a call that nobody waits for any more, and tells the other end if it has heard of it.
func (p *peer) abandon(id uint64, c *call) {
	p.mu.Lock()
	_, waits := p.calls[id]
	delete(p.calls, id)
	sent := c.sent
	p.mu.Unlock()
	if waits && sent {
		_, _ = p.put(outgoing{kind: frameCancel, id: id})
	}
}

// take empties the queue and marks its calls as sent: from here on their outcome is open. Those that were abandoned are left out.
func (p *peer) take(into []outgoing) []outgoing {
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

// failWaiting ends everything that waits in the queue: the peer is not reached. Calls that were sent have ended before.
func (p *peer) failWaiting(err error) {
	p.mu.Lock()
	calls := p.calls
	p.calls = make(map[uint64]*call)
	for _, o := range p.queue {
		if o.kind == frameSend {
			p.m.count.messagesDropped.Add(1)
		}
	}
	clear(p.queue)
	p.queue, p.bytes = p.queue[:0], 0
	p.mu.Unlock()
	for _, c := range calls {
		c.done <- result{err: err}
	}
}

// failSent ends the calls that were sent: their connection is lost.
func (p *peer) failSent() {
	p.mu.Lock()
	var lost []*call
	for id, c := range p.calls {
		if c.sent {
			lost = append(lost, c)
			delete(p.calls, id)
		}
	}
	p.mu.Unlock()
	for _, c := range lost {
		c.done <- result{err: ErrUndetermined}
	}
}

// run connects and sends until the peer was idle for long, or the mesh closes.
func (p *peer) run() {
	l := &p.m.cfg.Limits
	backoff := time.Duration(0)
	var ended time.Time // of the last connection or try; the back-off counts from here
	reached := true     // so that the first failure is said
	for {
		if !p.await(l.IdleTimeout) {
			break
		}
		if backoff > 0 && !sleep(p.m.ctx, backoff/2+rand.N(backoff/2+1)-time.Since(ended)) {
			break
		}
		c, err := p.m.dial(p.m.ctx, p.address, purposeCalls)
		if err != nil {
			if p.m.ctx.Err() != nil {
				break
			}
			ended = time.Now()
			backoff = min(max(l.BackoffMin, 2*backoff), l.BackoffMax)
			if reached {
				p.m.line("instance is not reached", "address", p.address, "error", err)
				reached = false
			}
			p.failWaiting(unreached(p.address, err))
			continue
		}
		if !reached {
			p.m.log.Info("instance is reached again", "address", p.address)
		}
		reached = true
		began := time.Now()
		p.talk(c)
		p.m.hangUp(c)
		p.failSent()
		ended = time.Now()
		// A connection that lasted starts the next one at once; one that did not, counts as a failure.
		if ended.Sub(began) > l.BackoffMax {
			backoff = 0
		} else {
			backoff = min(max(l.BackoffMin, 2*backoff), l.BackoffMax)
		}
	}
	p.end()
	p.failSent()
	p.failWaiting(protocol.Errorf(protocol.StatusUnavailable, "%v", errMeshClosed))
}

// unreached is StatusUnavailable to those who ask for a status, and the cause to those who ask for it.
func unreached(address string, err error) error {
	return &unreachedError{protocol.Errorf(protocol.StatusUnavailable, "instance at %s is not reached", address), err}
}

type unreachedError struct {
	status *protocol.Error
	cause  error
}

func (e *unreachedError) Error() string   { return fmt.Sprintf("%v: %v", e.status, e.cause) }
func (e *unreachedError) Unwrap() []error { return []error{e.status, e.cause} }

// await waits until something is queued. False: the peer ends, out of the table already or because the mesh closes.
func (p *peer) await(idle time.Duration) bool {
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
			if p.endIfIdle() {
				return false
			}
			t.Reset(idle)
		}
	}
}

func (p *peer) endIfIdle() bool {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) > 0 || len(p.calls) > 0 {
		return false
	}
	p.ended = true
	delete(p.m.peers, p.address)
	return true
}

func (p *peer) end() {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.m.peers[p.address] == p {
		delete(p.m.peers, p.address)
	}
}

// talk sends what is queued on the connection until it breaks, or was idle.
func (p *peer) talk(c *conn) {
	c.quiet = p.quiet
	var reading sync.WaitGroup
	reading.Go(func() { p.listen(c) })
	reading.Go(c.keepAlive)
	defer reading.Wait()
	defer c.close()

	idle := time.NewTimer(p.m.cfg.Limits.IdleTimeout)
	defer idle.Stop()
	var batch []outgoing
	var buf []byte
	for {
		batch = p.take(batch[:0])
		if len(batch) > 0 {
			idle.Reset(p.m.cfg.Limits.IdleTimeout)
		}
		for i := range batch {
			o := &batch[i]
			if o.call != nil && o.call.ctx.Err() != nil {
				continue // its caller is gone, and nobody has heard of it
			}
			buf = o.appendTo(buf)
			switch o.kind {
			case frameSend:
				p.m.count.messagesSent.Add(1)
			}
			if len(buf) < writeStep && i < len(batch)-1 {
				continue
			}
			if err := c.write(buf); err != nil {
				for _, o := range batch[i+1:] {
					if o.kind == frameSend {
						p.m.count.messagesDropped.Add(1)
					}
				}
				return
			}
			buf = shrink(buf)
		}
		if len(buf) > 0 { // the last ones were left out
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
		case <-idle.C:
			if p.quiet() {
				return
			}
			idle.Reset(p.m.cfg.Limits.IdleTimeout)
		}
	}
}

// quiet says that nothing is queued and no answer awaited.
func (p *peer) quiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue) == 0 && len(p.calls) == 0
}

// shrink empties a buffer, and lets go of one that a large frame made large.
func shrink(b []byte) []byte {
	if cap(b) > 4*writeStep {
		return nil
	}
	return b[:0]
}

// appendTo appends the frame. What is left of a call's time is said as of now.
func (o *outgoing) appendTo(b []byte) []byte {
	var head [callHeader]byte
	binary.BigEndian.PutUint64(head[:], o.id)
	switch o.kind {
	case frameSend:
		return appendFrame(slices.Grow(b, frameHeader+len(o.payload)), frameSend, o.arg, nil, o.payload)
	case frameCancel:
		return appendFrame(b, frameCancel, 0, head[:8], nil)
	}
	if deadline, ok := o.call.ctx.Deadline(); ok {
		binary.BigEndian.PutUint64(head[8:], uint64(max(1, time.Until(deadline).Microseconds())))
	}
	return appendFrame(slices.Grow(b, frameHeader+callHeader+len(o.payload)), frameCall, o.arg, head[:], o.payload)
}

// listen reads answers until the connection breaks.
func (p *peer) listen(c *conn) {
	defer c.close()
	for {
		_, status, payload, err := c.next(nil)
		if err != nil {
			return
		}
		if len(payload) < answerHeader {
			p.m.bad(c, errFrame)
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
			waits.done <- result{body: payload[answerHeader:]}
		} else {
			waits.done <- result{err: &protocol.Error{Status: protocol.Status(status), Message: string(payload[answerHeader:])}}
		}
	}
}
