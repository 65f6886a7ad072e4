package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/protocol"
)

// errCallStopped: what the call was for is over.
var errCallStopped = errors.New("stopped")

const (
	minReadBuffer = 512              // bytes; grows as soon as a read fills it
	maxReadBuffer = 64 << 10         // a read takes no more, unless a frame is longer
	maxKeptBuffer = 256 << 10        // a buffer that grew beyond this is given back once it is empty
	idleKeepAlive = 15 * time.Second // between pings of a connection without sessions and streams
	// between pings of a connection with streams: one whose server is gone is noticed after at most
	// 2.5 of these
	streamKeepAlive = 4 * time.Second
	minSilence      = time.Second     // a server is never taken for silent sooner
	hungTimeout     = 2 * time.Second // a server that a request waits for, and that was asked for a sign of life, has hung
	// bytes that a caller writes by itself: the kernel takes them at once from a connection that is
	// answered
	maxDirectWrite = 16 << 10
)

// conn is one connection to an instance, shared by any number of goroutines. Callers append frames
// to out under mu. A writer goroutine sends all that has gathered in one write, unless a caller is
// alone on the connection: it writes by itself. The reader, a goroutine or a caller, passes replies
// to waiting calls, and events to their sessions and watches. A conn is never revived.
//
// Where each of thousands of clients has a connection, none of them is in a cache when its turn
// comes: what each read and request touches stands first, side by side.
//
// Lock order: the mutexes of watches, sessions, connectors and the client may be held when mu is
// taken, never the other way round.
type conn struct {
	handler   connHandler
	nc        net.Conn
	clock     clock
	lastHeard atomic.Int64 // clock at the last bytes read

	mu        sync.Mutex
	instance  uint64 // never changed
	err       error  // why it ended; set before done is closed
	streams   streamSet
	replies   []reply         // calls whose answers were read, to be woken; the reader's
	calls     core.Ring[call] // with the calls that wait for answers
	queue     []chan struct{} // callers that wait for room in the window, first come first served
	reserved  int             // room given to callers of the queue that have not run yet
	checkedID uint64          // id of the last request when the ping timer looked
	out       []byte          // frames to be written
	spare     []byte          // memory for the next out
	writing   bool            // somebody is in Write: what is appended meanwhile is the writer goroutine's
	busy      bool            // requests were sent lately: the ping timer looks each minSilence
	direct    bool            // writing what little there is does not block: a caller that is alone writes by itself; never changed
	over      atomic.Bool     // done is closed
	writer    atomic.Bool     // the writer goroutine runs: from the first flush on
	pool      sync.Pool       // of *call
	reader    reader

	// Guarded by mu too. Maps that many connections have no use for are nil until they have.
	goodbye       error         // what the server said about ending it
	helloMap      *helloMap     // nil: it was not asked for, or was taken
	lastPing      uint64        // id of the last ping: when it was sent, in nanoseconds since began, from 1; 0: none was
	unheardPing   time.Duration // when the first ping was sent since lastHeard; 0, or not after lastHeard: none was
	period        time.Duration // between pings
	probing       bool          // a sign of life is waited for
	hadPending    bool          // a request waited when the ping timer looked
	probedAt      time.Duration // when it asked a silent server for a sign of life, for the sake of a request; 0: it did not
	pingTimer     *time.Timer
	lookAt        time.Duration              // when the timer fires
	pingSoon      bool                       // a ping is sent within pingGap
	renewals      map[uint64]*renewal        // by home shard
	sessions      map[*Session]time.Duration // with the periods of their pings
	periods       core.Shortest              // of the sessions
	objectStreams map[uint64]*objectStream   // by watch id
	presented     map[*Session]uint64        // attach epoch of the ticket that was presented here
	oneShots      map[uint64]*oneShot        // by watch id
	detachedUpTo  map[uint64]uint64          // session -> attach epoch up to which pongs here do not renew it: its home has moved

	// Never changed.
	began       time.Duration // when the connection was made, by clock
	tokenChange uint64        // credentials.change of what it showed
	hello       protocol.HelloReply
	wake        chan struct{} // capacity 1: out is not empty
	done        chan struct{} // closed when the connection is over
}

// renewal is the latest sending time of a ping that a home shard answered on this connection. All
// sessions that are attached here at that home share it.
type renewal struct{ at atomic.Int64 }

// connHandler receives what arrives on a connection. The reader calls its methods, so they must
// not block.
type connHandler interface {
	handleEvent(cn *conn, h protocol.Header) error
	connLost(cn *conn)
	// serverSilent is called once when a request waits and the server sends nothing.
	serverSilent(cn *conn)
}

func newConn(o connHandler, nc net.Conn, hello protocol.HelloReply, rest []byte, ck clock) *conn {
	cn := &conn{
		handler: o, nc: nc, clock: ck, hello: hello, instance: hello.Instance,
		renewals: make(map[uint64]*renewal), sessions: make(map[*Session]time.Duration),
		wake: make(chan struct{}, 1), done: make(chan struct{}), period: idleKeepAlive,
	}
	cn.reader.cn, cn.reader.in.buf = cn, rest
	_, cn.direct = nc.(*net.TCPConn)
	cn.hello.Window = max(cn.hello.Window, 1)
	cn.hello.MaxFrame = cmp.Or(cn.hello.MaxFrame, protocol.MaxFrameLen)
	cn.began = ck.now()
	cn.lastHeard.Store(int64(cn.began))
	cn.mu.Lock() // the timer may run at once
	cn.lookAt = cn.clock.now() + cn.period/2
	cn.pingTimer = time.AfterFunc(cn.period/2, cn.keepAlive)
	cn.mu.Unlock()
	return cn
}

// put puts a value into a map that is made for the first one.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[key] = value
}

// serve begins to read. What came behind the hello's reply is handled before it returns.
func (cn *conn) serve() {
	if err := cn.consumeAll(&cn.reader.in.buf); err != nil {
		cn.end(err)
	}
	go cn.reader.run()
}

func (cn *conn) isLost() bool { return cn.over.Load() }

// startCall puts a request into the buffer once the window has room, and its call into the ring.
// The end of the session ends the call too. register, if not nil, is called with mu held before the
// request can be answered. It may give the call a reply function, which the reader calls with the
// answer (the body is the reader's) instead of signalling the call. The caller must then not finish
// the call. Without one it must wait for the call at once, since it may have to read for itself.
func (cn *conn) startCall(
	ctx context.Context, of *Session, kind protocol.Kind, bucket uint64, m protocol.Message,
	register func(id uint64, cl *call),
) (*call, uint64, error) {
	cn.mu.Lock()
	if cn.err == nil && (len(cn.queue) > 0 || !cn.hasRoom()) {
		if err := cn.queueUp(ctx, of); err != nil {
			cn.mu.Unlock()
			return nil, 0, err
		}
	}
	if cn.err != nil {
		cn.mu.Unlock()
		return nil, 0, errConnLost
	}
	if of != nil && of.ended.Load() {
		cn.admitQueued()
		cn.mu.Unlock()
		return nil, 0, errCallStopped
	}
	start := len(cn.out)
	id := cn.calls.NextID()
	cn.out = protocol.AppendFrame(cn.out, kind, id, bucket, m)
	if length := len(cn.out) - start - 4; length > int(cn.hello.MaxFrame) {
		cn.out = cn.out[:start]
		cn.admitQueued()
		cn.mu.Unlock()
		return nil, 0, protocol.Errorf(protocol.StatusBadRequest,
			"request is %d bytes long; the server accepts at most %d", length, cn.hello.MaxFrame)
	}
	cl := cn.newCall()
	cl.session = of
	cn.calls.Put(id, cl)
	if !cn.busy {
		cn.markBusy()
	}
	if register != nil {
		register(id, cl)
	}
	var buf []byte
	if start == 0 && cn.calls.Open() == 1 {
		buf = cn.takeDirect() // nobody is there to share a write with
	}
	if cn.reader.begin(cl, buf) {
		buf, start = nil, -1 // written by waitReply
	}
	cn.mu.Unlock()
	switch {
	case buf != nil:
		cn.write(buf)
	case start == 0:
		cn.flush() // else the first caller has woken the writer
	}
	return cl, id, nil
}

// takeDirect is takeOut for a goroutine that writes by itself and spares the writer goroutine. It
// is nil if somebody writes, or if it is not sure that the kernel takes all at once. mu is held.
func (cn *conn) takeDirect() []byte {
	if !cn.direct || cn.writing || len(cn.out) == 0 || len(cn.out) > maxDirectWrite {
		return nil
	}
	return cn.takeOut()
}

// takeOut begins to write what has gathered. mu is held, and nobody else writes.
func (cn *conn) takeOut() []byte {
	buf := cn.out
	cn.out, cn.spare, cn.writing = cn.spare[:0], nil, true
	return buf
}

// write writes the buffer of takeOut, and wakes the writer goroutine for what came meanwhile.
func (cn *conn) write(buf []byte) {
	_, err := cn.nc.Write(buf)
	cn.mu.Lock()
	cn.writing = false
	if cap(buf) <= maxKeptBuffer {
		cn.spare = buf
	}
	more := len(cn.out) > 0
	cn.mu.Unlock()
	if err != nil {
		cn.end(err)
	} else if more {
		cn.flush()
	}
}

// queueUp waits for room in the window. mu is held, but not while it waits.
func (cn *conn) queueUp(ctx context.Context, of *Session) (err error) {
	turn := make(chan struct{}, 1)
	cn.queue = append(cn.queue, turn)
	cn.mu.Unlock()
	var stop <-chan struct{}
	if of != nil {
		stop = of.ctx.Done()
	}
	select {
	case <-turn:
	case <-ctx.Done():
		err = markUndecided(context.Cause(ctx))
	case <-stop:
		err = errCallStopped
	}
	cn.mu.Lock()
	if err != nil {
		cn.leaveQueue(turn)
		return err
	}
	cn.reserved--
	return nil
}

// hasRoom says whether one more request may be sent. mu is held.
func (cn *conn) hasRoom() bool { return cn.calls.Open()+cn.reserved < int(cn.hello.Window) }

// leaveQueue removes a caller that gave up from the window's queue, and passes its room on if it
// got some. mu is held.
func (cn *conn) leaveQueue(turn chan struct{}) {
	if i := slices.Index(cn.queue, turn); i >= 0 {
		cn.queue = slices.Delete(cn.queue, i, i+1)
		return
	}
	cn.reserved--
	cn.admitQueued()
}

// admitQueued gives room to queued callers. mu is held.
func (cn *conn) admitQueued() {
	for len(cn.queue) > 0 && cn.hasRoom() {
		cn.reserved++
		cn.queue[0] <- struct{}{}
		cn.queue = cn.queue[1:]
	}
}

// abandonCall says that nobody waits for the reply any more. It is false when the reader has taken
// the call and will signal it. The request counts against the window until it is answered.
func (cn *conn) abandonCall(id uint64) bool {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	return cn.calls.Abandon(id) != nil
}

// flush has the writer goroutine write what has gathered. Callers that were alone so far needed
// none.
func (cn *conn) flush() {
	if !cn.writer.Load() && cn.writer.CompareAndSwap(false, true) {
		go cn.writeLoop()
	}
	wake(cn.wake)
}

func (cn *conn) writeLoop() {
	for {
		select {
		case <-cn.wake:
		case <-cn.done:
			return
		}
		runtime.Gosched() // callers that are ready to run put their requests into the same write
		cn.mu.Lock()
		if cn.writing || len(cn.out) == 0 {
			cn.mu.Unlock() // the goroutine that writes wakes this one again if there is more
			continue
		}
		buf := cn.takeOut()
		cn.mu.Unlock()
		cn.write(buf)
	}
}

// consumeAll dispatches the whole frames in buf and moves the rest to its beginning.
func (cn *conn) consumeAll(buf *[]byte) error {
	b := *buf
	var err error
	locked := false // answers that follow each other are taken under one hold of mu, and their callers woken together
	for err == nil {
		frame, n, bad := protocol.SplitFrame(b, protocol.MaxFrameLen)
		if bad != nil {
			err = fmt.Errorf("server sent what is not a frame: %w", bad)
			break
		}
		if n == 0 {
			break
		}
		b = b[n:]
		h, bad := protocol.ParseFrame(frame)
		if bad != nil {
			err = fmt.Errorf("server sent a bad frame: %w", bad)
			break
		}
		if h.Kind >= protocol.KindReply && h.Arg <= 0xff {
			if !locked {
				cn.mu.Lock()
				locked = true
			}
			if cl := cn.calls.Take(h.ID); cl != nil {
				cn.replies = append(cn.replies, reply{cl, protocol.Status(h.Arg), h.Body})
			}
			continue
		}
		cn.deliverReplies(locked) // in the order in which it was sent
		locked = false
		if bad := cn.dispatch(h); bad != nil {
			err = fmt.Errorf("server sent a bad message of kind %d: %w", h.Kind, bad)
		}
	}
	cn.deliverReplies(locked)
	*buf = append((*buf)[:0], b...)
	return err
}

// reply is a call whose answer was read. Body is the reader's.
type reply struct {
	cl     *call
	status protocol.Status
	body   []byte
}

// deliverReplies passes the replies that were taken to their callers, and unlocks mu if it is held.
func (cn *conn) deliverReplies(locked bool) {
	if !locked {
		return
	}
	if len(cn.queue) > 0 {
		cn.admitQueued()
	}
	cn.reader.answered = time.Duration(cn.lastHeard.Load())
	cn.mu.Unlock()
	for i := range cn.replies {
		t := &cn.replies[i]
		if cl := t.cl; cl.reply == nil {
			cl.complete(t.status, t.body)
		} else {
			reply := cl.reply
			cn.free(cl, true)
			reply(t.status, t.body, nil)
		}
	}
	clear(cn.replies)
	cn.replies = cn.replies[:0]
}

// dispatch handles one frame that is no reply. The frame's memory is the reader's.
func (cn *conn) dispatch(h protocol.Header) error {
	switch {
	case h.Kind == protocol.KindPong:
		cn.pong(h.ID, h.Arg)
		return nil
	case h.Kind.IsEvent() || h.Kind > protocol.KindPong && h.Kind < protocol.KindReply: // or one that a newer server knows
		return cn.handler.handleEvent(cn, h)
	case h.Kind < protocol.KindReply:
		return protocol.Errorf(protocol.StatusBadRequest, "a server does not send requests")
	}
	return protocol.Errorf(protocol.StatusBadRequest, "status %d is no status", h.Arg)
}

// end closes the connection for good and ends all calls on it. The handler ends sessions and
// streams.
func (cn *conn) end(err error) {
	cn.mu.Lock()
	if cn.err != nil {
		cn.mu.Unlock()
		return
	}
	if cn.goodbye != nil {
		err = cn.goodbye
	}
	cn.err = fmt.Errorf("connection to %s ended: %w", cn.nc.RemoteAddr(), err)
	var waiting []*call
	cn.calls.Each(func(_ uint64, cl *call) { waiting = append(waiting, cl) })
	cn.calls = core.Ring[call]{}
	for _, turn := range cn.queue {
		turn <- struct{}{}
	}
	cn.queue = nil
	cn.pingTimer.Stop()
	cn.over.Store(true)
	close(cn.done)
	held := cn.reader.raw != nil
	if cn.reader.timer != nil {
		cn.reader.timer.Stop()
	}
	cn.reader.recallLocked()
	cn.mu.Unlock()
	if tcp, ok := cn.nc.(*net.TCPConn); held && ok {
		_ = tcp.CloseWrite()            // the server sees the end before the reader comes to close
		_ = tcp.SetDeadline(time.Now()) // ends reads and writes
	} else {
		_ = cn.nc.Close()
	}
	for _, cl := range waiting {
		if reply := cl.reply; reply != nil {
			cn.free(cl, true)
			reply(0, nil, errConnLost)
			continue
		}
		cl.err = errConnLost
		cl.done <- struct{}{}
	}
}
