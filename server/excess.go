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
	excessAlone    = 256  // so much excess a connection has served between two sweeps; the shortest session timeout takes 20 pings in that time
	excessTogether = 4096 // when all connections together had so much between two sweeps, each has served excessPings pings, and nothing else
	excessPings    = 32

	// judgedAtOnce is how many frames are served before a look whether they are excess: a burst of thousands keeps nobody waiting.
	judgedAtOnce = 512

	restMost      = 8 // sweeps
	restMostBound = 2 // sweeps, with sessions on the connection

	// restWake is what the kernel keeps of a connection that rests before the event loop hears of it. No more than a fifth of the buffer that a socket begins with, so that the
	// kernel makes none larger for it.
	restWake = 16 << 10
	// restBytes is how much may wait in the transport's buffer of a connection that rests: more than a window of small requests, and than any one of them. While a quarter of
	// Limits.InTotal waits of all connections, restWake. With more the connection ends.
	restBytes = 2 * protocol.MaxFrameLen

	// Connections go on a few at a time, so that those that rested together do not come back together.
	resumePeriod = 10 * time.Millisecond
	resumeMost   = 25 // a period
	// resumeBound is how many of those with sessions go on a period: they have a turn of their own, since it is their keep-alives that wait.
	resumeBound = 100
)

// isExcess says which refusals count: those that a client that does what it should sees few of.
func isExcess(status protocol.Status) bool {
	switch status {
	case protocol.StatusOverloaded, protocol.StatusBadRequest, protocol.StatusBadSession, protocol.StatusSessionExpired, protocol.StatusUnsupported,
		protocol.StatusUnauthenticated, protocol.StatusForbidden:
		return true
	}
	return false
}

// turns count sweeps, and the excess since the last.
type turns struct {
	turn  atomic.Uint64 // from 1
	count atomic.Int64
}

// next begins a turn.
func (t *turns) next() {
	t.count.Store(0)
	t.turn.Add(1)
}

// excess is a connection's. The goroutine that feeds owns it.
type excess struct {
	refused uint64 // of the connection's refusals, so many have been judged
	turn    uint64 // in which n was counted
	n       int
	until   uint64 // the turn in which the last rest ended, or will
	rests   uint64 // how many turns it lasted
}

// judge looks at a feed of so many frames, after which there were so many refusals on the connection since it began, and answers for how many turns it is to rest. A refusal
// that came from the log counts in the feed after.
func (e *excess) judge(t *turns, refused uint64, pings, beyond, frames int, bound bool) (rests uint64) {
	n := int(refused-e.refused) + pings + beyond
	e.refused = refused
	if n == 0 {
		return 0
	}
	turn := t.turn.Load()
	if e.turn != turn {
		e.turn, e.n = turn, 0
	}
	e.n += n
	served := excessAlone
	if t.count.Add(int64(n)) > excessTogether {
		served = 0
		if n == pings {
			served = excessPings
		}
	}
	if n < frames || e.n <= served {
		return 0 // something else is among them, which somebody may wait for
	}
	most := uint64(restMost)
	if bound {
		most = restMostBound
	}
	if e.until > 0 && turn <= e.until+2 {
		e.rests = min(2*e.rests, most)
	} else {
		e.rests = 1
	}
	e.until = turn + e.rests
	return e.rests
}

// judge judges what this feed has served since the last look.
func (c *conn) judge(p *pass) (turns uint64) {
	was := p.judged
	p.judged = p.tallied
	pings, beyond := p.pings-was.pings, p.beyond-was.beyond
	refused := c.refused.Load()
	if pings+beyond == 0 && refused == c.excess.refused {
		return 0
	}
	return c.excess.judge(&c.srv.turns, refused, pings, beyond, p.frames-was.frames, c.bindsAny())
}

// rest has the connection rest for so many turns. Its own goroutine calls it, at the end of a feed. Bound says that it has sessions.
func (c *conn) rest(turns uint64, now time.Duration, bound bool) {
	c.resting.Store(true)
	c.srv.rests.add(c, now+time.Duration(turns)*sweepPeriod, bound)
	c.wire.pause()
}

// rests notes that so many bytes wait of a connection that rests. False: they are to be fed, since it does not rest, or dropped, since it ends.
func (c *conn) rests(n int) bool {
	if !c.resting.Load() || c.ending.Load() {
		return false
	}
	c.heard.Store(int64(c.srv.clock.Now()))
	most := restBytes
	if c.srv.unfinished.Load() > int64(c.srv.cfg.Limits.InTotal/4) {
		most = restWake
	}
	if n < most {
		return c.holds(n)
	}
	if c.end(endSoft, protocol.StatusOverloaded, fmt.Sprintf("this connection was told no hundreds of times, and sent %d bytes more meanwhile; wait for answers, and a while before asking again", n)) {
		c.srv.metrics.excessCut.Inc()
	}
	return false
}

// rested has the frame that was unfinished when the rest began take its time from now on.
func (c *conn) rested(now time.Duration) {
	if since := c.frameSince.Load(); since != 0 {
		c.frameSince.CompareAndSwap(since, int64(now))
	}
	c.heard.Store(int64(now)) // what came is still in the kernel, and nobody knows when
	c.resting.Store(false)
}

// rests are the connections that rest.
type rests struct {
	srv  *Server
	wake chan struct{}

	mu    sync.Mutex
	list  restHeap
	bound restHeap // connections with sessions
}

func newRests(s *Server) *rests { return &rests{srv: s, wake: make(chan struct{}, 1)} }

type resting struct {
	c     *conn
	until time.Duration
}

func (r *rests) add(c *conn, until time.Duration, bound bool) {
	r.mu.Lock()
	list := &r.list
	if bound {
		list = &r.bound
	}
	heap.Push(list, resting{c, until})
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
func (r *rests) resume(most, bound int) (left bool) {
	now := r.srv.clock.Now()
	var list []*conn
	r.mu.Lock()
	for n := 0; len(r.bound) > 0 && r.bound[0].until <= now && n < bound; n++ {
		list = append(list, heap.Pop(&r.bound).(resting).c)
	}
	for n := 0; len(r.list) > 0 && r.list[0].until <= now && n < most; n++ {
		list = append(list, heap.Pop(&r.list).(resting).c)
	}
	left = len(r.list)+len(r.bound) > 0
	r.mu.Unlock()
	for _, c := range list {
		c.rested(now)
		c.wire.resume()
	}
	return left
}

// run goes on until the server stops. It sleeps while nobody rests.
func (r *rests) run() {
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
				left = r.resume(resumeMost, resumeBound)
			}
		}
		t.Stop()
	}
}

// restHeap is a heap by the end of the rest.
type restHeap []resting

func (h restHeap) Len() int           { return len(h) }
func (h restHeap) Less(i, j int) bool { return h[i].until < h[j].until }
func (h restHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *restHeap) Push(x any)        { *h = append(*h, x.(resting)) }
func (h *restHeap) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = resting{}
	*h = (*h)[:len(*h)-1]
	return last
}
