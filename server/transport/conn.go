package transport

import (
	"cmp"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// socket is a connection's view of its listener. The listener reads from one goroutine at a time,
// calls closed once when the socket is gone, and writes Conn.out when it is woken.
type socket interface {
	// markDirty marks the connection as having bytes to write. They are written at the latest after
	// Transport.Flush; frames shared with many connections may be written earlier, and after
	// unshared ones. Any goroutine; never blocks.
	markDirty(shared bool)
	// hasten says that a connection already marked now also has an unshared frame.
	hasten()
	// pauseReads leaves incoming bytes in the kernel, as far as that is possible. Called by the
	// reading goroutine.
	pauseReads()
	// resumeReads ends the pause and reads the arrived bytes. Any goroutine; never blocks.
	resumeReads()
}

// Conn is one client's connection: frames in, frames out, whatever the socket. Methods may be
// called from any goroutine unless they say otherwise.
//
// Lock order: out.mu is a leaf. Append and Close may be called with any lock of a Client held.
type Conn struct {
	id     uint64
	t      *Transport
	socket socket
	client Client
	remote string
	opened time.Duration
	secure bool
	// certificate is the client's verified certificate, or nil. Set before anything is read.
	certificate *x509.Certificate

	// Owned by the reading goroutine.
	need       int // bytes that must be there before the next frame can be complete
	unfinished int // bytes of an unfinished frame, as Transport.unfinished counts them
	deferrable int // bytes of the last read's answers that may wait for WriteDeferred
	pings      int // not classified yet
	throttle   throttle

	lastReceived atomic.Int64  // clock, ns: when bytes last arrived
	frameSince   atomic.Int64  // clock, ns: when the unfinished frame began; 0: no unfinished frame
	keepAlive    atomic.Int64  // ns: how long it may be silent, if longer than the limit
	established  atomic.Bool   // hello accepted
	ending       atomic.Bool   // nothing is read any more
	closedBy     atomic.Uint32 // the protocol.Link of one that the server closes
	endedAt      atomic.Int64
	rejections   atomic.Uint64
	paused       atomic.Bool // it is not read until the socket resumes
	awaitsRoom   atomic.Bool // Client.Room is due
	registered   bool        // it was counted; set before anything is read

	out outgoing
}

// ID is a number that no other connection has or will have.
func (c *Conn) ID() uint64 { return c.id }

// Remote is the client's address.
func (c *Conn) Remote() string { return c.remote }

// Secure reports whether the client came over TLS.
func (c *Conn) Secure() bool { return c.secure }

// Certificate returns the client's verified certificate, or nil. The reading goroutine calls it.
func (c *Conn) Certificate() *x509.Certificate { return c.certificate }

// Client returns the handler above the connection.
func (c *Conn) Client() Client { return c.client }

// Establish lifts the limits of a connection that has not said hello. The reading goroutine calls
// it.
func (c *Conn) Establish() { c.established.Store(true) }

// Established reports whether Establish was called.
func (c *Conn) Established() bool { return c.established.Load() }

// LastReceived returns when bytes last arrived.
func (c *Conn) LastReceived() time.Duration { return time.Duration(c.lastReceived.Load()) }

// Heard counts the connection as heard from at this time.
func (c *Conn) Heard(now time.Duration) { c.lastReceived.Store(int64(now)) }

// AllowSilence lets the connection be silent for d. It never shortens an earlier allowance.
func (c *Conn) AllowSilence(d time.Duration) {
	for {
		was := c.keepAlive.Load()
		if int64(d) <= was || c.keepAlive.CompareAndSwap(was, int64(d)) {
			return
		}
	}
}

// Ending reports whether the connection is being closed and no longer read.
func (c *Conn) Ending() bool { return c.ending.Load() }

// ClosedBy returns who closed a connection.
func (c *Conn) ClosedBy() protocol.Link {
	return cmp.Or(protocol.Link(c.closedBy.Load()), protocol.LinkClosed)
}

// StopReading stops reading a connection that will be closed after a pause.
func (c *Conn) StopReading(pause time.Duration) {
	c.endedAt.Store(int64(c.t.cfg.Clock.Now() + pause))
	c.ending.Store(true)
}

// Hold ends the reading behind the present frame, until Release. The reading goroutine calls it.
func (c *Conn) Hold() { c.paused.Store(true) }

// Release ends a Hold. Any goroutine may call it.
func (c *Conn) Release() {
	c.resume(c.t.cfg.Clock.Now())
	c.socket.resumeReads()
}

// Unfinished reports whether a frame has begun to come, and is not complete.
func (c *Conn) Unfinished() bool { return c.frameSince.Load() != 0 }

// open makes the connection known; false means that there are too many. The listener calls it
// before it reads anything.
func (c *Conn) open(t *Transport, s socket, remote string) bool {
	c.t, c.socket, c.remote = t, s, remote
	c.opened = t.cfg.Clock.Now()
	c.Heard(c.opened)
	if !t.addresses.acquire(remote) {
		return false
	}
	c.client = t.cfg.NewClient(c)
	if !t.conns.add(c, t.cfg.Limits.Connections) {
		t.addresses.release(remote)
		return false
	}
	c.registered = true
	return true
}

// read handles every complete frame at the start of buf and returns how many bytes it used. It
// keeps no part of buf. The listener calls it with at least c.need bytes, and writes the pending
// bytes afterwards.
func (c *Conn) read(p Cycle, buf []byte) (used int) {
	now := c.t.cfg.Clock.Now()
	c.Heard(now)
	c.deferrable = 0
	p.Begin(now)
	limit := uint32(protocol.MaxHelloLen)
	sweeps := uint64(0)
	frames := 0               // not classified yet
	paused := c.paused.Load() // only a Pipe is read then
	for !c.ending.Load() && (paused || !c.paused.Load()) {
		if frames >= framesPerCheck {
			if sweeps = c.classify(frames); sweeps > 0 {
				break // the remaining frames wait until the pause is over
			}
			frames = 0
		}
		if c.established.Load() {
			limit = c.t.cfg.Limits.MaxFrame
		}
		frame, n, err := protocol.SplitFrame(buf[used:], limit)
		if err != nil {
			c.BadFrame(err)
			break
		}
		if n == 0 {
			break
		}
		used += n
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			c.BadFrame(err)
			break
		}
		frames++
		c.client.Frame(p, h)
	}
	if sweeps == 0 {
		sweeps = c.classify(frames)
	}
	switch {
	case sweeps > 0:
		c.pause(sweeps, now, c.client.KeepsAlive())
	case c.paused.Load() && !paused: // held
		c.socket.pauseReads()
	}
	c.deferrable = p.End(c.client)
	if c.ending.Load() {
		c.forgetUnfinished()
		return len(buf)
	}
	rest := buf[used:]
	if !c.countUnfinished(len(rest)) {
		return len(buf)
	}
	c.need = 4
	if len(rest) >= 4 {
		// What is left when the read ended early has not been looked at: a length that is not
		// allowed waits for nothing, and is refused with the next read.
		if n := binary.BigEndian.Uint32(rest); n <= limit {
			c.need += int(n)
		}
	}
	switch {
	case len(rest) == 0:
		c.frameSince.Store(0)
	case used > 0 || c.frameSince.Load() == 0:
		c.frameSince.Store(int64(now))
	}
	return used
}

// partialFrame counts n bytes that cannot complete a frame yet. It returns false if the connection
// ends; the listener then drops them.
func (c *Conn) partialFrame(n int) bool {
	now := int64(c.t.cfg.Clock.Now())
	c.lastReceived.Store(now)
	c.frameSince.CompareAndSwap(0, now)
	return c.countUnfinished(n)
}

// minCountedFrame is the most bytes of an unfinished frame that do not count, so that small frames
// in pieces never touch the total of all.
const minCountedFrame = 4 << 10

// countUnfinished counts the bytes of an unfinished frame. A frame that stops short of its last
// byte costs its sender nothing and the server its length, so their total is bounded. It returns
// false if these bytes exceed the bound, and ends the connection.
func (c *Conn) countUnfinished(n int) bool {
	if n <= minCountedFrame {
		n = 0
	}
	more := n - c.unfinished
	if more == 0 {
		return true
	}
	c.unfinished = n
	limit := c.t.cfg.Limits.InTotal
	if c.t.unfinished.Add(int64(more)) <= int64(limit) || more < 0 {
		return true
	}
	c.forgetUnfinished()
	if c.Close(Graceful, protocol.StatusOverloaded,
		fmt.Sprintf("the server holds its limit of %d bytes of unfinished frames; connect again, and send frames whole",
			limit)) {
		c.t.Metrics.UnfinishedFrames.Inc()
	}
	return false
}

// forgetUnfinished records that no frame is unfinished.
func (c *Conn) forgetUnfinished() {
	c.countUnfinished(0)
	c.need = 0
	c.frameSince.Store(0)
}

// BadFrame ends a connection whose bytes make no sense, with the reason.
func (c *Conn) BadFrame(err error) {
	text := err.Error()
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		text = e.Message
	}
	if c.Close(Graceful, protocol.StatusOf(err), text) {
		c.t.Metrics.BadFrame.Inc()
	}
}

// Close says goodbye and closes the connection once that is written. It answers false when that was
// done before. Transport.Flush follows.
func (c *Conn) Close(how CloseMode, status protocol.Status, text string) bool {
	first, mark := c.out.close(how, protocol.Goodbye{Status: status, Message: text})
	if first {
		link := protocol.LinkCut
		if how == Immediate && status == protocol.StatusOverloaded {
			link = protocol.LinkUnread
		}
		c.closedBy.Store(uint32(link))
		c.StopReading(0)
	}
	if mark {
		c.socket.markDirty(false)
	}
	return first
}

// closed forgets the connection: it can no longer be found, and its pending frames are dropped. The
// listener calls it once, after the last read.
func (c *Conn) closed() {
	c.ending.Store(true)
	if !c.registered {
		return // a listener may close a connection that was never opened
	}
	c.countUnfinished(0)
	c.t.conns.remove(c)
	c.t.addresses.release(c.remote)
	c.out.discard()
	c.setUnsent(0)
	c.client.Closed(c.LastReceived())
}
