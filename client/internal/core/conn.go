package core

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/client/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Conn is one connection to an instance, from the wish to have one until it is lost. It is never
// revived.
//
// Out is for the driver: frames to be written, in order, the hello before them. It may take the
// memory between two steps, as long as it leaves an empty slice.
type Conn struct {
	Owner     any      // the driver's
	Addresses []string // to try one after the other; never changed
	Out       []byte
	Err       error // why it is in Ready.Close

	instance uint64
	window   int
	maxFrame int
	up, over bool
	flush    bool // it is in Ready.Flush
	requests Ring[Request]
	queue    list // requests that wait for room in the window
	accepted list // acquires that wait in a queue at the server: their results come here
	goodbye  error

	heard     time.Duration // when frames last came
	began     time.Duration
	lastPing  uint64 // id of the last ping: when it was sent, in nanoseconds since began, from 1; 0: none was
	pings     timer
	renewals  []*renewal          // by home shard, few
	sessions  sessionList         // attached here
	shortest  time.Duration       // timeout of those; a session that is gone still counts
	presented map[*Session]uint64 // attach epoch of the ticket that was presented here
}

// renewal is the latest sending time of a ping that a home shard answered on a connection. All
// sessions that are attached there at that home share it.
type renewal struct {
	shard uint64
	at    time.Duration
}

// Unanswered is how many requests wait for an answer on the connection.
func (c *Conn) Unanswered() int { return c.requests.Open() }

// Instance is the instance that answered the hello.
func (c *Conn) Instance() uint64 { return c.instance }

// errConnLost: the connection ended before the reply. What was sent on it may have been applied or
// not.
var errConnLost = errors.New("connection lost")

// helloID is the id of the hello, which the driver sends. Requests that go out behind it have the
// next ones.
const helloID = 1

func newConn(addresses []string) *Conn {
	c := &Conn{Addresses: addresses, window: 2, maxFrame: protocol.MaxFrameLen}
	c.pings.of = c
	c.requests.last = helloID
	return c
}

// connected: the hello was answered.
func (c *Conn) connected(e *Engine, hello *protocol.HelloReply) {
	c.up, c.instance, c.began, c.heard = true, hello.Instance, e.now, e.now
	c.window = max(int(hello.Window), 1)
	c.maxFrame = cmp.Or(int(hello.MaxFrame), protocol.MaxFrameLen)
	if len(c.Out) > 0 { // behind what went out with the hello
		c.wrote(e)
	}
	e.timers.set(&c.pings, e.now+idleKeepAlive/2)
	c.admit(e)
}

// lose ends the connection, and sends elsewhere what waits for an answer on it.
func (c *Conn) lose(e *Engine, err error) {
	if c.over {
		return
	}
	c.over, c.Err = true, cmp.Or(c.goodbye, err)
	e.routes.lost(c)
	c.Out = nil
	e.conns = slices.DeleteFunc(e.conns, func(x *Conn) bool { return x == c })
	e.timers.stop(&c.pings)
	for c.sessions.first != nil {
		c.sessions.first.connLost(e)
	}
	requests := c.requests
	c.requests = Ring[Request]{}
	requests.Each(func(_ uint64, r *Request) { e.step(r, inLost, errConnLost) })
	c.accepted.drain(func(r *Request) { e.step(r, inLost, errConnLost) })
	c.queue.drain(e.send)
}

// end has the driver close the connection.
func (c *Conn) end(e *Engine, err error) {
	if !c.over {
		c.lose(e, err)
		e.ready.Close = append(e.ready.Close, c)
	}
}

// wrote notes that there are frames to write.
func (c *Conn) wrote(e *Engine) {
	if !c.flush && c.up {
		c.flush = true
		e.ready.Flush = append(e.ready.Flush, c)
	}
}

// TakeOut takes the frames that are to be written, and leaves other memory for the next ones. The
// connection is in Ready.Flush when there are frames again.
func (c *Conn) TakeOut(empty []byte) []byte {
	out := c.Out
	c.Out, c.flush = empty, false
	return out
}

// emit puts a request into the buffer of a connection whose window has room.
func (c *Conn) emit(e *Engine, r *Request) {
	r.fill()
	start := len(c.Out)
	id := c.requests.NextID()
	c.Out = protocol.AppendFrame(c.Out, r.kind, id, r.arg, r.message)
	if length := len(c.Out) - start - 4; length > c.maxFrame {
		c.Out = c.Out[:start]
		e.refuse(r, protocol.Errorf(protocol.StatusBadRequest,
			"request is %d bytes long; the server accepts at most %d", length, c.maxFrame))
		return
	}
	c.requests.Put(id, r)
	r.sentOn(c, id)
	c.wrote(e)
}

// admit sends what waited for room in the window.
func (c *Conn) admit(e *Engine) {
	for !c.over && !c.queue.empty() && c.requests.Open() < c.window {
		e.send(c.queue.popFront())
	}
}

const idleKeepAlive = 15 * time.Second // between pings of a connection without sessions

// period is how often the connection is pinged.
func (c *Conn) period() time.Duration {
	if c.sessions.first == nil {
		return idleKeepAlive
	}
	return min(sessionstate.KeepAlive(c.shortest), idleKeepAlive)
}

// renewedAt is where pongs of a home shard are noted, for sessions that are attached there. The
// connection is pinged as often as the timeout needs.
func (c *Conn) renewedAt(e *Engine, shard uint64, timeout time.Duration) *renewal {
	if c.shortest == 0 || timeout < c.shortest {
		c.shortest = timeout
	}
	if at := e.now + min(sessionstate.KeepAlive(c.shortest), idleKeepAlive); at < c.pings.at {
		e.timers.set(&c.pings, at)
	}
	for _, v := range c.renewals {
		if v.shard == shard {
			return v
		}
	}
	v := &renewal{shard: shard}
	c.renewals = append(c.renewals, v)
	return v
}

// due sends a ping: one is for all sessions of the connection.
func (c *Conn) due(e *Engine) {
	c.lastPing = max(c.lastPing, uint64(e.now-c.began)+1)
	c.Out = protocol.AppendFrame(c.Out, protocol.KindPing, c.lastPing, 0, nil)
	c.wrote(e)
	e.timers.set(&c.pings, e.now+c.period())
}

// pong is a shard's answer to a ping: it renews all sessions at home there that are attached on
// this connection, from the time at which the ping was sent. Shard 0 renews nothing.
func (c *Conn) pong(ping, shard uint64) {
	if shard == 0 || ping == 0 || ping > c.lastPing {
		return // never sent
	}
	for _, v := range c.renewals {
		if v.shard == shard {
			v.at = max(v.at, c.began+time.Duration(ping)-1)
		}
	}
}
