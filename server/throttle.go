package server

import (
	"container/heap"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// A client that is rejected immediately, or gets a pong, retries immediately. Thousands of such
// clients keep an instance busy.
//
// Excess is what no well-behaved client sends much of: pings; requests rejected because they are too
// many, malformed, forbidden, or on a session that is not bound; requests beyond a quota that are never
// rejected. A connection that sends only excess, and much of it, is paused for 0.5 s, then for twice as
// long, up to 4 s. The same holds when all connections together send much. A connection with sessions
// is paused for at most 1 s, because its keep-alives wait.
//
// Replies that are ready are written at once. What arrives during a pause stays in the kernel, which
// wakes the event loop only for larger amounts, and then in the transport's buffer. A client that fills
// that too is closed: nothing else bounds what a server that cannot stop reading holds for it.
const (
	excessPerConn = 256  // served between two sweeps; the shortest session timeout takes 20 pings in that time
	excessTotal   = 4096 // of all connections; beyond it each is served pingsPerConn pings, and no other excess
	pingsPerConn  = 32

	// framesPerCheck is how many frames are served between two checks, so that a burst delays nobody.
	framesPerCheck = 512

	maxPause      = 8 // sweeps
	maxPauseBound = 2 // sweeps, with sessions on the connection

	// pausedLowWater is how many bytes the kernel keeps of a paused connection before it wakes the
	// event loop. It is a fifth of a socket's initial buffer at most, so that the kernel does not grow it.
	pausedLowWater = 16 << 10
	// pausedBufferLimit bounds the transport's buffer of a paused connection: more than a window of
	// small requests, and more than any single one. It is pausedLowWater while all connections
	// together hold a quarter of Limits.InTotal. Beyond it the connection is closed.
	pausedBufferLimit = 2 * protocol.MaxFrameLen

	// Connections resume a few at a time, so that those paused together do not come back together.
	resumePeriod    = 10 * time.Millisecond
	resumePerPeriod = 25 // a period
	// resumeBoundPerPeriod is for connections with sessions, whose keep-alives wait.
	resumeBoundPerPeriod = 100
)

// countsAsExcess says which rejections count: those that a well-behaved client sees few of.
func countsAsExcess(status protocol.Status) bool {
	switch status {
	case protocol.StatusOverloaded, protocol.StatusBadRequest, protocol.StatusBadSession, protocol.StatusSessionExpired, protocol.StatusUnsupported,
		protocol.StatusUnauthenticated, protocol.StatusForbidden:
		return true
	}
	return false
}

// sweepCounter counts sweeps, and the excess since the last one.
type sweepCounter struct {
	sweep  atomic.Uint64 // from 1
	excess atomic.Int64
}

// next begins a sweep.
func (t *sweepCounter) next() {
	t.excess.Store(0)
	t.sweep.Add(1)
}

// throttle is a connection's. The goroutine that feeds owns it.
type throttle struct {
	rejections  uint64 // of the connection's refusals, so many have been judged
	sweep       uint64 // in which n was counted
	n           int
	pausedUntil uint64 // the sweep in which the last pause ends
	lastPause   uint64 // in sweeps
}

// classify takes the counts of one read, and the connection's rejections so far. It returns for how many
// sweeps to pause; 0: not at all. A rejection that comes from the log counts in the next read.
func (e *throttle) classify(t *sweepCounter, refused uint64, pings, beyond, frames int, bound bool) (pause uint64) {
	n := int(refused-e.rejections) + pings + beyond
	e.rejections = refused
	if n == 0 {
		return 0
	}
	turn := t.sweep.Load()
	if e.sweep != turn {
		e.sweep, e.n = turn, 0
	}
	e.n += n
	served := excessPerConn
	if t.excess.Add(int64(n)) > excessTotal {
		served = 0
		if n == pings {
			served = pingsPerConn
		}
	}
	if n < frames || e.n <= served {
		return 0 // something else is among them, which somebody may wait for
	}
	most := uint64(maxPause)
	if bound {
		most = maxPauseBound
	}
	if e.pausedUntil > 0 && turn <= e.pausedUntil+2 {
		e.lastPause = min(2*e.lastPause, most)
	} else {
		e.lastPause = 1
	}
	e.pausedUntil = turn + e.lastPause
	return e.lastPause
}

// classify judges what this feed has served since the last look.
func (c *conn) classify(p *readCycle) (sweeps uint64) {
	was := p.classified
	p.classified = p.frameCounts
	pings, beyond := p.pings-was.pings, p.overQuota-was.overQuota
	refused := c.rejections.Load()
	if pings+beyond == 0 && refused == c.throttle.rejections {
		return 0
	}
	return c.throttle.classify(&c.server.sweeps, refused, pings, beyond, p.frames-was.frames, c.hasSessions())
}

// pause stops reading the connection for some sweeps. The reading goroutine calls it, after a read. bound:
// the connection has sessions.
func (c *conn) pause(sweeps uint64, now time.Duration, bound bool) {
	c.paused.Store(true)
	c.server.pausedConns.add(c, now+time.Duration(sweeps)*sweepPeriod, bound)
	c.transport.pauseReads()
}

// bufferPaused counts the n bytes that a paused connection has buffered. False: it is not paused, or it is
// being closed.
func (c *conn) bufferPaused(n int) bool {
	if !c.paused.Load() || c.ending.Load() {
		return false
	}
	c.lastReceived.Store(int64(c.server.clock.Now()))
	most := pausedBufferLimit
	if c.server.unfinished.Load() > int64(c.server.cfg.Limits.InTotal/4) {
		most = pausedLowWater
	}
	if n < most {
		return c.countUnfinished(n)
	}
	if c.close(closeGraceful, protocol.StatusOverloaded, fmt.Sprintf("this connection had hundreds of requests rejected, and sent %d more bytes while paused; wait for answers, and retry later", n)) {
		c.server.metrics.throttledClosed.Inc()
	}
	return false
}

// resume ends a pause. The deadline of a frame that was incomplete begins again.
func (c *conn) resume(now time.Duration) {
	if since := c.frameSince.Load(); since != 0 {
		c.frameSince.CompareAndSwap(since, int64(now))
	}
	c.lastReceived.Store(int64(now)) // what came is still in the kernel, and nobody knows when
	c.paused.Store(false)
}

// pausedConns are the paused connections.
type pausedConns struct {
	server *Server
	wake   chan struct{}

	mu    sync.Mutex
	list  pauseHeap
	bound pauseHeap // connections with sessions
}

func newPausedConns(s *Server) *pausedConns {
	return &pausedConns{server: s, wake: make(chan struct{}, 1)}
}

type pausedConn struct {
	c     *conn
	until time.Duration
}

func (r *pausedConns) add(c *conn, until time.Duration, bound bool) {
	r.mu.Lock()
	list := &r.list
	if bound {
		list = &r.bound
	}
	heap.Push(list, pausedConn{c, until})
	first := len(r.list)+len(r.bound) == 1
	r.mu.Unlock()
	if first {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// resume resumes connections whose pause is over: at most so many without sessions, and so many with.
// left: some are still paused.
func (r *pausedConns) resume(most, bound int) (left bool) {
	now := r.server.clock.Now()
	var list []*conn
	r.mu.Lock()
	for n := 0; len(r.bound) > 0 && r.bound[0].until <= now && n < bound; n++ {
		list = append(list, heap.Pop(&r.bound).(pausedConn).c)
	}
	for n := 0; len(r.list) > 0 && r.list[0].until <= now && n < most; n++ {
		list = append(list, heap.Pop(&r.list).(pausedConn).c)
	}
	left = len(r.list)+len(r.bound) > 0
	r.mu.Unlock()
	for _, c := range list {
		c.resume(now)
		c.transport.resumeReads()
	}
	return left
}

// run goes on until the server stops. It sleeps while none is paused.
func (r *pausedConns) run() {
	t := time.NewTicker(resumePeriod)
	defer t.Stop()
	for {
		select {
		case <-r.server.ctx.Done():
			return
		case <-r.wake:
		}
		t.Reset(resumePeriod)
		for left := true; left; {
			select {
			case <-r.server.ctx.Done():
				return
			case <-t.C:
				left = r.resume(resumePerPeriod, resumeBoundPerPeriod)
			}
		}
		t.Stop()
	}
}

// pauseHeap is a heap by the end of the pause.
type pauseHeap []pausedConn

func (h pauseHeap) Len() int           { return len(h) }
func (h pauseHeap) Less(i, j int) bool { return h[i].until < h[j].until }
func (h pauseHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *pauseHeap) Push(x any)        { *h = append(*h, x.(pausedConn)) }
func (h *pauseHeap) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = pausedConn{}
	*h = (*h)[:len(*h)-1]
	return last
}
