package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// tlsListener lets clients in over TLS. gnet knows none, so a connection here has two goroutines:
// one reads and feeds, one writes. Both listeners share the limit of connections, the sweeper, and
// everything behind Conn.read.
type tlsListener struct {
	t         *Transport
	listener  net.Listener
	config    *tls.Config
	slots     handshakeSlots
	failures  handshakeLog
	accepting sync.WaitGroup
	serving   sync.WaitGroup
	cycles    sync.Pool

	mu      sync.Mutex
	dirty   []*tlsSocket // with something to write, not woken yet
	sockets map[*tlsSocket]struct{}
}

func newTLSListener(t *Transport, l net.Listener, cfg *tls.Config) *tlsListener {
	d := &tlsListener{t: t, listener: l, config: cfg, sockets: make(map[*tlsSocket]struct{}),
		slots: newHandshakeSlots(max(1, runtime.GOMAXPROCS(0)/2))}
	d.cycles.New = func() any { return t.cfg.NewCycle() }
	return d
}

// handshakeBuffer has room for a client's first message as a rule.
const handshakeBuffer = 2 << 10

// errBusy: a handshake would have to wait until its client has given up.
var errBusy = errors.New("too many handshakes at once")

// handshakeConn bounds how many handshakes are computed at once: thousands of them, each ready to
// run, would keep the log and everything else waiting for a processor. Each has a slot while it has
// something to compute, and none while it waits for its client. Its reading goroutine has it alone
// until the handshake is over, but for Close.
type handshakeConn struct {
	*net.TCPConn
	in       *bufio.Reader // takes bytes that came together in one turn; nil: over, and empty
	slots    handshakeSlots
	until    time.Time     // it waits for its first slot until then
	gone     chan struct{} // closed with the connection
	close    sync.Once
	answered bool          // it has written something
	taken    chan struct{} // of its slot; nil: it has no slot
	over     bool
}

// handshakeSlots are of first messages, and of later ones: a handshake that was begun does not wait
// behind new ones.
type handshakeSlots struct{ first, later chan struct{} }

func newHandshakeSlots(n int) handshakeSlots {
	return handshakeSlots{make(chan struct{}, n), make(chan struct{}, n)}
}

func newHandshakeConn(nc *net.TCPConn, slots handshakeSlots, patience time.Duration) *handshakeConn {
	return &handshakeConn{TCPConn: nc, in: bufio.NewReaderSize(nc, handshakeBuffer), slots: slots,
		until: time.Now().Add(patience), gone: make(chan struct{})}
}

// Read implements net.Conn.
func (c *handshakeConn) Read(b []byte) (int, error) {
	switch {
	case c.in == nil:
		return c.TCPConn.Read(b)
	case c.in.Buffered() > 0:
		return c.in.Read(b)
	case c.over:
		c.in = nil
		return c.TCPConn.Read(b)
	}
	c.giveBack()
	_, err := c.in.Peek(1)
	if err == nil {
		err = c.take()
	}
	if err != nil {
		return 0, err
	}
	return c.in.Read(b)
}

// Write implements net.Conn.
func (c *handshakeConn) Write(b []byte) (int, error) {
	if !c.over {
		c.answered = true
	}
	return c.TCPConn.Write(b)
}

func (c *handshakeConn) take() error {
	slots, patience := c.slots.first, (<-chan time.Time)(nil)
	if c.answered {
		slots = c.slots.later
	}
	select {
	case slots <- struct{}{}:
		c.taken = slots
		return nil
	default:
	}
	if !c.answered {
		t := time.NewTimer(time.Until(c.until))
		defer t.Stop()
		patience = t.C
	}
	select {
	case slots <- struct{}{}:
		c.taken = slots
		return nil
	case <-c.gone:
		return net.ErrClosed
	case <-patience:
		_ = c.Close() // without an alert, which clients take for a mistake in their configuration
		return errBusy
	}
}

func (c *handshakeConn) giveBack() {
	if c.taken != nil {
		<-c.taken
		c.taken = nil
	}
}

// end is called when the handshake is over.
func (c *handshakeConn) end() {
	c.giveBack()
	c.over = true
}

// Close implements net.Conn.
func (c *handshakeConn) Close() error {
	c.close.Do(func() { close(c.gone) })
	return c.TCPConn.Close()
}

func (t *tlsListener) open() {
	t.accepting.Go(func() { t.t.acceptFrom(t.listener, t.admit) })
}

func (t *tlsListener) stopAccepting() {
	_ = t.listener.Close()
	t.accepting.Wait()
}

// close ends every connection.
func (t *tlsListener) close() {
	t.stopAccepting()
	t.mu.Lock()
	for k := range t.sockets {
		k.ending.Store(true)
		_ = k.raw.Close()
		k.resumeReads() // a paused one does not read, and would not notice
	}
	t.mu.Unlock()
	t.serving.Wait()
}

// admit begins a connection. It counts as one from here on: a handshake that does not end is a
// hello that does not come.
func (t *tlsListener) admit(nc *net.TCPConn) {
	hc := newHandshakeConn(nc, t.slots, t.t.cfg.Limits.Hello/2) // who is served then has time for the rest
	k := &tlsSocket{listener: t, raw: hc, tls: tls.Server(hc, t.config), wake: make(chan struct{}, 1),
		done: make(chan struct{}), resumed: make(chan struct{}, 1)}
	k.secure = true
	if !k.open(t.t, k, nc.RemoteAddr().String()) {
		t.t.Metrics.Rejected.Inc()
		_ = nc.Close() // there is nothing that could be said before a handshake
		return
	}
	t.t.Metrics.Accepted.Inc()
	t.mu.Lock()
	t.sockets[k] = struct{}{}
	t.mu.Unlock()
	t.serving.Go(k.serve)
}

// wake wakes the writers of the marked connections.
func (t *tlsListener) wake() {
	t.mu.Lock()
	list := t.dirty
	t.dirty = nil
	t.mu.Unlock()
	for _, k := range list {
		k.wakeWriter()
	}
}

// tlsSocket is a connection over TLS.
type tlsSocket struct {
	Conn
	listener *tlsListener
	raw      *handshakeConn
	tls      *tls.Conn
	wake     chan struct{}
	done     chan struct{} // closed when nothing is read any more

	resumed chan struct{} // has something when a pause is over

	mu      sync.Mutex
	ready   bool // the handshake is done
	closing bool // the connection is being closed, and the writer has been given its last moment
}

// markDirty implements socket.
func (t *tlsSocket) markDirty(bool) {
	t.listener.mu.Lock()
	t.listener.dirty = append(t.listener.dirty, t)
	t.listener.mu.Unlock()
}

// hasten implements socket: each connection has a writer of its own.
func (t *tlsSocket) hasten() {}

// pauseReads implements socket: the reading goroutine checks whether the connection is paused.
func (t *tlsSocket) pauseReads() {}

// resumeReads implements socket.
func (t *tlsSocket) resumeReads() {
	wake(t.resumed)
}

// goodbyeTimeout bounds the write of the last frame to a connection that must be closed at once.
const goodbyeTimeout = 100 * time.Millisecond

// wakeWriter wakes the writer. It may be in a write that the client does not read: the deadline of
// a connection being closed bounds that.
func (t *tlsSocket) wakeWriter() {
	if t.ending.Load() {
		t.resumeReads()
		t.out.mu.Lock()
		hard := t.out.closing == Immediate
		t.out.mu.Unlock()
		t.mu.Lock()
		switch {
		case !t.ready:
			_ = t.raw.Close() // in the middle of a handshake nothing can be said
		case hard && !t.closing:
			t.closing = true
			_ = t.raw.SetWriteDeadline(time.Now().Add(goodbyeTimeout))
		}
		t.mu.Unlock()
	}
	wake(t.wake)
}

// serve is the life of the connection.
func (t *tlsSocket) serve() {
	defer t.t.guard("close", nil)
	var writing sync.WaitGroup
	if t.handshake() {
		writing.Go(t.writeAll)
		t.readAll()
	}
	_ = t.raw.Close()
	close(t.done)
	writing.Wait()
	t.listener.mu.Lock()
	delete(t.listener.sockets, t)
	t.listener.mu.Unlock()
	t.closed()
}

// handshake does the handshake, bounded like the hello that is to follow.
func (t *tlsSocket) handshake() bool {
	ctx, cancel := context.WithTimeout(t.t.ctx, t.t.cfg.Limits.Hello)
	defer cancel()
	err := t.tls.HandshakeContext(ctx)
	t.raw.end()
	if err != nil {
		t.t.Metrics.HandshakesFailed.Inc()
		t.listener.failures.failed(t.t.cfg.Log, t.id, t.remote, err, time.Now())
		if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && plain.Conn != nil {
			// A client that speaks no TLS can read this.
			goodbye := &protocol.Goodbye{Status: protocol.StatusBadRequest,
				Message: "this address wants TLS; turn it on, or connect to the plain address if there is one"}
			_ = t.raw.SetWriteDeadline(time.Now().Add(goodbyeTimeout))
			_, _ = t.raw.Write(protocol.AppendFrame(nil, protocol.KindGoodbye, 0, 0, goodbye))
		}
		return false
	}
	if chains := t.tls.ConnectionState().VerifiedChains; len(chains) > 0 {
		t.certificate = chains[0][0]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ready = true
	return !t.ending.Load()
}

// minReadBuffer is the size of a connection's read buffer while frames are small; maxIdleReadBuffer
// is the most that it keeps after a large frame.
const (
	minReadBuffer     = 4 << 10
	maxIdleReadBuffer = 64 << 10
)

// readAll reads until the connection ends. The buffer grows with the bytes received, not with the
// length that a frame announces.
func (t *tlsSocket) readAll() {
	defer t.t.guard("traffic", nil)
	buf := make([]byte, 0, minReadBuffer)
	for {
		n, err := t.tls.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		for fed := n == 0; !fed; {
			used := t.process(buf)
			rest := copy(buf, buf[used:])
			buf = buf[:rest]
			fed = used == 0 || rest == 0              // a pause may be over already, and left whole frames
			for t.paused.Load() && !t.ending.Load() { // incoming bytes stay in the kernel
				select {
				case <-t.resumed:
				case <-t.t.ctx.Done():
					return
				}
			}
		}
		if err != nil {
			return
		}
		switch {
		case len(buf) == cap(buf):
			buf = append(make([]byte, 0, 2*cap(buf)), buf...)
		case len(buf) == 0 && cap(buf) > maxIdleReadBuffer:
			buf = make([]byte, 0, minReadBuffer)
		}
	}
}

// process feeds the connection, and has the notifications of others written.
func (t *tlsSocket) process(buf []byte) (used int) {
	if len(buf) < t.need && !t.ending.Load() {
		if !t.partialFrame(len(buf)) {
			t.t.Flush()
			return len(buf)
		}
		return 0
	}
	p := t.listener.cycles.Get().(Cycle)
	fed := false
	defer func() {
		if fed {
			t.listener.cycles.Put(p)
		} else {
			p.Reset() // a panic; it goes on, and ends the connection
		}
	}()
	used = t.read(p, buf)
	t.t.Metrics.BytesIn.Add(used)
	t.t.Flush()
	fed = true
	return used
}

// writeAll writes pending frames whenever there are any, until the connection ends.
func (t *tlsSocket) writeAll() {
	defer t.t.guard("flush", func() { _ = t.raw.Close() })
	var b writeBatch
	for {
		select {
		case <-t.wake:
		case <-t.done:
			return
		}
		t.out.take(&b)
		end, err := b.end, t.writeOut(&b)
		switch {
		case err != nil, end == Immediate:
			_ = t.raw.Close()
			return
		case end == Graceful:
			// The client reads the goodbye to its end, and closes.
			_ = t.tls.CloseWrite()
			_ = t.raw.CloseWrite()
		}
		t.checkRoom()
	}
}

// maxWritePiece is the most bytes written before it is noted that they are.
const maxWritePiece = 32 << 10

// writeOut writes a batch, and keeps account of its unread bytes.
func (t *tlsSocket) writeOut(b *writeBatch) error {
	defer func() {
		b.release()
		t.setUnsent(0)
	}()
	if len(b.segs) == 0 {
		return nil
	}
	left := b.size
	t.setUnsent(left)
	t.t.Metrics.Writes.Inc()
	for _, seg := range b.segs {
		// In pieces: a client that has read a large answer to its end asks on before the write of
		// it returns, and must not be taken for one that does not read.
		for piece := range slices.Chunk(seg, maxWritePiece) {
			if _, err := t.tls.Write(piece); err != nil {
				return err
			}
			left -= len(piece)
			t.setUnsent(left)
			t.t.Metrics.BytesOut.Add(len(piece))
		}
	}
	return nil
}
