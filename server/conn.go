package server

import (
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// wire is what a connection needs of its transport. A transport feeds bytes to conn.feed from one goroutine at a time, calls conn.closed once when
// the socket is gone, and writes what conn.out holds when told to.
type wire interface {
	// push marks the connection as having something to take. The transport takes it at the latest when Server.kick is called. Any goroutine; never
	// blocks.
	push()
	// pause has the transport leave what comes in the kernel, as far as it can. Called by the goroutine that feeds.
	pause()
	// resume ends that, and has the connection fed with what has come. Any goroutine; never blocks.
	resume()
}

// conn is one client's connection: frames in, frames out, whatever the transport.
//
// Lock order: a shard's machine, then a hub, then conn.mu, then a stripe of the bindings; conn.out.mu is a leaf.
type conn struct {
	id     uint64
	srv    *Server
	wire   wire
	remote string
	opened time.Duration

	// Owned by the goroutine that feeds.
	greeted  bool
	last     *binding     // the session of the last request: most clients have one
	need     int          // bytes that must be there before the next frame can be complete
	identity string       // set by the hello
	unheard  *unheardNode // what allowed has just said; see pass.refuse
	// certificate is what the client has shown and was verified; nil if none. Set before anything is fed.
	certificate *x509.Certificate
	spared      atomic.Bool // it turned auth on itself, and stays, with no more rights than others
	// shown is the hash of the token by which the client came in; nil if by none.
	shown atomic.Pointer[[meta.HashLen]byte]
	held  int // bytes of an unfinished frame, as Server.unfinished counts them
	lazy  int // bytes of the last feed's answers, if all of them can wait for a home's pong, which is on its way

	excess excess

	heard      atomic.Int64 // clock, ns: something came in
	frameSince atomic.Int64 // clock, ns: when the unfinished frame began; 0 is none
	ending     atomic.Bool  // said goodbye; nothing is read any more
	endedAt    atomic.Int64
	said       atomic.Bool  // hello accepted
	unanswered atomic.Int32 // Invariant: 0 <= unanswered <= window + 1
	keepAlive  atomic.Int64 // ns: the longest timeout among its sessions, which says how long it may be silent

	wantRoom atomic.Bool   // pages is not empty
	refused  atomic.Uint64 // requests that were refused as excess
	resting  atomic.Bool   // it is not to be fed until the transport is told to resume
	known    bool          // it was counted; set before anything is fed

	out outgoing

	pageGate sync.Mutex // held around the opening of a stream and its reply, and around each page; before a shard's locks

	mu       sync.Mutex
	gone     bool // closed: nothing may be bound any more
	sessions sessionSet
	bonds    []*bond     // of its bindings
	homes    []homeCount // shards here that are home to some of them
	ended    []uint64    // the last sessions that ended while bound, for a truthful answer to late requests
	pages    []*desk     // shards with snapshot pages for it that wait for room
	watching []*desk     // shards whose hubs know this connection
}

// homeCount counts the sessions of a connection at home in a shard.
type homeCount struct {
	shard   *desk
	n       int
	pledged int // of n: RELAXED attaches that the log may not have yet
}

// tallied counts frames that were handled.
type tallied struct {
	frames int
	pings  int // of them
	beyond int // of them: beyond their node's quota, and served all the same
}

// pass is the context of one goroutine that feeds connections: the time of the feed, the reads it gathers, scratch memory. It is used for one connection
// after another.
type pass struct {
	srv     *Server
	now     time.Duration
	out     *outbox
	tallied             // in this feed
	judged  tallied     // of it, what was looked at for excess
	ping    uint64      // the last ping
	due     []*desk     // shards with commands of this feed that nobody proposes unless it does
	reads   []*readList // with something in them
	byID    map[uint64]*readList
	msg     scratch
	ticket  ticketMAC
}

func (s *Server) newPass() *pass {
	return &pass{srv: s, out: s.newOutbox(), byID: make(map[uint64]*readList)}
}

// propose sends what this feed submitted on its way, if no other batch of the shard takes it along.
func (p *pass) propose() {
	for i, d := range p.due {
		p.due[i] = nil
		d.rep.Propose(p.now)
	}
	p.due = p.due[:0]
}

// forget drops what a panic left half done.
func (p *pass) forget() {
	p.propose()
	p.reads, p.pings, p.judged = nil, 0, tallied{}
	p.byID = make(map[uint64]*readList)
}

// open makes the connection known; false means that there are too many. The transport calls it before it feeds anything.
func (c *conn) open(s *Server, w wire, remote string) bool {
	c.srv, c.wire, c.remote = s, w, remote
	c.opened = s.clock.Now()
	c.heard.Store(int64(c.opened))
	if !s.addresses.take(remote) {
		return false
	}
	if !s.conns.add(c, s.maxConns) {
		s.addresses.give(remote)
		return false
	}
	c.known = true
	return true
}

// feed handles every complete frame at the start of buf and answers how many bytes it used. Nothing of buf is kept. The transport calls it with at least
// c.need bytes, and writes what is pending afterwards.
func (c *conn) feed(p *pass, buf []byte) (used int) {
	p.now = c.srv.clock.Now()
	c.heard.Store(int64(p.now))
	p.frames, p.pings, p.beyond, p.out.wrote, c.lazy = 0, 0, 0, 0, 0
	limit := uint32(protocol.MaxHelloLen)
	turns := uint64(0)
	for !c.ending.Load() {
		if p.frames-p.judged.frames >= judgedAtOnce {
			if turns = c.judge(p); turns > 0 {
				break // what is left waits until the rest is over
			}
		}
		if c.greeted {
			limit = c.srv.maxFrame
		}
		frame, n, err := protocol.SplitFrame(buf[used:], limit)
		if err != nil {
			c.refuse(err)
			break
		}
		if n == 0 {
			break
		}
		used += n
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			c.refuse(err)
			break
		}
		p.frames++
		c.handle(p, h)
	}
	if turns == 0 {
		turns = c.judge(p)
	}
	p.judged = tallied{}
	if turns > 0 {
		c.rest(turns, p.now, c.bindsAny())
	}
	if p.pings > 0 {
		if c.atHome() {
			c.srv.vouching.add(c, p.ping)
			if p.pings == p.frames {
				c.lazy = p.out.wrote
			}
		}
	}
	p.propose()
	p.serveReads()
	if c.ending.Load() {
		c.holds(0)
		c.need = 0
		c.frameSince.Store(0)
		return len(buf)
	}
	rest := buf[used:]
	if !c.holds(len(rest)) {
		return len(buf)
	}
	c.need = 4
	if len(rest) >= 4 {
		// What is left when the feed ended early has not been looked at: a length that is not allowed waits for nothing, and is refused with the next feed.
		if n := binary.BigEndian.Uint32(rest); n <= limit {
			c.need += int(n)
		}
	}
	switch {
	case len(rest) == 0:
		c.frameSince.Store(0)
	case used > 0 || c.frameSince.Load() == 0:
		c.frameSince.Store(int64(p.now))
	}
	return used
}

// keeps ends the hold of a transport that has fed, and says whether what waits is to wait on. If not, the transport writes it.
func (c *conn) keeps() bool { return c.lazy > 0 && c.out.letGo(c.lazy) }

// secure says that the client came over TLS.
func (c *conn) secure() bool {
	_, ok := c.wire.(*tlsSocket)
	return ok
}

// partial notes bytes that cannot complete a frame yet: there are n of them. False: the connection ends, and the transport drops them.
func (c *conn) partial(n int) bool {
	now := int64(c.srv.clock.Now())
	c.heard.Store(now)
	c.frameSince.CompareAndSwap(0, now)
	return c.holds(n)
}

// leastHeld is the most bytes of an unfinished frame that do not count, so that small frames in pieces never touch the total of all.
const leastHeld = 4 << 10

// holds counts the bytes of an unfinished frame. A frame that stops short of its last byte costs its sender nothing and the server its length, so what all of them hold is
// bounded. False: that is too much with these, and the connection ends.
func (c *conn) holds(n int) bool {
	if n <= leastHeld {
		n = 0
	}
	more := n - c.held
	if more == 0 {
		return true
	}
	c.held = n
	if c.srv.unfinished.Add(int64(more)) <= int64(c.srv.cfg.Limits.InTotal) || more < 0 {
		return true
	}
	c.holds(0)
	c.need = 0
	c.frameSince.Store(0)
	if c.end(endSoft, protocol.StatusOverloaded, fmt.Sprintf("the server holds its limit of %d bytes of unfinished frames; connect again, and send frames whole", c.srv.cfg.Limits.InTotal)) {
		c.srv.metrics.unfinishedCut.Inc()
	}
	return false
}

// handle serves one frame.
func (c *conn) handle(p *pass, h protocol.Header) {
	switch {
	case !c.greeted:
		if h.Kind != protocol.KindHello {
			c.refuse(protocol.Errorf(protocol.StatusBadRequest, "the first frame must be a hello"))
			return
		}
		c.unanswered.Add(1)
		c.hello(p, h)
	case h.Kind == protocol.KindHello:
		c.refuse(protocol.Errorf(protocol.StatusBadRequest, "a second hello came; send one, as the first frame"))
	case h.Kind.IsRequest():
		c.request(p, h)
	case h.Kind < 2*protocol.KindReply && (h.Kind.IsReply() || h.Kind.IsEvent()):
		c.refuse(protocol.Errorf(protocol.StatusBadRequest, "kind %d is for servers to send; send requests only", h.Kind))
	default:
		c.unanswered.Add(1)
		p.out.fail(c, h.Kind, h.ID, protocol.StatusUnsupported, "this message is not known here; the server may be older than the client")
	}
}

// answered takes one request off the window.
func (c *conn) answered() { c.unanswered.Add(-1) }

// refuse ends a connection whose bytes make no sense, with the reason.
func (c *conn) refuse(err error) {
	status, text := statusText(err)
	if c.end(endSoft, status, text) {
		c.srv.metrics.refused.Inc()
	}
}

// end says goodbye and has the transport close the connection. It answers false when that was done before.
func (c *conn) end(how ending, status protocol.Status, text string) bool {
	c.out.mu.Lock()
	if c.out.end != stayOpen {
		hardened := how == endHard && c.out.end == endSoft
		if hardened {
			c.out.end = endHard
			c.out.pushed = true
		}
		c.out.mu.Unlock()
		if hardened {
			c.wire.push()
		}
		return false
	}
	b := c.out.buffer()
	n := len(b.B)
	b.B = protocol.AppendFrame(b.B, protocol.KindGoodbye, 0, 0, &protocol.Goodbye{Status: status, Message: text})
	c.out.size += len(b.B) - n
	c.out.total += uint64(len(b.B) - n)
	c.out.end = how
	push := !c.out.pushed
	c.out.pushed = true
	c.out.mu.Unlock()
	c.endedAt.Store(int64(c.srv.clock.Now()))
	c.ending.Store(true)
	if push {
		c.wire.push()
	}
	return true
}

// closed forgets the connection: nothing finds it any more, what waits for it is dropped, its sessions' homes learn when it was last heard. The
// transport calls it once, after the last feed.
func (c *conn) closed() {
	c.ending.Store(true)
	if !c.known {
		return // a transport may close what was never opened
	}
	c.holds(0)
	c.srv.conns.remove(c)
	c.srv.addresses.give(c.remote)
	c.out.drop()
	c.noteHeld(0)
	heard := time.Duration(c.heard.Load())

	c.mu.Lock()
	c.gone = true
	sessions, homes, watching := c.sessions, c.homes, c.watching
	c.sessions, c.homes, c.watching, c.pages = sessionSet{}, nil, nil, nil
	c.last = nil
	// Told under the lock: an attach that is applied now either was bound before, or finds the connection gone and tells the home itself.
	for _, h := range homes {
		h.shard.rep.ConnClosed(c.id, heard)
	}
	c.mu.Unlock()
	sessions.each(c.srv.bindings.drop)
	for _, d := range watching {
		d.hub.ConnClosed(c.id)
		d.streams.connGone(c.id)
		d.rollouts.connGone(c.id)
	}
}
