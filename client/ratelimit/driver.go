package ratelimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/boottime"
)

// engine drives the machine of a client: it has the one mutex, the time, the timer and the
// goroutines that wait for the server.
type engine struct {
	mu    sync.Mutex
	m     machine
	homes map[homeKey]*home
	timer *time.Timer
	armed int64 // when it fires; 0: not
}

// homeKey names the session of parts: one that the program has, or the client's own at a node.
type homeKey struct {
	session *client.Session
	node    string
}

// home is the session of parts, and the goroutine that renews it.
type home struct {
	e      *engine
	c      *client.Client
	key    homeKey
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}

	// Guarded by the engine's mutex.
	session *client.Session // nil: there is none at present
	err     error           // of the last start of a session
	parts   map[string]*homePart
}

// homePart is a part with what is of its present session.
type homePart struct {
	*part
	home     *home
	object   *handle.Object
	unwatch  context.CancelFunc
	revision uint64
	ctx      context.Context // ends with the limiters
	fail     context.CancelCauseFunc
}

// Times of requests.
const (
	leastTry     = 500 * time.Millisecond // a refresh is given up after half a lease, or this
	requestTry   = 3 * time.Second
	sessionRetry = time.Second
	leaveTry     = time.Second // of a session that is the client's own
)

func engineOf(c *client.Client) *engine {
	type key struct{}
	v, _ := access.Client(c).Values.LoadOrStore(key{}, &engine{homes: map[homeKey]*home{}})
	return v.(*engine)
}

// now is the time of decisions, in ns since the program started.
func now() int64 { return int64(boottime.Now() - start) }

var start = boottime.Now() - 1

// beginStep takes the mutex for calls of the machine, and returns the time.
func (e *engine) beginStep() int64 {
	e.mu.Lock()
	return now()
}

// endStep carries out what the machine wants, sets the timer, and releases the mutex.
func (e *engine) endStep() {
	at := now()
	out, ended := e.m.take()
	next := int64(0)
	for _, p := range e.m.parts {
		if t := p.next(at); t > 0 && (next == 0 || t < next) {
			next = t
		}
	}
	if next > 0 && (e.armed == 0 || next < e.armed || e.armed <= at) {
		e.armed = next
		wait := time.Duration(max(next-at, 0))
		if e.timer == nil {
			e.timer = time.AfterFunc(wait, e.tick)
		} else {
			e.timer.Reset(wait)
		}
	}
	requests := make([]*request, len(out))
	for i := range out {
		if x := e.find(out[i].part); x != nil {
			requests[i] = newRequest(x.object, &out[i])
		}
	}
	e.mu.Unlock()
	for _, c := range ended {
		close(c.done)
	}
	for _, r := range requests {
		if r != nil {
			go e.do(r)
		}
	}
}

// request is an action that is sent.
type request struct {
	*action
	o     *handle.Object
	ctx   context.Context
	end   context.CancelFunc
	ended chan struct{}
	first *request // the acquire that it withdraws: the server would hold one that comes later
}

func newRequest(o *handle.Object, a *action) *request {
	r := &request{action: a, o: o, ended: make(chan struct{})}
	r.ctx, r.end = context.WithCancel(o.Context())
	switch {
	case a.ask == nil:
	case a.kind == doAcquire:
		a.ask.request = r
	default:
		r.first, _ = a.ask.request.(*request)
	}
	return r
}

func (e *engine) tick() {
	at := e.beginStep()
	e.armed = 0
	e.m.tick(at)
	e.forget()
	e.endStep()
}

// find finds a part's home.
func (e *engine) find(p *part) *homePart {
	if h, ok := p.driver.(*homePart); ok {
		return h
	}
	return nil
}

// forget drops the parts that the server has forgotten, and the sessions that nobody needs.
func (e *engine) forget() {
	e.m.parts = slices.DeleteFunc(e.m.parts, func(p *part) bool {
		if !p.forgotten {
			return false
		}
		x := e.find(p)
		x.unwatch()
		delete(x.home.parts, p.root)
		if len(x.home.parts) == 0 {
			delete(e.homes, x.home.key)
			x.home.cancel()
		}
		return true
	})
}

// do sends a request, and hands its answer to the machine.
func (e *engine) do(r *request) {
	defer r.end()
	a, o, ctx := r.action, r.o, r.ctx
	if r.first != nil {
		r.first.end()
		<-r.first.ended
	}
	if a.kind != doAcquire { // which is answered when it is admitted
		try := requestTry
		if a.kind == doRefresh {
			try = max(time.Duration(a.length)*time.Millisecond/2, leastTry)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, try)
		defer cancel()
	}
	var err error
	var reply protocol.Message
	switch m := a.msg.(type) {
	case *protocol.LimitJoin:
		err = o.Change(ctx, protocol.KindLimitJoin, &m.Head, m, &protocol.Empty{})
	case *protocol.LimitLeave:
		err = o.Change(ctx, protocol.KindLimitLeave, &m.Head, m, &protocol.Empty{})
	case *protocol.LimitRefresh:
		reply = new(protocol.LimitRefreshReply)
		err = o.Send(ctx, protocol.KindLimitRefresh, m, reply)
	case *protocol.LimitAcquire:
		reply = new(protocol.LimitAcquireReply)
		err = o.Send(ctx, protocol.KindLimitAcquire, m, reply)
	}
	close(r.ended)
	at := e.beginStep()
	e.m.answered(at, a, reply, err)
	e.forget()
	e.endStep()
}

// join finds or makes the part of a session in a tree, and opens a leaf of it.
func (e *engine) join(c *client.Client, key homeKey, path string) (*homePart, *leaf) {
	at := e.beginStep()
	defer e.endStep()
	h := e.homes[key]
	if h == nil {
		h = &home{e: e, c: c, key: key, ended: make(chan struct{}), parts: map[string]*homePart{}}
		parent := context.Background()
		if key.session != nil {
			parent = key.session.Context()
		}
		h.ctx, h.cancel = context.WithCancel(parent)
		e.homes[key] = h
		go h.run()
	}
	root := protocol.LimitRoot(path)
	x := h.parts[root]
	if x == nil {
		x = &homePart{part: newPart(root), home: h, unwatch: func() {}}
		x.driver = x
		x.ctx, x.fail = context.WithCancelCause(context.Background())
		h.parts[root] = x
		e.m.parts = append(e.m.parts, x.part)
		if h.session != nil {
			x.attach(at, h.session)
		}
	}
	return x, e.m.open(at, x.part, path)
}

// run keeps a session for the parts, until there are none.
func (h *home) run() {
	defer close(h.ended)
	defer h.cancel()
	for h.ctx.Err() == nil {
		s, err := h.key.session, error(nil)
		if s == nil {
			s, err = h.c.Session(h.ctx, h.key.node)
		}
		if err != nil {
			h.without(err)
			select {
			case <-h.ctx.Done():
			case <-time.After(sessionRetry):
			}
			continue
		}
		h.with(s)
		select {
		case <-s.Context().Done():
		case <-h.ctx.Done():
		}
		if s.Err() == nil && h.key.session == nil {
			ctx, cancel := context.WithTimeout(context.Background(), leaveTry)
			_ = s.Close(ctx) // if it cannot be stopped, it expires
			cancel()
		}
		if err = s.Err(); h.key.session == nil && !errors.Is(err, client.ErrClientClosed) {
			err = nil // another one takes its place
		}
		h.lost(err)
		if err != nil {
			return
		}
	}
}

// with gives all parts a session.
func (h *home) with(s *client.Session) {
	at := h.e.beginStep()
	defer h.e.endStep()
	h.session, h.err = s, nil
	for _, x := range h.parts { // they know nothing of each other
		x.attach(at, s)
	}
}

func (x *homePart) attach(at int64, s *client.Session) {
	x.unwatch()
	own := access.Session(s)
	x.object = handle.Limit(own.Node, own.Session, x.root)
	ctx, cancel := context.WithCancel(s.Context())
	x.unwatch, x.revision = cancel, 0
	x.home.e.m.attached(at, x.part, s.ID(), x.object.NodeID())
	go x.watch(ctx, x.object)
}

// lost takes the session from all parts. With an error their limiters end.
func (h *home) lost(err error) {
	at := h.e.beginStep()
	defer h.e.endStep()
	h.session = nil
	for _, x := range h.parts {
		x.unwatch()
		h.e.m.lost(at, x.part, err)
		if err != nil {
			x.fail(err)
			x.forgotten = true
		}
	}
	h.e.forget()
}

// without notes why there is no session.
func (h *home) without(err error) {
	at := h.e.beginStep()
	defer h.e.endStep()
	h.err = err
	if errors.Is(err, client.ErrClientClosed) {
		for _, x := range h.parts {
			h.e.m.lost(at, x.part, err)
			x.fail(err)
			x.forgotten = true
		}
		h.e.forget()
		return
	}
	for _, x := range h.parts {
		h.e.m.refused(at, x.part, err)
		x.notifyOpened()
	}
}

// watch hears of the server when a refresh is wanted.
func (x *homePart) watch(ctx context.Context, o *handle.Object) {
	e := x.home.e
	req := &protocol.LimitWatch{Node: o.NodeID(), Path: []byte(x.root), Session: o.SessionID()}
	read := func(h protocol.Header) (uint64, core.Step, error) {
		var m protocol.LimitChanged
		err := protocol.DecodeBody(&m, h.Body)
		return m.Revision, core.Replace, err
	}
	notice := func(revision uint64) {
		at := e.beginStep()
		if ctx.Err() == nil {
			changed := revision > x.revision && x.revision > 0
			x.revision = max(x.revision, revision)
			e.m.notice(at, x.part, changed)
		}
		e.endStep()
	}
	for ctx.Err() == nil {
		for revision, err := range handle.Watch(ctx, o, protocol.KindLimitWatch, req,
			func() func(protocol.Header) (uint64, core.Step, error) { return read }) {
			if err != nil {
				break
			}
			notice(revision)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(retryAfter)):
		}
	}
}

// answered is closed when the first answer to a call has come. It is for calls that do not wait for
// more.
func (e *engine) answered(c *call) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.answered == nil {
		if c.answered = make(chan struct{}); c.heard {
			close(c.answered)
		}
	}
	return c.answered
}
