package session

import (
	"context"
	"sync"
	"time"
)

// pingWindow is how long pings are gathered before the home shards are asked to renew leases.
// Keep-alives of thousands of connections then cost a barrier, and a wake-up of each loop, per
// window and not per ping, and a connection's two pongs go out in one write. The client counts from
// when it sent the ping, so that nothing is lost by it but the window.
const pingWindow = 20 * time.Millisecond

// Renewals gathers the pings of connections with sessions at home here, and the connections whose
// answers wait for what their shard answers. One goroutine ends the windows; it sleeps while there
// are none.
type Renewals struct {
	wake chan struct{}

	mu   sync.Mutex
	list []pendingPing
}

// pendingPing is the last ping of a connection in this window.
type pendingPing struct {
	conn      *Conn
	ping      uint64
	writeOnly bool // there is no ping
}

// NewRenewals makes one without pings.
func NewRenewals() *Renewals { return &Renewals{wake: make(chan struct{}, 1)} }

// Add gathers a ping. The last one of a connection proves what those before it prove.
func (r *Renewals) Add(c *Conn, ping uint64) { r.add(pendingPing{conn: c, ping: ping}) }

// AddDeferred has what waits on a connection written after two windows at the latest, whether its
// shard has answered or not.
func (r *Renewals) AddDeferred(c *Conn) { r.add(pendingPing{conn: c, writeOnly: true}) }

func (r *Renewals) add(x pendingPing) {
	r.mu.Lock()
	r.list = append(r.list, x)
	first := len(r.list) == 1
	r.mu.Unlock()
	if first {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Run asks homes at the end of each window, and then has what waited for their answers written with
// flush. It goes on until ctx ends.
func (r *Renewals) Run(ctx context.Context, flush func()) {
	t := time.NewTimer(0)
	defer t.Stop()
	var list, asked []pendingPing
	for {
		if len(asked) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-r.wake:
			}
		}
		t.Reset(pingWindow)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		r.mu.Lock()
		list, r.list = r.list, list[:0]
		r.mu.Unlock()
		for _, x := range list {
			if !x.writeOnly {
				x.conn.requestPongs(x.ping)
			}
		}
		// A ping that waits for a home since the window before has been answered by the connection
		// itself by now.
		for i, x := range asked {
			x.conn.WriteDeferred()
			asked[i] = pendingPing{}
		}
		flush()
		list, asked = asked[:0], list
	}
}

// HasHomes reports whether some session of the connection is at home here.
func (c *Conn) HasHomes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, home := range c.homes {
		if home.n > 0 {
			return true
		}
	}
	return false
}

// requestPongs asks each shard that is home to sessions of the connection for a pong. Of pings
// that arrive together only the last is checked; its proof covers the earlier ones. A shard whose
// log may not have the attach of one of them yet is asked once it has: its pong would renew that
// session too. Attaches that come later than the ping do not delay it: their answers let
// the client believe in them for longer than the ping does.
func (c *Conn) requestPongs(ping uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.homes {
		if home := &c.homes[i]; home.n > 0 {
			home.renew(c.ID(), ping)
		}
	}
}
