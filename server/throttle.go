package server

import (
	"container/heap"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// A client that is told no, or pong, at once, asks again at once, and so can keep an instance busy with saying so. Excess is what no client needs much of: pings, and requests
// that are refused because they are too many, malformed, not allowed, or on behalf of a session that is not its own, or would be too many if they were ever refused. When
// there has been a lot of that on a connection, or on all of them together, and a feed holds nothing else, the connection rests: nothing of it is looked at for half a second. If
// it goes on like that afterwards, it rests for twice as long, up to four seconds; with sessions on it, whose keep-alives it would delay, up to one second. What was answered is sent at once, and what comes meanwhile
// waits: in the kernel, which does not even wake the event loop for a little of it, and then in the transport's buffer. A client that sends on and on meanwhile is told
// goodbye: nothing else ends what a server that cannot stop reading has to hold for it.
const (
	excessPerConn = 256  // so much excess a connection has served between two sweeps; the shortest session timeout takes 20 pings in that time
	excessTotal   = 4096 // when all connections together had so much between two sweeps, each has served pingsPerConn pings, and nothing else
	pingsPerConn  = 32

	// framesPerCheck is how many frames are served before a look whether they are excess: a burst of thousands keeps nobody waiting.
	framesPerCheck = 512

	maxPause      = 8 // sweeps
	maxPauseBound = 2 // sweeps, with sessions on the connection

	// pausedLowWater is what the kernel keeps of a connection that rests before the event loop hears of it. No more than a fifth of the buffer that a socket begins with, so that the
	// kernel makes none larger for it.
	pausedLowWater = 16 << 10
	// pausedBufferLimit is how much may wait in the transport's buffer of a connection that rests: more than a window of small requests, and than any one of them. While a quarter of
	// Limits.InTotal waits of all connections, pausedLowWater. With more the connection ends.
	pausedBufferLimit = 2 * protocol.MaxFrameLen

	// Connections go on a few at a time, so that those that rested together do not come back together.
	resumePeriod    = 10 * time.Millisecond
	resumePerPeriod = 25 // a period
	// resumeBoundPerPeriod is how many of those with sessions go on a period: they have a turn of their own, since it is their keep-alives that wait.
	resumeBoundPerPeriod = 100
)

// countsAsExcess says which refusals count: those that a client that does what it should sees few of.
func countsAsExcess(status protocol.Status) bool {
	switch status {
	case protocol.StatusOverloaded, protocol.StatusBadRequest, protocol.StatusBadSession, protocol.StatusSessionExpired, protocol.StatusUnsupported,
		protocol.StatusUnauthenticated, protocol.StatusForbidden:
		return true
	}
	return false
}

// sweepCounter count sweeps, and the excess since the last.
type sweepCounter struct {
	sweep  atomic.Uint64 // from 1
	excess atomic.Int64
}

// next begins a turn.
func (t *sweepCounter) next() {
	t.excess.Store(0)
	t.sweep.Add(1)
}

// throttle is a connection's. The goroutine that feeds owns it.
type throttle struct {
	rejections  uint64 // of the connection's refusals, so many have been judged
	sweep       uint64 // in which n was counted
	n           int
	pausedUntil uint64 // the turn in which the last rest ended, or will
	lastPause   uint64 // how many turns it lasted
}

// classify looks at a feed of so many frames, after which there were so many refusals on the connection since it began, and answers for how many turns it is to rest. A refusal
// that came from the log counts in the feed after.
func (e *throttle) classify(t *sweepCounter, refused uint64, pings, beyond, frames int, bound bool) (rests uint64) {
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

// pause has the connection rest for so many turns. Its own goroutine calls it, at the end of a feed. Bound says that it has sessions.
func (c *conn) pause(sweeps uint64, now time.Duration, bound bool) {
	c.paused.Store(true)
	c.server.pausedConns.add(c, now+time.Duration(sweeps)*sweepPeriod, bound)
	c.transport.pauseReads()
}

// bufferPaused notes that so many bytes wait of a connection that rests. False: they are to be fed, since it does not rest, or dropped, since it ends.
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
	if c.close(closeGraceful, protocol.StatusOverloaded, fmt.Sprintf("this connection was told no hundreds of times, and sent %d bytes more meanwhile; wait for answers, and a while before asking again", n)) {
		c.server.metrics.excessCut.Inc()
	}
	return false
}

// resume has the frame that was unfinished when the rest began take its time from now on.
func (c *conn) resume(now time.Duration) {
	if since := c.frameSince.Load(); since != 0 {
		c.frameSince.CompareAndSwap(since, int64(now))
	}
	c.lastReceived.Store(int64(now)) // what came is still in the kernel, and nobody knows when
	c.paused.Store(false)
}

// pausedConns are the connections that rest.
type pausedConns struct {
	srv  *Server
	wake chan struct{}

	mu    sync.Mutex
	list  pauseHeap
	bound pauseHeap // connections with sessions
}

func newPausedConns(s *Server) *pausedConns {
	return &pausedConns{srv: s, wake: make(chan struct{}, 1)}
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

// resume lets those go on whose rest is over, so many of them at most, and so many of those with sessions, and says whether any still rest.
func (r *pausedConns) resume(most, bound int) (left bool) {
	now := r.srv.clock.Now()
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

// run goes on until the server stops. It sleeps while nobody rests.
func (r *pausedConns) run() {
	t := time.NewTicker(resumePeriod)
	defer t.Stop()
	for {
		select {
		case <-r.srv.ctx.Done():
			return
		case <-r.wake:
		}
		t.Reset(resumePeriod)
		for left := true; left; {
			select {
			case <-r.srv.ctx.Done():
				return
			case <-t.C:
				left = r.resume(resumePerPeriod, resumeBoundPerPeriod)
			}
		}
		t.Stop()
	}
}

// pauseHeap is a heap by the end of the rest.
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
