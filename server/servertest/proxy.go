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

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		p.wg.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

func (p *proxy) serve(client *net.TCPConn) {
	p.mu.Lock()
	backend, cut := p.backend, p.refusing
	p.mu.Unlock()
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
	p.mu.Lock()
	if p.closed || p.refusing || p.backend != backend { // the state may have changed since
		p.mu.Unlock()
		l.sever()
		return
	}
	p.conns[l] = struct{}{}
	p.mu.Unlock()

	var both sync.WaitGroup
	both.Go(func() { p.pump(l, l.server, l.client, false) })
	both.Go(func() { p.pump(l, l.client, l.server, true) })
	both.Wait()
	_, _ = l.client.Close(), l.server.Close()
	p.mu.Lock()
	delete(p.conns, l)
	p.mu.Unlock()
}

// pump passes bytes on until one side ends. It passes an orderly end on as one.
func (p *proxy) pump(l *proxyConn, to, from *net.TCPConn, answers bool) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if answers && n > 0 {
			p.waitResumed(l)
		}
		if p.isFrozen() {
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

func (p *proxy) waitResumed(l *proxyConn) {
	for {
		p.mu.Lock()
		held := p.paused
		p.mu.Unlock()
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
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backend, p.frozen = "", true
}

func (p *proxy) isFrozen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen
}

// setBackend sets where new connections go. If that is nowhere, it breaks the existing ones.
func (p *proxy) setBackend(backend string) {
	p.mu.Lock()
	p.backend = backend
	p.frozen = p.frozen && backend == ""
	p.mu.Unlock()
	if backend == "" {
		p.breakAll()
	}
}

func (p *proxy) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.conns {
		l.sever()
	}
}

// agreesWith reports whether the server has open exactly the connections that clients have. Then
// all have noticed what was broken or closed before the call.
func (p *proxy) agreesWith(open int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.conns {
		if peerClosed(l.client) {
			return false
		}
	}
	return len(p.conns) == open
}

func (p *proxy) setRefusing(on bool) {
	p.mu.Lock()
	p.refusing = on
	p.mu.Unlock()
	if on {
		p.breakAll()
	}
}

func (p *proxy) setPaused(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.paused == nil:
		p.paused = make(chan struct{})
	case !on && p.paused != nil:
		close(p.paused)
		p.paused = nil
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.breakAll()
	p.wg.Wait()
}

// sever breaks both connections, as a cable does.
func (p *proxyConn) sever() {
	p.once.Do(func() {
		close(p.gone)
		reset(p.client)
		reset(p.server)
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
