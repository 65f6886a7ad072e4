package transport

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// A client that is rejected immediately, or gets a pong, retries immediately. Thousands of such
// clients keep an instance busy.
//
// Unwanted requests are those of which a well-behaved client sends few: pings; requests rejected
// because they are too many, malformed, forbidden, or on a session that is not bound; requests
// beyond a quota that are never rejected. The Client counts these. A connection that sends many,
// and nothing else, is paused for 0.5 s, then for twice as long, up to 4 s. So are all when
// together they send many. A connection with sessions is paused for at most 1 s: its keep-alives
// wait.
//
// Replies that are ready are written at once. Bytes that arrive during a pause stay in the kernel,
// which wakes the event loop only for larger amounts, and then in the transport's buffer. A client
// that fills that too is closed: nothing else bounds the bytes that a server that cannot stop
// reading holds for it.
const (
	unwantedPerConn = 256  // served between two sweeps; the shortest session timeout takes 20 pings in that time
	unwantedTotal   = 4096 // of all connections, but for pingsPerConn pings of each; beyond it each is served these, and nothing else of it
	pingsPerConn    = 32

	// framesPerCheck is how many frames are served between two checks, so that a burst delays
	// nobody.
	framesPerCheck = 512

	maxPause      = 8 // sweeps
	maxPauseAlive = 2 // sweeps, where Client.KeepsAlive

	// pausedLowWater is how many bytes the kernel keeps of a paused connection before it wakes the
	// event loop. It is a fifth of a socket's initial buffer at most, so that the kernel does not
	// grow it.
	pausedLowWater = 16 << 10
	// pausedBufferLimit bounds the transport's buffer of a paused connection: more than a window of
	// small requests, and more than any single one. It is pausedLowWater while all connections
	// together hold a quarter of Limits.InTotal. Beyond it the connection is closed.
	pausedBufferLimit = 2 * protocol.MaxFrameLen

	// Connections resume a few at a time, so that those paused together do not come back together.
	resumePeriod    = 10 * time.Millisecond
	resumePerPeriod = 25 // a period
	// resumeAlivePerPeriod is for connections whose keep-alives wait.
	resumeAlivePerPeriod = 100
)

// sweepCounter counts sweeps, and the unwanted frames since the last one. It leaves out the first
// pingsPerConn pings of each connection: the keep-alives of thousands of connections are no flood.
type sweepCounter struct {
	sweep    atomic.Uint64 // from 1
	unwanted atomic.Int64
}

// next begins a sweep.
func (s *sweepCounter) next() {
	s.unwanted.Store(0)
	s.sweep.Add(1)
}

// CountPing counts a frame as a ping. The reading goroutine calls it.
func (c *Conn) CountPing() { c.pings++ }

// CountRejection counts a frame as unwanted: it was rejected, or served beyond a quota.
func (c *Conn) CountRejection() { c.rejections.Add(1) }

// throttle is a connection's. The reading goroutine owns it.
type throttle struct {
	seen        uint64 // the connection's rejections that have been classified
	sweep       uint64 // in which n and pings were counted
	n           int
	pings       int    // of n
	pausedUntil uint64 // the sweep in which the last pause ends
	lastPause   uint64 // in sweeps
}

// classify takes the counts of one read, and the connection's rejections so far. It returns how
// many sweeps to pause, or 0. A rejection that comes from the log counts in the next read.
func (t *throttle) classify(
	sweeps *sweepCounter, rejections uint64, pings, frames int, keepsAlive bool,
) (pause uint64) {
	n := int(rejections-t.seen) + pings
	t.seen = rejections
	if n == 0 {
		return 0
	}
	sweep := sweeps.sweep.Load()
	if t.sweep != sweep {
		t.sweep, t.n, t.pings = sweep, 0, 0
	}
	t.n += n
	counted := max(0, t.pings-pingsPerConn)
	t.pings += pings
	over := n - pings + max(0, t.pings-pingsPerConn) - counted
	served := unwantedPerConn
	if sweeps.unwanted.Add(int64(over)) > unwantedTotal {
		served = 0
		if n == pings {
			served = pingsPerConn
		}
	}
	if n < frames || t.n <= served {
		return 0 // something else is among them, which somebody may wait for
	}
	most := uint64(maxPause)
	if keepsAlive {
		most = maxPauseAlive
	}
	if t.pausedUntil > 0 && sweep <= t.pausedUntil+2 {
		t.lastPause = min(2*t.lastPause, most)
	} else {
		t.lastPause = 1
	}
	t.pausedUntil = sweep + t.lastPause
	return t.lastPause
}

// classify classifies the frames that this read has served since the last call.
func (c *Conn) classify(frames int) (sweeps uint64) {
	pings, rejections := c.pings, c.rejections.Load()
	c.pings = 0
	if pings == 0 && rejections == c.throttle.seen {
		return 0
	}
	return c.throttle.classify(&c.t.sweeps, rejections, pings, frames, c.client.KeepsAlive())
}

// pause stops reading the connection for some sweeps. The reading goroutine calls it, after a read.
func (c *Conn) pause(sweeps uint64, now time.Duration, keepsAlive bool) {
	c.paused.Store(true)
	c.t.paused.add(c, now+time.Duration(sweeps)*SweepPeriod, keepsAlive)
	c.socket.pauseReads()
}

// Paused reports whether the connection is not read for a while, because it has sent nothing but
// unwanted frames.
func (c *Conn) Paused() bool { return c.paused.Load() }

// bufferPaused counts the n bytes that a paused connection has buffered. It returns false if the
// connection is not paused, or is being closed.
func (c *Conn) bufferPaused(n int) bool {
	if !c.paused.Load() || c.ending.Load() {
		return false
	}
	c.lastReceived.Store(int64(c.t.cfg.Clock.Now()))
	most := pausedBufferLimit
	if c.t.unfinished.Load() > int64(c.t.cfg.Limits.InTotal/4) {
		most = pausedLowWater
	}
	if n < most {
		return c.countUnfinished(n)
	}
	if c.Close(Graceful, protocol.StatusOverloaded,
		fmt.Sprintf(
			"this connection had hundreds of requests rejected, and sent %d more bytes while paused; wait for answers, and retry later",
			n)) {
		c.t.Metrics.Throttled.Inc()
	}
	return false
}

// resume ends a pause. The deadline of a frame that was incomplete begins again.
func (c *Conn) resume(now time.Duration) {
	if since := c.frameSince.Load(); since != 0 {
		c.frameSince.CompareAndSwap(since, int64(now))
	}
	c.lastReceived.Store(int64(now)) // bytes may still be in the kernel since an unknown time
	c.paused.Store(false)
}

// pausedConns are the paused connections.
type pausedConns struct {
	t    *Transport
	wake chan struct{}

	mu    sync.Mutex
	list  container.Heap[pausedConn] // by the end of the pause
	alive container.Heap[pausedConn] // where Client.KeepsAlive
}

func newPausedConns(t *Transport) *pausedConns {
	return &pausedConns{t: t, wake: make(chan struct{}, 1)}
}

type pausedConn struct{ *Conn }

func (pausedConn) Position() *int32       { return nil }
func (pausedConn) Before(pausedConn) bool { return false }

func (p *pausedConns) add(c *Conn, until time.Duration, keepsAlive bool) {
	p.mu.Lock()
	list := &p.list
	if keepsAlive {
		list = &p.alive
	}
	list.Push(pausedConn{c}, uint64(until))
	first := p.list.Len()+p.alive.Len() == 1
	p.mu.Unlock()
	if first {
		wake(p.wake)
	}
}

// resume resumes connections whose pause is over: at most most of them, and alive of those whose
// keep-alives wait. left reports whether some are still paused.
func (p *pausedConns) resume(most, alive int) (left bool) {
	now := p.t.cfg.Clock.Now()
	var list []*Conn
	p.mu.Lock()
	for n := 0; p.alive.Len() > 0 && p.alive.First().Key <= uint64(now) && n < alive; n++ {
		list = append(list, p.alive.Pop().Item.Conn)
	}
	for n := 0; p.list.Len() > 0 && p.list.First().Key <= uint64(now) && n < most; n++ {
		list = append(list, p.list.Pop().Item.Conn)
	}
	left = p.list.Len()+p.alive.Len() > 0
	p.mu.Unlock()
	for _, c := range list {
		c.resume(now)
		c.socket.resumeReads()
	}
	return left
}

// run goes on until Close. It sleeps while none is paused.
func (p *pausedConns) run() {
	t := time.NewTicker(resumePeriod)
	defer t.Stop()
	for {
		select {
		case <-p.t.ctx.Done():
			return
		case <-p.wake:
		}
		t.Reset(resumePeriod)
		for left := true; left; {
			select {
			case <-p.t.ctx.Done():
				return
			case <-t.C:
				left = p.resume(resumePerPeriod, resumeAlivePerPeriod)
			}
		}
		t.Stop()
	}
}
