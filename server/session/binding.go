// Package session knows which session is bound to which connection of this instance. A connection
// can use a session only once it has proved that the session is its own: by a start or an attach
// that the session's home shard applied, by a relaxed attach, or by a signed ticket. Each proof
// makes a binding.
//
// It also signs tickets, asks homes to renew leases, and remembers which shards know the
// description of a session.
package session

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// Home is a shard that is home to sessions, as this instance hosts it.
type Home interface {
	ID() uint64
	// RenewLeases renews the leases of a connection's sessions with a pong for this ping, if it
	// still leads.
	RenewLeases(conn, ping uint64)
	// RenewLeasesAfterStep is RenewLeases behind the step of the log that is under way: it drops a
	// ping of a connection of which no session is known, and an attach is known at the step's end.
	RenewLeasesAfterStep(conn, ping uint64)
	// ConnClosed reports that a connection with sessions of this home is closed, when it was last
	// heard, and who closed it.
	ConnClosed(conn uint64, heard time.Duration, link protocol.Link)
}

// Watches are the watches and streams of a hosted shard.
type Watches interface {
	ConnClosed(conn uint64)
	SessionEnded(session uint64)
	// SessionUnbound takes the session's one-shot watches off a connection, and notifies it.
	SessionUnbound(conn, session uint64, notify bool)
}

// Binding is a connection's proof of a session. Requests on the session are let in from this
// connection under this attach epoch, and events for the session go out on it.
type Binding struct {
	Session uint64
	Epoch   uint64
	*shared

	// shards that know what the session is called; nil: none. Owned by the reading goroutine of the
	// connection
	described *describedShards
	next      *Binding    // the session's next binding, an older one; guarded by the stripe
	removed   atomic.Bool // taken off the tables; a pointer kept elsewhere is worthless
	Unlogged  bool        // a relaxed attach that the log may not have yet
	group     uint8       // of homeSessions.unlogged, while that counts it
}

// ByTicket reports whether the session's home was not here when it was bound.
func (b *Binding) ByTicket() bool { return b.home == nil }

// Key is the session, for the tables.
func (b *Binding) Key() uint64 { return b.Session }

// shared is what bindings of a connection have in common: a hundred thousand sessions of one share
// a handful. It is never changed.
type shared struct {
	Conn        *Conn
	Node        uint64
	home        Home   // the session's home shard when it was attached here; nil when it was presented
	description string // what the session is called, for shards that are not its home
}

// maxShared bounds the shared data that a connection remembers. Beyond it each binding has its own.
const maxShared = 8

// NewBinding makes a binding of a session to this connection. It is in no table yet. The home is
// that of an attach; nil is for a ticket.
func (c *Conn) NewBinding(session, epoch, node uint64, home Home, description string) *Binding {
	return &Binding{Session: session, Epoch: epoch, shared: c.sharedFor(node, home, description)}
}

func (c *Conn) sharedFor(node uint64, home Home, description string) *shared {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.shared {
		if k.Node == node && k.home == home && k.description == description {
			return k
		}
	}
	k := &shared{c, node, home, strings.Clone(description)} // it may be part of a larger string
	if len(c.shared) < maxShared {
		c.shared = append(c.shared, k)
	}
	return k
}

// replaces reports whether b, which is newer in the log, takes the session from another connection:
// by a higher epoch, or as the same attach, or start, sent again from elsewhere. A ticket takes
// nothing from a connection of the same epoch.
func (b *Binding) replaces(have *Binding) bool {
	return have.Epoch < b.Epoch || have.Epoch == b.Epoch && have.home != nil && b.home != nil
}

// outlasts reports whether b stays when another of its connection comes later: one of an older
// epoch, or a ticket of the same epoch. Tickets are checked while attaches are applied.
func (b *Binding) outlasts(late *Binding) bool {
	return b.Epoch > late.Epoch || b.Epoch == late.Epoch && late.home == nil
}

// bindingSet is the bindings of one connection. Most have one, and do not pay for a table.
type bindingSet struct {
	one  *Binding
	more *container.IDSet[Binding, *Binding] // all of them, once there were two
}

func (s *bindingSet) get(session uint64) *Binding {
	if s.more != nil {
		return s.more.Get(session)
	}
	if s.one != nil && s.one.Session == session {
		return s.one
	}
	return nil
}

// put adds a binding and answers the one it replaces.
func (s *bindingSet) put(b *Binding) (old *Binding) {
	if s.more != nil {
		return s.more.Put(b)
	}
	old = s.get(b.Session)
	if s.one == nil || old != nil {
		s.one = b
		return old
	}
	s.more = new(container.IDSet[Binding, *Binding])
	s.more.Put(s.one)
	s.more.Put(b)
	s.one = nil
	return nil
}

func (s *bindingSet) remove(session uint64) {
	if s.more != nil {
		s.more.Remove(session)
	} else if s.one != nil && s.one.Session == session {
		s.one = nil
	}
}

func (s *bindingSet) len() int {
	switch {
	case s.one != nil:
		return 1
	case s.more != nil:
		return s.more.Len()
	}
	return 0
}

func (s *bindingSet) each(visit func(b *Binding)) {
	if s.one != nil {
		visit(s.one)
	}
	if s.more != nil {
		for b := range s.more.All() {
			visit(b)
		}
	}
}
