package servertest

import (
	"errors"
	"io"
	"net"
	"sync"

	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// front holds the address that clients know and passes their bytes on to the server, so that the address outlives the server and faults of the network can
// be had without the server's help.
type front struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	backend string        // of the running server, "" for none
	cut     bool          // nobody gets through
	held    chan struct{} // not nil: what the server says waits until it is closed
	links   map[*link]struct{}
	closed  bool
}

// link is one client's connection and its continuation.
type link struct {
	client, server *net.TCPConn
	gone           chan struct{} // closed when the link is broken
	once           sync.Once
}

// bufferSize bounds what waits here for a client that does not read, so that the server soon notices.
const bufferSize = 256 << 10

func newFront() (*front, error) {
	address, err := port.Free()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	f := &front{listener: l, links: make(map[*link]struct{})}
	f.wg.Go(f.accept)
	return f, nil
}

func (f *front) addr() string { return f.listener.Addr().String() }

func (f *front) accept() {
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

func (f *front) serve(client *net.TCPConn) {
	f.mu.Lock()
	backend, cut := f.backend, f.cut
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
	l := &link{client: client, server: c.(*net.TCPConn), gone: make(chan struct{})}
	_ = l.server.SetReadBuffer(bufferSize)
	_ = l.client.SetWriteBuffer(bufferSize)
	f.mu.Lock()
	if f.closed || f.cut || f.backend != backend { // since it was looked at
		f.mu.Unlock()
		l.sever()
		return
	}
	f.links[l] = struct{}{}
	f.mu.Unlock()

	var both sync.WaitGroup
	both.Go(func() { f.pump(l, l.server, l.client, false) })
	both.Go(func() { f.pump(l, l.client, l.server, true) })
	both.Wait()
	_, _ = l.client.Close(), l.server.Close()
	f.mu.Lock()
	delete(f.links, l)
	f.mu.Unlock()
}

// pump passes bytes on until one side ends. An orderly end is passed on as one.
func (f *front) pump(l *link, to, from *net.TCPConn, answers bool) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if answers {
				f.hold(l)
			}
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

// hold waits while answers are held up.
func (f *front) hold(l *link) {
	for {
		f.mu.Lock()
		held := f.held
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

// lead sets where new connections lead to, and breaks those there are when it is nowhere.
func (f *front) lead(backend string) {
	f.mu.Lock()
	f.backend = backend
	f.mu.Unlock()
	if backend == "" {
		f.drop()
	}
}

func (f *front) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.links {
		l.sever()
	}
}

// settled says that the server has open exactly the connections that clients have: what broke or was closed before the call has been noticed by all.
func (f *front) settled(open int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.links {
		if hungUp(l.client) {
			return false
		}
	}
	return len(f.links) == open
}

func (f *front) setCut(on bool) {
	f.mu.Lock()
	f.cut = on
	f.mu.Unlock()
	if on {
		f.drop()
	}
}

func (f *front) setHeld(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case on && f.held == nil:
		f.held = make(chan struct{})
	case !on && f.held != nil:
		close(f.held)
		f.held = nil
	}
}

func (f *front) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	_ = f.listener.Close()
	f.drop()
	f.wg.Wait()
}

// sever breaks both connections, as a cable does.
func (l *link) sever() {
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
func (s *Server) DropConnections() { s.front.drop() }

// Unreachable breaks every client's connection and lets nobody in until Reachable. The server itself runs on.
func (s *Server) Unreachable() { s.front.setCut(true) }

// Reachable ends Unreachable.
func (s *Server) Reachable() { s.front.setCut(false) }

// Pause holds up what the server sends, on connections there are and those to come, until Resume. What clients send still arrives and takes effect; they
// do not learn of it.
func (s *Server) Pause() { s.front.setHeld(true) }

// Resume delivers what was held up, and what follows.
func (s *Server) Resume() { s.front.setHeld(false) }
