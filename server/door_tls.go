package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// tlsDoor lets clients in over TLS. gnet knows none, so a connection here has two goroutines: one reads and feeds, one writes. Both doors share the limit of
// connections, the sweeper, and everything behind conn.feed.
type tlsDoor struct {
	srv      *Server
	listener net.Listener
	config   *tls.Config
	accepts  sync.WaitGroup
	serving  sync.WaitGroup
	passes   sync.Pool

	mu    sync.Mutex
	marks []*tlsSocket // with something to write, not woken yet
}

func newTLSDoor(s *Server, l net.Listener, cfg *tls.Config) *tlsDoor {
	d := &tlsDoor{srv: s, listener: l, config: cfg}
	d.passes.New = func() any { return s.newPass() }
	return d
}

func (d *tlsDoor) open() {
	d.accepts.Go(func() { d.srv.acceptFrom(d.listener, d.admit) })
}

func (d *tlsDoor) stopAccepting() {
	_ = d.listener.Close()
	d.accepts.Wait()
}

// close ends every connection.
func (d *tlsDoor) close() {
	d.stopAccepting()
	d.srv.conns.each(func(c *conn) {
		if k, ok := c.wire.(*tlsSocket); ok {
			k.ending.Store(true)
			_ = k.raw.Close()
			k.resume() // one that rests does not read, and would not notice
		}
	})
	d.serving.Wait()
}

// admit begins a connection. It counts as one from here on: a handshake that does not end is a hello that does not come.
func (d *tlsDoor) admit(nc *net.TCPConn) {
	k := &tlsSocket{door: d, raw: nc, tls: tls.Server(nc, d.config), wake: make(chan struct{}, 1), done: make(chan struct{}), resumed: make(chan struct{}, 1)}
	if !k.open(d.srv, k, nc.RemoteAddr().String()) {
		d.srv.metrics.surplus.Inc()
		_ = nc.Close() // there is nothing that could be said before a handshake
		return
	}
	d.srv.metrics.accepted.Inc()
	d.serving.Go(k.serve)
}

// kick wakes the writers of what was marked.
func (d *tlsDoor) kick() {
	d.mu.Lock()
	list := d.marks
	d.marks = nil
	d.mu.Unlock()
	for _, k := range list {
		k.marked()
	}
}

// tlsSocket is a connection over TLS.
type tlsSocket struct {
	conn
	door *tlsDoor
	raw  *net.TCPConn
	tls  *tls.Conn
	wake chan struct{}
	done chan struct{} // closed when nothing is read any more

	resumed chan struct{} // has something when a rest is over

	mu    sync.Mutex
	ready bool // the handshake is done
	hard  bool // the connection is to be closed, and the writer has been given its last moment
}

// push implements wire.
func (k *tlsSocket) push() {
	k.door.mu.Lock()
	k.door.marks = append(k.door.marks, k)
	k.door.mu.Unlock()
}

// pause implements wire: who reads looks whether it is to rest.
func (k *tlsSocket) pause() {}

// resume implements wire.
func (k *tlsSocket) resume() {
	select {
	case k.resumed <- struct{}{}:
	default:
	}
}

// lastWords is how long a connection that must be closed at once may take over what it was told last.
const lastWords = 100 * time.Millisecond

// marked wakes the writer. It may stand in a write that a client does not read: a connection that is to be closed bounds it.
func (k *tlsSocket) marked() {
	if k.ending.Load() {
		k.resume()
		k.out.mu.Lock()
		hard := k.out.end == endHard
		k.out.mu.Unlock()
		k.mu.Lock()
		switch {
		case !k.ready:
			_ = k.raw.Close() // in the middle of a handshake nothing can be said
		case hard && !k.hard:
			k.hard = true
			_ = k.raw.SetWriteDeadline(time.Now().Add(lastWords))
		}
		k.mu.Unlock()
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// serve is the life of the connection.
func (k *tlsSocket) serve() {
	defer k.srv.guard("close", nil)
	var writing sync.WaitGroup
	if k.shake() {
		writing.Go(k.write)
		k.read()
	}
	_ = k.raw.Close()
	close(k.done)
	writing.Wait()
	k.closed()
}

// shake does the handshake, bounded like the hello that is to follow.
func (k *tlsSocket) shake() bool {
	ctx, cancel := context.WithTimeout(k.srv.ctx, k.srv.cfg.Limits.HelloTimeout)
	defer cancel()
	if err := k.tls.HandshakeContext(ctx); err != nil {
		k.srv.metrics.tlsFailed.Inc()
		k.srv.log.Debug("TLS handshake failed", "conn", k.id, "remote", k.remote, "error", err)
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) && plain.Conn != nil {
			// A client that speaks no TLS can read this.
			goodbye := &protocol.Goodbye{Status: protocol.StatusBadRequest, Message: "this address wants TLS; turn it on, or connect to the plain address if there is one"}
			_ = k.raw.SetWriteDeadline(time.Now().Add(lastWords))
			_, _ = k.raw.Write(protocol.AppendFrame(nil, protocol.KindGoodbye, 0, 0, goodbye))
		}
		return false
	}
	if chains := k.tls.ConnectionState().VerifiedChains; len(chains) > 0 {
		k.certificate = chains[0][0]
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ready = true
	return !k.ending.Load()
}

// leastInbound is a connection's buffer for what comes in, as long as frames are small, and keptInbound the most that it keeps after a large one.
const (
	leastInbound = 4 << 10
	keptInbound  = 64 << 10
)

// read feeds what comes in until the connection ends. The buffer grows with what has come, not with what a frame's length announces.
func (k *tlsSocket) read() {
	defer k.srv.guard("traffic", nil)
	buf := make([]byte, 0, leastInbound)
	for {
		n, err := k.tls.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		for fed := n == 0; !fed; {
			used := k.take(buf)
			rest := copy(buf, buf[used:])
			buf = buf[:rest]
			fed = !k.resting.Load() || rest == 0
			for k.resting.Load() && !k.ending.Load() { // the kernel keeps what comes
				select {
				case <-k.resumed:
				case <-k.srv.ctx.Done():
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
		case len(buf) == 0 && cap(buf) > keptInbound:
			buf = make([]byte, 0, leastInbound)
		}
	}
}

// take feeds the connection, and has written what others are told.
func (k *tlsSocket) take(buf []byte) (used int) {
	if len(buf) < k.need && !k.ending.Load() {
		if !k.partial(len(buf)) {
			k.srv.kick()
			return len(buf)
		}
		return 0
	}
	p := k.door.passes.Get().(*pass)
	fed := false
	defer func() {
		if fed {
			k.door.passes.Put(p)
		} else {
			p.forget() // a panic; it goes on, and ends the connection
		}
	}()
	used = k.feed(p, buf)
	k.srv.metrics.bytesIn.Add(used)
	p.out.flush()
	fed = true
	return used
}

// write writes what waits whenever there is something, until the connection ends.
func (k *tlsSocket) write() {
	defer k.srv.guard("flush", func() { _ = k.raw.Close() })
	var b batch
	for {
		select {
		case <-k.wake:
		case <-k.done:
			return
		}
		k.out.take(&b)
		end, err := b.end, k.writeOut(&b)
		switch {
		case err != nil, end == endHard:
			_ = k.raw.Close()
			return
		case end == endSoft:
			// The client reads the goodbye to its end, and closes.
			_ = k.tls.CloseWrite()
			_ = k.raw.CloseWrite()
		}
		k.room()
	}
}

// writePiece is the most bytes written before it is noted that they are.
const writePiece = 32 << 10

// writeOut writes a batch, and keeps account of what of it the client has not read.
func (k *tlsSocket) writeOut(b *batch) error {
	defer func() {
		b.release()
		k.noteHeld(0)
	}()
	if len(b.segs) == 0 {
		return nil
	}
	left := b.size
	k.noteHeld(left)
	k.srv.metrics.writes.Inc()
	for _, seg := range b.segs {
		// In pieces: a client that has read a large answer to its end asks on before the write of it returns, and must not be taken for one that does not read.
		for piece := range slices.Chunk(seg, writePiece) {
			if _, err := k.tls.Write(piece); err != nil {
				return err
			}
			left -= len(piece)
			k.noteHeld(left)
			k.srv.metrics.bytesOut.Add(len(piece))
		}
	}
	return nil
}
