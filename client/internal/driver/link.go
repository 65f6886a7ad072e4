package driver

import (
	"errors"
	"net"
	"runtime"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/wire"
	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// bytes that a caller writes by itself: the kernel takes them at once from a connection that is
	// answered
	maxDirectWrite = 16 << 10
	maxKeptBuffer  = 256 << 10 // a buffer that grew beyond this is given back
)

// link is a connection at work. A goroutine reads. A caller that is alone on the connection writes
// its own request. Several share a goroutine that writes what has gathered.
type link struct {
	d           *Driver
	conn        *core.Conn // set before it is used
	wire        *wire.Conn
	hello       protocol.HelloReply
	tokenChange uint64        // of the token that was shown
	tcp         bool          // writing what little there is does not block; never changed
	wake        chan struct{} // capacity 1: there is something to write
	done        chan struct{} // closed when the connection is over

	// Guarded by the driver's mu.
	writing   bool // somebody is in Write
	hasWriter bool // the goroutine that writes runs: from the first time on that callers share one
	spare     []byte
}

func newLink(d *Driver, w *wire.Conn, nc net.Conn, hello protocol.HelloReply, tokenChange uint64) *link {
	l := &link{d: d, wire: w, hello: hello, tokenChange: tokenChange, wake: make(chan struct{}, 1),
		done: make(chan struct{})}
	_, l.tcp = nc.(*net.TCPConn)
	return l
}

// mayWrite reports whether a caller writes by itself: nobody is there to share a write with. mu is
// held.
func (l *link) mayWrite() bool {
	return l.tcp && l.conn.Unanswered() <= 1 && len(l.conn.Out) <= maxDirectWrite
}

// take begins to write what has gathered. mu is held, and nobody else writes.
func (l *link) take() []byte {
	l.writing = true
	out := l.conn.TakeOut(l.spare)
	l.spare = nil
	return out
}

// wakeWriter has the goroutine write. mu is held.
func (l *link) wakeWriter() {
	if !l.hasWriter {
		l.hasWriter = true
		l.d.goroutines.Go(l.writeLoop)
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) writeLoop() {
	defer func() { // a callback may have ended the goroutine: another one goes on then
		l.d.mu.Lock()
		defer l.d.mu.Unlock()
		if !isClosed(l.done) {
			l.d.goroutines.Go(l.writeLoop)
		}
	}()
	for {
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
		runtime.Gosched() // callers that are ready to run put their requests into the same write
		l.d.mu.Lock()
		var out []byte
		if !l.writing && len(l.conn.Out) > 0 {
			out = l.take()
		}
		l.d.mu.Unlock()
		if out != nil {
			l.write(out)
		}
	}
}

// write writes what take gave.
func (l *link) write(out []byte) {
	err := l.wire.Write(out)
	now := l.d.beginStep()
	l.writing = false
	if cap(out) <= maxKeptBuffer {
		l.spare = out[:0]
	}
	switch {
	case err != nil:
		l.d.engine.Lost(now, l.conn, err)
		l.wire.Close()
	case len(l.conn.Out) > 0:
		l.wakeWriter()
	}
	l.d.endStep(now)
}

// received steps the engine with the frames of one read.
func (l *link) received(frames []protocol.Header) {
	now := l.d.beginStep()
	l.d.engine.Received(now, l.conn, frames)
	l.d.endStep(now)
}

// errInterrupted: a callback has panicked, or ended the goroutine that reads.
var errInterrupted = errors.New("a callback ended the goroutine that reads the connection")

// start takes in what came behind the answer to the hello, and has the rest read.
func (l *link) start() {
	err := errInterrupted
	defer func() {
		if err != nil {
			l.over(err)
		} else if !l.d.Run(l.read) {
			l.over(core.ErrClosed)
		}
	}()
	err = l.wire.First(l.received)
}

// read reads to the end of the connection.
func (l *link) read() {
	err := errInterrupted
	defer func() { l.over(err) }()
	err = l.wire.Read(l.received)
}

// over ends the link. It is called once.
func (l *link) over(err error) {
	defer close(l.done)
	defer l.wire.Close()
	now := l.d.beginStep()
	l.d.engine.Lost(now, l.conn, err)
	err = l.conn.Err
	if goodbye, ok := errors.AsType[*protocol.Error](err); ok && goodbye.Status == protocol.StatusUnauthenticated {
		l.d.shown.revoked(err, l.tokenChange, now)
	}
	l.d.endStep(now)
	l.d.cfg.Logger.Debug("connection lost", "instance", l.conn.Instance(), "error", err)
}
