package admin

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// MaxConnections is how many connections a bounded listener lets live at a time.
const MaxConnections = 128

// full is what one connection too many is answered.
const full = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 38\r\nConnection: close\r\n\r\ntoo many connections; close some first"

// Bounded is a listener that lets at most n connections live at a time. One more is told so, with the status 503, and closed: whoever fills the places, with
// slow requests or with profiles, takes no descriptors from clients.
func Bounded(l net.Listener, n int) net.Listener { return &bounded{Listener: l, most: int64(n)} }

type bounded struct {
	net.Listener
	most int64
	open atomic.Int64
}

// Accept gives the next connection that there is a place for.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.open.Add(1) <= b.most {
			return &placed{Conn: c, leave: sync.OnceFunc(func() { b.open.Add(-1) })}, nil
		}
		b.open.Add(-1)
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // the buffer of a new connection takes it at once
		_, _ = c.Write([]byte(full))
		_ = c.Close()
	}
}

// placed gives its place back when it is closed.
type placed struct {
	net.Conn
	leave func()
}

func (p *placed) Close() error {
	defer p.leave()
	return p.Conn.Close()
}
