package core

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Conn is one connection, from the wish to have one until it is lost. It is never revived.
//
// Out is for the driver: frames to be written, in order, the hello before them. It takes them with
// TakeOut, between two steps.
type Conn struct {
	Owner     any      // the driver's
	Addresses []string // to try; never changed
	Out       []byte
	Err       error // why it is in Ready.Close

	link      *link
	instance  uint64
	window    int
	maxFrame  int
	up, over  bool
	failed    bool // it was not up: what waits for it looks for another way
	flush     bool // it is in Ready.Flush
	taken     bool // the driver has taken what goes out with the hello
	requests  ring[Request]
	queue     list // requests that wait for room in the window
	admitting bool // they are sent: what is sent now does not queue behind them
	inQueue   list // acquires that wait in a queue at the server: their results come here
	goodbye   error
	keepAlive keepAlive
	heard     time.Duration       // when frames last came
	renewals  []*renewal          // by home shard, few
	streams   streamSet           // open here, or asked for
	oneShots  map[uint64]*OneShot // armed here, by id
	sessions  sessionList         // attached here
	presented map[*Session]uint64 // attach epoch of the ticket that was presented here
	// session -> attach epoch up to which an attach here is void
	detachedUpTo map[uint64]uint64
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

// connected: the hello was answered.
func (c *Conn) connected(e *Engine, hello *protocol.HelloReply) {
	c.up, c.instance, c.heard = true, hello.Instance, e.now
	c.window = max(int(hello.Window), 1)
	c.maxFrame = cmp.Or(int(hello.MaxFrame), protocol.MaxFrameLen)
	if len(c.Out) > 0 { // behind what went out with the hello
		c.wrote(e)
	}
	c.keepAlive.start(e)
}

// lose ends the connection. What waits for an answer on it is sent elsewhere after the step.
func (c *Conn) lose(e *Engine, err error) {
	if c.over {
		return
	}
	c.over, c.Err = true, cmp.Or(c.goodbye, err)
	c.Out = nil
	e.conns = slices.DeleteFunc(e.conns, func(x *Conn) bool { return x == c })
	c.keepAlive.stop(e)
	c.link.lost(e, c, c.Err)
	e.tasks = append(e.tasks, c)
}

// resolve implements task: the connection is over.
func (c *Conn) resolve(e *Engine) {
	if c.failed {
		c.link.failed(e, c.Err)
	}
	for c.sessions.first != nil {
		s := c.sessions.first
		s.connLost(e)
		s.resolve(e)
	}
	requests := c.requests
	c.requests = ring[Request]{}
	requests.Each(func(id uint64, r *Request) {
		if r.on == c && r.id == id { // else it has gone another way since
			e.step(r, inLost, errConnLost)
		}
	})
	c.inQueue.drain(func(r *Request) { e.step(r, inLost, errConnLost) })
	c.queue.drain(e.send)
	missed(e, c.oneShots)
	for _, p := range c.streams.all() {
		if p.open == c { // else the end of another part has closed it
			p.cut(e, errConnLost)
		}
	}
	if len(c.presented) > 0 {
		for _, s := range slices.Clone(e.named) {
			if c.presented[s] != 0 {
				s.confirm(e)
			}
		}
	}
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
	c.Out, c.flush, c.taken = empty, false, true
	return out
}

// emit puts a request into the buffer of a connection whose window has room.
func (c *Conn) emit(e *Engine, r *Request) {
	start := len(c.Out)
	id := c.requests.NextID()
	r.fill(e, c, id)
	c.Out = protocol.AppendFrame(c.Out, r.kind, id, r.arg, r.message)
	if length := len(c.Out) - start - 4; length > c.maxFrame {
		c.Out = c.Out[:start]
		r.state = Sent // and its answer comes after the step
		e.tasks = append(e.tasks, &tooLong{r, length, c.maxFrame})
		return
	}
	if c.requests.Open() == 0 {
		c.keepAlive.waitsSince = e.now
	}
	c.requests.Put(id, r)
	r.sentOn(e, c, id)
	if !c.keepAlive.busy {
		c.keepAlive.markBusy(e)
	}
	c.wrote(e)
}

// tooLong is the answer to a request that no connection takes.
type tooLong struct {
	r            *Request
	length, most int
}

func (x *tooLong) resolve(e *Engine) {
	if x.r.state == Sent && x.r.on == nil {
		e.step(x.r, inAnswered, protocol.Errorf(protocol.StatusBadRequest,
			"request is %d bytes long; the server accepts at most %d", x.length, x.most))
	}
}

// admit sends what waited for room in the window.
func (c *Conn) admit(e *Engine) {
	c.admitting = true
	for !c.over && !c.queue.empty() && c.requests.Open() < c.window {
		e.send(c.queue.popFront())
	}
	c.admitting = false
}

// waitsFor reports whether a request, or a session at home there, waits for a shard on this
// connection.
func (c *Conn) waitsFor(shard uint64) (waits bool) {
	for s := c.sessions.first; s != nil && !waits; s = s.next {
		waits = s.attachment.shard == shard
	}
	c.requests.Each(func(_ uint64, r *Request) { waits = waits || r.shard == shard })
	return waits
}

// leave sends elsewhere what waits on the connection for a shard that has another leader. The new
// leader's first entry has detached the sessions that are at home there: what this connection says
// does not keep them alive.
func (c *Conn) leave(e *Engine, shard uint64) {
	c.detachHome(e, shard)
	var waiting []*Request
	c.requests.Each(func(_ uint64, r *Request) {
		if r.shard == shard {
			waiting = append(waiting, r)
		}
	})
	for _, r := range waiting {
		e.step(r, inLost, errConnLost)
	}
}

// detachHome detaches the sessions that are attached here and at home in a shard.
func (c *Conn) detachHome(e *Engine, shard uint64) {
	for s := c.sessions.first; s != nil; {
		next := s.next
		if s.attachment.shard == shard {
			s.connLost(e)
		}
		s = next
	}
}
