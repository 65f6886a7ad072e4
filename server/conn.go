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
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// transport is what a connection needs of its transport. A transport feeds bytes to conn.readFrames from one goroutine at a time, calls conn.onClosed once when
// the socket is gone, and writes what conn.out holds when told to.
type transport interface {
	// markDirty marks the connection as having something to take. The transport takes it at the latest when Server.wakeWriters is called. Any goroutine; never
	// blocks.
	markDirty()
	// pauseReads has the transport leave what comes in the kernel, as far as it can. Called by the goroutine that feeds.
	pauseReads()
	// resumeReads ends that, and has the connection fed with what has come. Any goroutine; never blocks.
	resumeReads()
}

// conn is one client's connection: frames in, frames out, whatever the transport.
//
// Lock order: a shard's machine, then a hub, then conn.mu, then a stripe of the bindings; conn.out.mu is a leaf.
type conn struct {
	id        uint64
	server    *Server
	transport transport
	remote    string
	opened    time.Duration

	// Owned by the goroutine that feeds.
	greeted     bool
	lastBinding *binding     // the session of the last request: most clients have one
	need        int          // bytes that must be there before the next frame can be complete
	identity    string       // set by the hello
	unknownNode *unknownNode // what allowed has just said; see readCycle.reject
	// certificate is what the client has shown and was verified; nil if none. Set before anything is fed.
	certificate *x509.Certificate
	authExempt  atomic.Bool // it turned auth on itself, and stays, with no more rights than others
	// tokenHash is the hash of the token by which the client came in; nil if by none.
	tokenHash  atomic.Pointer[[meta.HashLen]byte]
	unfinished int // bytes of an unfinished frame, as Server.unfinished counts them
	deferrable int // bytes of the last feed's answers, if all of them can wait for a home's pong, which is on its way

	throttle throttle

	lastReceived atomic.Int64 // clock, ns: something came in
	frameSince   atomic.Int64 // clock, ns: when the unfinished frame began; 0 is none
	ending       atomic.Bool  // said goodbye; nothing is read any more
	endedAt      atomic.Int64
	helloDone    atomic.Bool  // hello accepted
	unanswered   atomic.Int32 // Invariant: 0 <= unanswered <= window + 1
	keepAlive    atomic.Int64 // ns: the longest timeout among its sessions, which says how long it may be silent

	waitsForRoom atomic.Bool   // pages is not empty
	rejections   atomic.Uint64 // requests that were refused as excess
	paused       atomic.Bool   // it is not to be fed until the transport is told to resume
	registered   bool          // it was counted; set before anything is fed

	out outgoing

	pageMu sync.Mutex // held around the opening of a stream and its reply, and around each page; before a shard's locks

	mu             sync.Mutex
	unbindable     bool // closed: nothing may be bound any more
	sessions       sessionSet
	sharedBindings []*sharedBinding // of its bindings
	homes          []homeSessions   // shards here that are home to some of them
	endedSessions  []uint64         // the last sessions that ended while bound, for a truthful answer to late requests
	duePages       []*shardHost     // shards with snapshot pages for it that wait for room
	watchedShards  []*shardHost     // shards whose hubs know this connection
}

// homeSessions counts the sessions of a connection at home in a shard.
type homeSessions struct {
	shard    *shardHost
	n        int
	unlogged int // of n: RELAXED attaches that the log may not have yet
}

// frameCounts counts frames that were handled.
type frameCounts struct {
	frames    int
	pings     int // of them
	overQuota int // of them: beyond their node's quota, and served all the same
}

// readCycle is the context of one goroutine that feeds connections: the time of the feed, the reads it gathers, scratch memory. It is used for one connection
// after another.
type readCycle struct {
	server       *Server
	now          time.Duration
	out          *outbox
	frameCounts                    // in this feed
	classified   frameCounts       // of it, what was looked at for excess
	lastPing     uint64            // the last ping
	commands     replica.Submitter // of this feed
	reads        []*readBatch      // with something in them
	byID         map[uint64]*readBatch
	requests     requestBuffers
	ticketSigner ticketSigner
}

func (s *Server) newReadCycle() *readCycle {
	return &readCycle{server: s, out: s.newOutbox(), byID: make(map[uint64]*readBatch)}
}

// reset drops what a panic left half done.
func (p *readCycle) reset() {
	p.commands.Flush(p.now)
	p.reads, p.pings, p.classified = nil, 0, frameCounts{}
	p.byID = make(map[uint64]*readBatch)
}

// open makes the connection known; false means that there are too many. The transport calls it before it feeds anything.
func (c *conn) open(s *Server, w transport, remote string) bool {
	c.server, c.transport, c.remote = s, w, remote
	c.opened = s.clock.Now()
	c.lastReceived.Store(int64(c.opened))
	if !s.addresses.acquire(remote) {
		return false
	}
	if !s.conns.add(c, s.maxConns) {
		s.addresses.release(remote)
		return false
	}
	c.registered = true
	return true
}

// readFrames handles every complete frame at the start of buf and answers how many bytes it used. Nothing of buf is kept. The transport calls it with at least
// c.need bytes, and writes what is pending afterwards.
func (c *conn) readFrames(p *readCycle, buf []byte) (used int) {
	p.now = c.server.clock.Now()
	c.lastReceived.Store(int64(p.now))
	p.frames, p.pings, p.overQuota, p.out.written, c.deferrable = 0, 0, 0, 0, 0
	limit := uint32(protocol.MaxHelloLen)
	sweeps := uint64(0)
	for !c.ending.Load() {
		if p.frames-p.classified.frames >= framesPerCheck {
			if sweeps = c.classify(p); sweeps > 0 {
				break // what is left waits until the pause is over
			}
		}
		if c.greeted {
			limit = c.server.maxFrame
		}
		frame, n, err := protocol.SplitFrame(buf[used:], limit)
		if err != nil {
			c.protocolError(err)
			break
		}
		if n == 0 {
			break
		}
		used += n
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			c.protocolError(err)
			break
		}
		p.frames++
		c.handle(p, h)
	}
	if sweeps == 0 {
		sweeps = c.classify(p)
	}
	p.classified = frameCounts{}
	if sweeps > 0 {
		c.pause(sweeps, p.now, c.hasSessions())
	}
	if p.pings > 0 {
		if c.hasHomeSessions() {
			c.server.renewals.add(c, p.lastPing)
			if p.pings == p.frames {
				c.deferrable = p.out.written
			}
		}
	}
	p.commands.Flush(p.now)
	p.serveReads()
	if c.ending.Load() {
		c.countUnfinished(0)
		c.need = 0
		c.frameSince.Store(0)
		return len(buf)
	}
	rest := buf[used:]
	if !c.countUnfinished(len(rest)) {
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

// deferWrite ends the hold of a transport that has fed, and says whether what waits is to wait on. If not, the transport writes it.
func (c *conn) deferWrite() bool { return c.deferrable > 0 && c.out.releaseNotify(c.deferrable) }

// secure says that the client came over TLS.
func (c *conn) secure() bool {
	_, ok := c.transport.(*tlsSocket)
	return ok
}

// partialFrame notes bytes that cannot complete a frame yet: there are n of them. False: the connection ends, and the transport drops them.
func (c *conn) partialFrame(n int) bool {
	now := int64(c.server.clock.Now())
	c.lastReceived.Store(now)
	c.frameSince.CompareAndSwap(0, now)
	return c.countUnfinished(n)
}

// minCountedFrame is the most bytes of an unfinished frame that do not count, so that small frames in pieces never touch the total of all.
const minCountedFrame = 4 << 10

// countUnfinished counts the bytes of an unfinished frame. A frame that stops short of its last byte costs its sender nothing and the server its length, so what all of them hold is
// bounded. False: that is too much with these, and the connection ends.
func (c *conn) countUnfinished(n int) bool {
	if n <= minCountedFrame {
		n = 0
	}
	more := n - c.unfinished
	if more == 0 {
		return true
	}
	c.unfinished = n
	if c.server.unfinished.Add(int64(more)) <= int64(c.server.cfg.Limits.InTotal) || more < 0 {
		return true
	}
	c.countUnfinished(0)
	c.need = 0
	c.frameSince.Store(0)
	if c.close(closeGraceful, protocol.StatusOverloaded, fmt.Sprintf("the server holds its limit of %d bytes of unfinished frames; connect again, and send frames whole", c.server.cfg.Limits.InTotal)) {
		c.server.metrics.unfinishedCut.Inc()
	}
	return false
}

// handle serves one frame.
func (c *conn) handle(p *readCycle, h protocol.Header) {
	switch {
	case !c.greeted:
		if h.Kind != protocol.KindHello {
			c.protocolError(protocol.Errorf(protocol.StatusBadRequest, "the first frame must be a hello"))
			return
		}
		c.unanswered.Add(1)
		c.hello(p, h)
	case h.Kind == protocol.KindHello:
		c.protocolError(protocol.Errorf(protocol.StatusBadRequest, "a second hello came; send one, as the first frame"))
	case h.Kind.IsRequest():
		c.request(p, h)
	case h.Kind < 2*protocol.KindReply && (h.Kind.IsReply() || h.Kind.IsEvent()):
		c.protocolError(protocol.Errorf(protocol.StatusBadRequest, "kind %d is for servers to send; send requests only", h.Kind))
	default:
		c.unanswered.Add(1)
		p.out.fail(c, h.Kind, h.ID, protocol.StatusUnsupported, "this message is not known here; the server may be older than the client")
	}
}

// answered takes one request off the window.
func (c *conn) answered() { c.unanswered.Add(-1) }

// protocolError ends a connection whose bytes make no sense, with the reason.
func (c *conn) protocolError(err error) {
	status, text := statusText(err)
	if c.close(closeGraceful, status, text) {
		c.server.metrics.refused.Inc()
	}
}

// close says goodbye and has the transport close the connection. It answers false when that was done before.
func (c *conn) close(how closeMode, status protocol.Status, text string) bool {
	c.out.mu.Lock()
	if c.out.closing != closeNone {
		hardened := how == closeImmediate && c.out.closing == closeGraceful
		if hardened {
			c.out.closing = closeImmediate
			c.out.notified = true
		}
		c.out.mu.Unlock()
		if hardened {
			c.transport.markDirty()
		}
		return false
	}
	b := c.out.buffer()
	n := len(b.B)
	b.B = protocol.AppendFrame(b.B, protocol.KindGoodbye, 0, 0, &protocol.Goodbye{Status: status, Message: text})
	c.out.size += len(b.B) - n
	c.out.total += uint64(len(b.B) - n)
	c.out.closing = how
	push := !c.out.notified
	c.out.notified = true
	c.out.mu.Unlock()
	c.endedAt.Store(int64(c.server.clock.Now()))
	c.ending.Store(true)
	if push {
		c.transport.markDirty()
	}
	return true
}

// onClosed forgets the connection: nothing finds it any more, what waits for it is dropped, its sessions' homes learn when it was last heard. The
// transport calls it once, after the last feed.
func (c *conn) onClosed() {
	c.ending.Store(true)
	if !c.registered {
		return // a transport may close what was never opened
	}
	c.countUnfinished(0)
	c.server.conns.remove(c)
	c.server.addresses.release(c.remote)
	c.out.discard()
	c.setUnsent(0)
	heard := time.Duration(c.lastReceived.Load())

	c.mu.Lock()
	c.unbindable = true
	sessions, homes, watching := c.sessions, c.homes, c.watchedShards
	c.sessions, c.homes, c.watchedShards, c.duePages = sessionSet{}, nil, nil, nil
	c.lastBinding = nil
	// Told under the lock: an attach that is applied now either was bound before, or finds the connection gone and tells the home itself.
	for _, h := range homes {
		h.shard.raft.ConnClosed(c.id, heard)
	}
	c.mu.Unlock()
	sessions.each(c.server.bindings.remove)
	for _, d := range watching {
		d.delivery.ConnClosed(c.id)
	}
}
