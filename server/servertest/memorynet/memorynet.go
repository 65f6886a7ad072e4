// Package memorynet connects the instances of a test in one process, without ports. A test cuts
// directions, and resets connections.
package memorynet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Network connects endpoints in one process. An endpoint has an address, any host:port.
//
// Bytes and dials behind a cut are not lost: they wait until the cut heals, as with TCP's
// retransmissions. So a cut shorter than the keep-alive timeout is a delay that the test controls;
// a longer one makes both ends close the connection.
type Network struct {
	mu        sync.Mutex
	change    *sync.Cond // of cuts, listeners, or a dialer's ctx
	listeners map[string]*listener
	cuts      map[[2]string]bool // from, to
	pairs     map[*pair]struct{}
}

// New returns a network without endpoints.
func New() *Network {
	n := &Network{listeners: make(map[string]*listener), cuts: make(map[[2]string]bool),
		pairs: make(map[*pair]struct{})}
	n.change = sync.NewCond(&n.mu)
	return n
}

// Endpoint is the network as seen from an address: dials come from it.
func (n *Network) Endpoint(address string) Endpoint {
	return Endpoint{n, normalize(address)}
}

// Cut stops the bytes from one address to another, in this direction only. A new connection needs
// both directions.
func (n *Network) Cut(from, to string) { n.set(from, to, true) }

// Heal ends a cut. Waiting bytes arrive.
func (n *Network) Heal(from, to string) { n.set(from, to, false) }

// CutBoth and HealBoth do the same in both directions.
func (n *Network) CutBoth(a, b string) { n.Cut(a, b); n.Cut(b, a) }

// HealBoth ends a cut in both directions.
func (n *Network) HealBoth(a, b string) { n.Heal(a, b); n.Heal(b, a) }

// HealAll ends all cuts.
func (n *Network) HealAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
	n.broadcast()
}

func (n *Network) set(from, to string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := [2]string{normalize(from), normalize(to)}
	if cut {
		n.cuts[key] = true
	} else {
		delete(n.cuts, key)
	}
	n.broadcast()
}

// broadcast tells pairs and dialers of a change; mu is held.
func (n *Network) broadcast() {
	for l := range n.pairs {
		l.mu.Lock()
		for i := range l.ends {
			l.pipes[i].cut = n.cuts[[2]string{l.ends[i], l.ends[1-i]}]
		}
		l.change.Broadcast()
		l.mu.Unlock()
	}
	n.change.Broadcast()
}

// Reset breaks all connections between two addresses, cut or not: both ends see a reset, and bytes
// on the way are lost.
func (n *Network) Reset(a, b string) {
	a, b = normalize(a), normalize(b)
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.pairs {
		if l.ends == [2]string{a, b} || l.ends == [2]string{b, a} {
			l.reset()
			delete(n.pairs, l)
		}
	}
}

// Connections returns the number of connections between two addresses.
func (n *Network) Connections(a, b string) (count int) {
	a, b = normalize(a), normalize(b)
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.pairs {
		if l.ends == [2]string{a, b} || l.ends == [2]string{b, a} {
			count++
		}
	}
	return count
}

// An Endpoint is a peer.Network.
type Endpoint struct {
	n       *Network
	address string
}

type addr string

func (addr) Network() string  { return "memory" }
func (a addr) String() string { return string(a) }

const backlog = 128

// Listen takes connections to an address.
func (e Endpoint) Listen(address string) (net.Listener, error) {
	address = normalize(address)
	n := e.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, fmt.Errorf("memory endpoint %s: %w", address, syscall.EADDRINUSE)
	}
	l := &listener{n: n, address: address, backlog: make(chan net.Conn, backlog), done: make(chan struct{})}
	n.listeners[address] = l
	n.change.Broadcast()
	return l, nil
}

// Dial connects to an address, once no cut is in the way.
func (e Endpoint) Dial(ctx context.Context, address string) (net.Conn, error) {
	address = normalize(address)
	n := e.n
	defer context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.change.Broadcast()
	})()
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.cuts[[2]string{e.address, address}] || n.cuts[[2]string{address, e.address}] {
		if ctx.Err() != nil {
			break
		}
		n.change.Wait()
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("dial memory endpoint %s: %w", address, err)
	}
	l := n.listeners[address]
	if l == nil {
		return nil, fmt.Errorf("dial memory endpoint %s: %w", address, syscall.ECONNREFUSED)
	}
	link := newPair(n, e.address, address)
	select {
	case l.backlog <- &conn{link, 1}:
	default:
		return nil, fmt.Errorf("dial memory endpoint %s: %w", address, syscall.ECONNREFUSED)
	}
	n.pairs[link] = struct{}{}
	return &conn{link, 0}, nil
}

type listener struct {
	n       *Network
	address string
	backlog chan net.Conn
	done    chan struct{}
}

func (l *listener) Addr() net.Addr { return addr(l.address) }

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	if l.n.listeners[l.address] != l {
		return net.ErrClosed
	}
	delete(l.n.listeners, l.address)
	close(l.done)
	for {
		select {
		case c := <-l.backlog:
			link := c.(*conn).pair
			link.reset()
			delete(l.n.pairs, link)
		default:
			return nil
		}
	}
}

// pipeBytes is the capacity of a pipe, like that of the kernel's buffers of a connection.
const pipeBytes = 256 << 10

// pair is one connection: two pipes, from end 0 to end 1 and back.
type pair struct {
	n    *Network
	ends [2]string // addresses

	mu     sync.Mutex // locked after the network's
	change *sync.Cond
	pipes  [2]pipe // by the end that writes
	broken bool    // reset
}

// pipe is one direction. Its end arrives behind its bytes, and behind a cut.
type pipe struct {
	buf                 []byte
	cut                 bool
	writerGone          bool // no more will come
	readerGone          bool
	readTime, writeTime deadline
}

type deadline struct {
	at    time.Time
	timer *time.Timer
}

func newPair(n *Network, from, to string) *pair {
	l := &pair{n: n, ends: [2]string{from, to}}
	l.change = sync.NewCond(&l.mu)
	return l
}

func (m *pair) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = true
	for i := range m.pipes {
		m.pipes[i].buf = nil
		m.pipes[i].readTime.stop()
		m.pipes[i].writeTime.stop()
	}
	m.change.Broadcast()
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// set wakes readers and writers at that time; the pair's mu is held.
func (d *deadline) set(l *pair, at time.Time) {
	d.at = at
	d.stop()
	if at.IsZero() {
		return
	}
	if d.timer == nil {
		d.timer = time.AfterFunc(time.Until(at), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.change.Broadcast()
		})
	} else {
		d.timer.Reset(max(0, time.Until(at)))
	}
	if d.passed() {
		l.change.Broadcast()
	}
}

// conn is one end of a pair.
type conn struct {
	pair *pair
	end  int
}

func (c *conn) in() *pipe  { return &c.pair.pipes[1-c.end] }
func (c *conn) out() *pipe { return &c.pair.pipes[c.end] }

func (c *conn) Read(b []byte) (int, error) {
	l, w := c.pair, c.in()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case w.readerGone:
			return 0, net.ErrClosed
		case l.broken:
			return 0, syscall.ECONNRESET
		case w.readTime.passed():
			return 0, os.ErrDeadlineExceeded
		case len(w.buf) > 0 && !w.cut:
			n := copy(b, w.buf)
			if w.buf = w.buf[n:]; len(w.buf) == 0 {
				w.buf = nil
			}
			l.change.Broadcast()
			return n, nil
		case w.writerGone && !w.cut:
			return 0, io.EOF
		}
		l.change.Wait()
	}
}

func (c *conn) Write(b []byte) (n int, err error) {
	l, w := c.pair, c.out()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case w.writerGone:
			return n, net.ErrClosed
		case l.broken:
			return n, syscall.ECONNRESET
		case w.writeTime.passed():
			return n, os.ErrDeadlineExceeded
		case w.readerGone && !c.in().cut: // the close has arrived
			return n, syscall.EPIPE
		case len(b) == 0:
			return n, nil
		}
		if room := pipeBytes - len(w.buf); room > 0 {
			k := min(room, len(b))
			w.buf = append(w.buf, b[:k]...)
			b = b[k:]
			n += k
			l.change.Broadcast()
			continue
		}
		l.change.Wait()
	}
}

func (c *conn) Close() error {
	l := c.pair
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.out().writerGone {
		return net.ErrClosed
	}
	c.out().writerGone, c.in().readerGone = true, true
	c.out().writeTime.stop()
	c.in().readTime.stop()
	c.in().buf = nil
	if l.pipes[0].writerGone && l.pipes[1].writerGone {
		delete(l.n.pairs, l)
	}
	l.change.Broadcast()
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return addr(c.pair.ends[c.end]) }
func (c *conn) RemoteAddr() net.Addr { return addr(c.pair.ends[1-c.end]) }

var errDeadlineClosed = errors.New("connection is closed; it takes no deadline")

func (c *conn) setDeadline(read, write bool, t time.Time) error {
	l := c.pair
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.out().writerGone || l.broken {
		return errDeadlineClosed
	}
	if read {
		c.in().readTime.set(l, t)
	}
	if write {
		c.out().writeTime.set(l, t)
	}
	return nil
}

func (c *conn) SetDeadline(t time.Time) error      { return c.setDeadline(true, true, t) }
func (c *conn) SetReadDeadline(t time.Time) error  { return c.setDeadline(true, false, t) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(false, true, t) }

func normalize(address string) string { return strings.ToLower(strings.TrimSpace(address)) }
