package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// serve reads a connection from another instance until it breaks.
func (t *Transport) serve(c *conn) {
	switch c.purpose {
	case purposeRaft:
		t.serveRaft(c)
	case purposeSnapshot:
		t.serveSnapshot(c)
	case purposeCalls:
		t.serveCalls(c)
	}
}

func errTooManyCalls(most int) *protocol.Error {
	return protocol.Errorf(protocol.StatusOverloaded, "%d calls of one instance are in progress, the limit; retry later",
		most)
}

// callServer is the calls in progress on one connection.
type callServer struct {
	m     *Transport
	c     *conn
	slots chan struct{}
	mu    sync.Mutex
	calls map[uint64]context.CancelFunc
}

// serveCalls adds one-way messages to the inbox, in order, and runs each call on its own goroutine.
// The reader waits for neither, so that keep-alives are always answered.
func (t *Transport) serveCalls(c *conn) {
	s := &callServer{m: t, c: c, slots: make(chan struct{}, t.cfg.Limits.Handlers),
		calls: make(map[uint64]context.CancelFunc)}
	in := t.newInbox()
	ctx, cancel := context.WithCancel(t.ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	defer c.close()
	for {
		kind, arg, payload, err := c.next(nil)
		if err != nil {
			return
		}
		switch kind {
		case frameMessage:
			in.put(c.peer, arg, payload)
		case frameCall:
			if len(payload) < callHeader {
				t.closeMalformed(c, errFrame)
				return
			}
			id := binary.BigEndian.Uint64(payload)
			left := time.Duration(min(binary.BigEndian.Uint64(payload[8:]),
				uint64(24*time.Hour/time.Microsecond))) * time.Microsecond
			t.stats.CallsReceived.Add(1)
			select {
			case s.slots <- struct{}{}:
			default:
				t.stats.CallsRefused.Add(1)
				if s.reply(id, nil, errTooManyCalls(cap(s.slots))) != nil {
					return
				}
				continue
			}
			var callCtx context.Context
			var end context.CancelFunc
			if left > 0 {
				callCtx, end = context.WithTimeout(ctx, left)
			} else {
				callCtx, end = context.WithCancel(ctx)
			}
			if !s.begin(id, end) {
				end()
				<-s.slots
				t.closeMalformed(c, errFrame) // the id is in use
				return
			}
			running.Go(func() {
				answer, err := t.runHandler(callCtx, arg, c.peer, payload[callHeader:])
				silent := callCtx.Err() == context.Canceled || callerGone(callCtx, err)
				s.end(id)
				<-s.slots
				if !silent {
					_ = s.reply(id, answer, err)
				}
			})
		case frameCancel:
			if len(payload) == 8 {
				s.cancel(binary.BigEndian.Uint64(payload))
			}
		}
	}
}

func (s *callServer) begin(id uint64, cancel context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[id] != nil {
		return false
	}
	s.calls[id] = cancel
	return true
}

func (s *callServer) end(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.calls[id]; cancel != nil {
		cancel()
	}
	delete(s.calls, id)
}

func (s *callServer) cancel(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.calls[id]; cancel != nil {
		cancel()
	}
}

// reply writes a reply on the handler's goroutine: a peer that does not read delays its own
// handlers, until the write's deadline.
func (s *callServer) reply(id uint64, body []byte, err error) error {
	var head [replyHeader]byte
	binary.BigEndian.PutUint64(head[:], id)
	status := protocol.StatusOK
	if err == nil && len(body) > s.m.cfg.Limits.Payload {
		err = protocol.Errorf(protocol.StatusInternal, "answer has %d bytes; at most %d are allowed",
			len(body), s.m.cfg.Limits.Payload)
	}
	if err != nil {
		e := wireError(err)
		status, head[8], body = e.Status, byte(e.Refusal), []byte(e.Message)
		body = body[:min(len(body), maxErrorText)]
	}
	return s.c.write(appendFrame(make([]byte, 0, frameHeader+replyHeader+len(body)), frameReply, byte(status), head[:],
		body))
}

const maxErrorText = 4096

// wireError returns a handler's error in the form in which it is sent.
func wireError(err error) *protocol.Error {
	if e, ok := errors.AsType[*protocol.Error](err); ok && e.Status != protocol.StatusOK {
		return e
	}
	if s, ok := errors.AsType[protocol.Status](err); ok && s != protocol.StatusOK {
		return &protocol.Error{Status: s}
	}
	return &protocol.Error{Status: protocol.StatusInternal, Message: err.Error()}
}

// runHandler runs the method's handler.
func (t *Transport) runHandler(
	ctx context.Context, method uint8, from string, body []byte,
) (answer []byte, err error) {
	f := t.callHandlers[method]
	if f == nil {
		return nil, protocol.Errorf(protocol.StatusUnsupported, "the instance does not know method %d; upgrade it", method)
	}
	if !t.guard("handler of a call", from, func() { answer, err = f(ctx, from, body) }) {
		return nil, protocol.Errorf(protocol.StatusInternal, "the handler panicked; see the instance's log")
	}
	return answer, err
}

// callerGone reports whether a handler ended because its caller's time was over. The caller knows
// that and needs no reply.
func callerGone(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

// inbox gives the one-way messages of one peer to their handlers, in order. Its goroutine runs
// while there are any.
type inbox struct {
	m       *Transport
	mu      sync.Mutex
	queue   []inboxMessage
	bytes   int
	running bool
}

type inboxMessage struct {
	from    string
	kind    uint8
	payload []byte
}

func (t *Transport) newInbox() *inbox { return &inbox{m: t} }

func (i *inbox) put(from string, kind uint8, payload []byte) {
	m := i.m
	if m.messageHandlers[kind] == nil {
		m.stats.MessagesDropped.Add(1)
		return
	}
	l := &m.cfg.Limits
	i.mu.Lock()
	if len(i.queue) >= l.QueueMessages || len(i.queue) > 0 && i.bytes+len(payload) > l.QueueBytes {
		i.mu.Unlock()
		m.stats.MessagesDropped.Add(1)
		return
	}
	i.queue = append(i.queue, inboxMessage{from, kind, payload})
	i.bytes += len(payload)
	run := !i.running
	i.running = true
	i.mu.Unlock()
	if run && !m.start(i.run) {
		i.mu.Lock()
		i.running = false
		i.mu.Unlock()
	}
}

func (i *inbox) run() {
	var batch []inboxMessage
	for {
		i.mu.Lock()
		if len(i.queue) == 0 || i.m.ctx.Err() != nil {
			i.running = false
			i.mu.Unlock()
			return
		}
		batch, i.queue = i.queue, batch[:0]
		i.bytes = 0
		i.mu.Unlock()
		for _, x := range batch {
			i.m.stats.MessagesReceived.Add(1)
			i.m.guard("handler of a message", x.from, func() { i.m.messageHandlers[x.kind](x.from, x.payload) })
		}
		clear(batch)
	}
}
