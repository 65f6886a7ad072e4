package servertest

import (
	"errors"
	"io"
	"net"
	"sync"

	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// proxy keeps the address that clients know and passes their bytes on to the server. So the address
// outlives the server, and faults of the network need no help of the server.
type proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex
	backend  string        // of the running server; "" for none
	refusing bool          // every connection is refused
	frozen   bool          // nothing passes any more on the connections that there are
	paused   chan struct{} // not nil: the server's bytes wait until it is closed
	conns    map[*proxyConn]struct{}
	closed   bool
}

// proxyConn is one client's connection and its connection to the server.
type proxyConn struct {
	client, server *net.TCPConn
	gone           chan struct{} // closed when the connection is broken
	once           sync.Once
}

// bufferSize bounds what waits here for a client that does not read, so that the server soon
// notices.
const bufferSize = 256 << 10

func newProxy() (*proxy, error) {
	address, err := port.Free()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	f := &proxy{listener: l, conns: make(map[*proxyConn]struct{})}
	f.wg.Go(f.accept)
	return f, nil
}

func (f *proxy) addr() string { return f.listener.Addr().String() }

func (f *proxy) accept() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		f.wg.Go(func() { f.serve(c.(*net.TCPConn)) })
	}
}

func (f *proxy) serve(client *net.TCPConn) {
	f.mu.Lock()
	backend, cut := f.backend, f.refusing
	f.mu.Unlock()
	if backend == "" || cut {
		reset(client)
		return
	}
	c, err := net.Dial("tcp", backend)
	if err != nil {
		reset(client)
		return
	}
	l := &proxyConn{client: client, server: c.(*net.TCPConn), gone: make(chan struct{})}
	_ = l.server.SetReadBuffer(bufferSize)
	_ = l.client.SetWriteBuffer(bufferSize)
	f.mu.Lock()
	if f.closed || f.refusing || f.backend != backend { // the state may have changed since
		f.mu.Unlock()
		l.sever()
		return
	}
	f.conns[l] = struct{}{}
	f.mu.Unlock()

	var both sync.WaitGroup
	both.Go(func() { f.pump(l, l.server, l.client, false) })
	both.Go(func() { f.pump(l, l.client, l.server, true) })
	both.Wait()
	_, _ = l.client.Close(), l.server.Close()
	f.mu.Lock()
	delete(f.conns, l)
	f.mu.Unlock()
}

// pump passes bytes on until one side ends. It passes an orderly end on as one.
func (f *proxy) pump(l *proxyConn, to, from *net.TCPConn, answers bool) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if answers && n > 0 {
			f.waitResumed(l)
		}
		if f.isFrozen() {
			<-l.gone
			return
		}
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				l.sever()
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			_ = to.CloseWrite()
			return
		case err != nil:
			l.sever()
			return
		}
	}
}

func (f *proxy) waitResumed(l *proxyConn) {
	for {
		f.mu.Lock()
		held := f.paused
		f.mu.Unlock()
		if held == nil {
			return
		}
		select {
		case <-held:
		case <-l.gone:
			return
		}
	}
}

// freeze stops all bytes, and ends of connections, in both directions. New connections are refused.
// Neither side notices anything until setBackend breaks the connections.
func (f *proxy) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backend, f.frozen = "", true
}

func (f *proxy) isFrozen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.frozen
}

// setBackend sets where new connections go. If that is nowhere, it breaks the existing ones.
func (f *proxy) setBackend(backend string) {
	f.mu.Lock()
	f.backend = backend
	f.frozen = f.frozen && backend == ""
	f.mu.Unlock()
	if backend == "" {
		f.breakAll()
	}
}

func (f *proxy) breakAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.conns {
		l.sever()
	}
}

// agreesWith reports whether the server has open exactly the connections that clients have. Then
// all have noticed what was broken or closed before the call.
func (f *proxy) agreesWith(open int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.conns {
		if peerClosed(l.client) {
			return false
		}
	}
	return len(f.conns) == open
}

func (f *proxy) setRefusing(on bool) {
	f.mu.Lock()
	f.refusing = on
	f.mu.Unlock()
	if on {
		f.breakAll()
	}
}

func (f *proxy) setPaused(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case on && f.paused == nil:
		f.paused = make(chan struct{})
	case !on && f.paused != nil:
		close(f.paused)
		f.paused = nil
	}
}

func (f *proxy) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	_ = f.listener.Close()
	f.breakAll()
	f.wg.Wait()
}

// sever breaks both connections, as a cable does.
func (l *proxyConn) sever() {
	l.once.Do(func() {
		close(l.gone)
		reset(l.client)
		reset(l.server)
	})
}

func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// DropConnections breaks every client's connection. Clients may connect again at once.
func (s *Server) DropConnections() { s.proxy.breakAll() }

// Unreachable breaks every client's connection and refuses new ones until Reachable. The server
// itself runs on.
func (s *Server) Unreachable() { s.proxy.setRefusing(true) }

// Reachable ends Unreachable.
func (s *Server) Reachable() { s.proxy.setRefusing(false) }

// Pause holds up what the server sends, on existing and new connections, until Resume. What clients
// send still arrives and takes effect, but they do not learn of it.
func (s *Server) Pause() { s.proxy.setPaused(true) }

// Resume delivers what was held up, and what follows.
func (s *Server) Resume() { s.proxy.setPaused(false) }
