package session

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/transport"
)

// Conn is the sessions of one connection.
//
// Lock order: mu, or a stripe of the table, then a lock of transport. A Home is called with mu held
// when a connection ends, when leases are renewed and when the last relaxed attach that a ping
// waits for is logged or taken off, so it must not come back; Watches are called without mu.
type Conn struct {
	*transport.Conn
	Table *Table

	// last is the binding of the last request: most clients have one session. The reading goroutine
	// sets it under mu, and what removes a binding takes it out under mu, since it keeps a home in
	// memory.
	last atomic.Pointer[Binding]

	mu       sync.Mutex
	closed   bool // nothing may be bound any more
	bindings bindingSet
	shared   []*shared // of its bindings
	homes    []homeSessions
	ended    []uint64  // the last sessions that ended while bound, for a truthful answer to late requests
	watches  []Watches // that know this connection
}

// homeSessions counts the sessions of a connection at home in a shard.
type homeSessions struct {
	home Home
	n    int

	// Of n: relaxed attaches that the log may not have yet. New ones count in the current group;
	// the other group has those that the ping waits for. They need not be logged in order.
	unlogged [2]int
	current  uint8
	// The first ping that came while some were unlogged, and the last one since, which is asked for
	// next: if newer pings took its place, none might ever be asked for. 0: none.
	waiting, last uint64
}

// renew asks the home for a pong once the log has the relaxed attaches that were made before the
// ping. The connection's mutex is held.
func (h *homeSessions) renew(conn, ping uint64) {
	switch {
	case h.unlogged == [2]int{}:
		h.home.RenewLeases(conn, ping)
	case h.waiting == 0:
		h.waiting, h.current = ping, 1-h.current
	default:
		h.last = ping
	}
}

// renewWaiting asks for the ping that waits, if it need not wait any more.
func (h *homeSessions) renewWaiting(conn uint64) {
	if h.waiting == 0 || h.unlogged[1-h.current] > 0 {
		return
	}
	ask, next := h.waiting, h.last
	h.waiting, h.last = 0, 0
	if next != 0 && h.unlogged == [2]int{} {
		ask, next = next, 0
	}
	h.home.RenewLeasesAfterStep(conn, ask)
	if next != 0 {
		h.renew(conn, next)
	}
}

// maxEndedHere is how many sessions that ended a connection remembers.
const maxEndedHere = 64

// Binding finds the session's binding on this connection; nil: there is none. The reading goroutine
// calls it.
func (c *Conn) Binding(session uint64) *Binding {
	if b := c.last.Load(); b != nil && b.Session == session && !b.removed.Load() {
		return b
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.bindings.get(session)
	if b != nil {
		c.last.Store(b)
	}
	return b
}

// HasSessions reports whether there are sessions on this connection.
func (c *Conn) HasSessions() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bindings.len() > 0
}

// Has reports whether the session is bound to this connection.
func (c *Conn) Has(session uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bindings.get(session) != nil
}

// CheckLimit returns an error if the connection has as many sessions as it may, this one not among
// them.
func (c *Conn) CheckLimit(session uint64, limit int) *protocol.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bindings.len() >= limit && c.bindings.get(session) == nil {
		return protocol.Errorf(protocol.StatusOverloaded,
			"connection has %d sessions, the limit of sessions per connection; open another connection", limit)
	}
	return nil
}

// ErrExpired: a session has ended.
func ErrExpired() *protocol.Error {
	return protocol.Errorf(protocol.StatusSessionExpired, "session is gone; start a new one")
}

// UnboundError says why a session's request is refused, by what the connection remembers.
func (c *Conn) UnboundError(session uint64) *protocol.Error {
	c.mu.Lock()
	ended := slices.Contains(c.ended, session)
	c.mu.Unlock()
	if ended {
		return ErrExpired()
	}
	return protocol.Errorf(protocol.StatusBadSession,
		"session is not attached on this connection; attach it, or present its ticket")
}

// Bind binds a session to its connection, which may be silent for the session's timeout from here
// on. Connections that had it under an older epoch lose it, and are notified. A binding that comes
// late changes nothing. False: the connection is closed.
func (b *Binding) Bind(timeout time.Duration) bool {
	c := b.Conn
	if added, closed := c.add(b); !added {
		return !closed
	}
	c.AllowSilence(timeout)
	older := c.Table.insert(b)
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed { // between the two tables
		c.Table.remove(b)
	}
	notifyTakenOver(older, b.Epoch)
	return true
}

func (c *Conn) add(b *Binding) (added, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, true
	}
	if have := c.bindings.get(b.Session); have != nil && have.outlasts(b) {
		return false, false
	}
	old := c.bindings.put(b)
	c.countHome(b, 1)
	if old != nil {
		if old.Unlogged && b.Unlogged && old.home == b.home {
			old.group, b.group = b.group, old.group // a ping that waits for the former waits for this one
		}
		c.countHome(old, -1)
		c.last.CompareAndSwap(old, nil)
	}
	return true, false
}

func (c *Conn) countHome(b *Binding, n int) {
	if b.home == nil {
		return
	}
	i := slices.IndexFunc(c.homes, func(h homeSessions) bool { return h.home == b.home })
	if i < 0 {
		i = len(c.homes)
		c.homes = append(c.homes, homeSessions{home: b.home})
	}
	h := &c.homes[i]
	h.n += n
	if !b.Unlogged {
		return
	}
	if n > 0 {
		b.group = h.current
	}
	if h.unlogged[b.group] += n; n < 0 {
		h.renewWaiting(c.ID())
	}
}

// Logged notes that the log has the attach of a binding that was made ahead of it.
func (b *Binding) Logged() {
	c := b.Conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bindings.get(b.Session) != b {
		b.Unlogged = false
		return
	}
	c.countHome(b, -1)
	b.Unlogged = false
	c.countHome(b, 1)
}

// Unbind takes a session off the connection. With ended, late requests on it are told that it is
// gone.
func (c *Conn) Unbind(session uint64, ended bool) {
	c.mu.Lock()
	b := c.bindings.get(session)
	c.mu.Unlock()
	if b != nil {
		b.Unbind(ended)
	}
}

// Unbind takes this binding off its connection, as [Conn.Unbind] does, and no other one.
func (b *Binding) Unbind(ended bool) {
	b.Conn.Table.remove(b)
	b.Conn.forget(b, ended)
}

// Detach takes the sessions at home in a run of buckets of a shard off the connection, and notifies
// it of each, in order of id.
func (c *Conn) Detach(home Home, first, count uint32) {
	for _, b := range c.homeBindings(home, first, count) {
		c.Table.remove(b)
		c.forget(b, false)
		c.Append(protocol.KindDetached, 0, home.ID(), &protocol.Detached{Session: b.Session, Epoch: b.Epoch})
	}
}

func (c *Conn) homeBindings(home Home, first, count uint32) (list []*Binding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hasHome(home) {
		return nil
	}
	c.bindings.each(func(b *Binding) {
		if n := protocol.SessionBucket(b.Session); b.home == home && n >= first && n-first < count {
			list = append(list, b)
		}
	})
	slices.SortFunc(list, func(a, b *Binding) int { return cmp.Compare(a.Session, b.Session) })
	return list
}

// forget forgets a binding that is out of the session's list already, and its one-shot watches,
// which fire with neither flag while the session lives: nothing is told to a session any more where
// it is lost.
func (c *Conn) forget(b *Binding, ended bool) {
	for _, w := range c.removeBinding(b, ended) {
		if ended {
			w.SessionEnded(b.Session)
		} else {
			w.SessionUnbound(c.ID(), b.Session, true)
		}
	}
}

func (c *Conn) removeBinding(b *Binding, ended bool) []Watches {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ended {
		if len(c.ended) >= maxEndedHere {
			c.ended = append(c.ended[:0], c.ended[1:]...)
		}
		c.ended = append(c.ended, b.Session)
	}
	if c.bindings.get(b.Session) == b {
		c.bindings.remove(b.Session)
		c.countHome(b, -1)
	}
	c.last.CompareAndSwap(b, nil)
	return slices.Clone(c.watches)
}

// HasHome reports whether some session of the connection is at home in this shard.
func (c *Conn) HasHome(home Home) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hasHome(home)
}

func (c *Conn) hasHome(home Home) bool {
	return slices.ContainsFunc(c.homes, func(h homeSessions) bool { return h.home == home && h.n > 0 })
}

// Watch notes that a shard's watches know the connection, so that they hear of its end and of its
// sessions. False: it is closed already.
func (c *Conn) Watch(w Watches) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if !slices.Contains(c.watches, w) {
		c.watches = append(c.watches, w)
	}
	return true
}

// Forget drops what the connection keeps of a shard that does not run here any more, and at which
// none of its sessions is at home: it would keep the shard's whole state.
func (c *Conn) Forget(home Home, w Watches) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.homes = slices.DeleteFunc(c.homes, func(h homeSessions) bool { return h.home == home && h.n == 0 })
	c.watches = slices.DeleteFunc(c.watches, func(known Watches) bool { return known == w })
	c.shared = slices.DeleteFunc(c.shared, func(k *shared) bool { return k.home == home })
}

// Closed forgets all sessions of the connection, which is closed. Their homes learn when it was
// last heard.
func (c *Conn) Closed(heard time.Duration) {
	c.mu.Lock()
	c.closed = true
	bindings, homes, watches := c.bindings, c.homes, c.watches
	c.bindings, c.homes, c.watches = bindingSet{}, nil, nil
	c.last.Store(nil)
	// Told under the lock: an attach that is applied now either was bound before, or finds the
	// connection gone and tells the home itself.
	for _, h := range homes {
		h.home.ConnClosed(c.ID(), heard, c.ClosedBy())
	}
	c.mu.Unlock()
	bindings.each(c.Table.remove)
	for _, w := range watches {
		w.ConnClosed(c.ID())
	}
}
