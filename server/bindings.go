package server

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader/idset"
)

// binding says that a connection has proved a session: by the start or attach that the session's home applied, or by a ticket. Requests on the session are
// let in from this connection under this attach epoch, and events for the session go out on it.
type binding struct {
	session uint64
	epoch   uint64
	*sharedBinding
	describedTo *[]describedShard // shards that know what the session is called; nil: none. Belongs to the goroutine that feeds conn
	next        *binding          // the session's next binding, an older one; guarded by the stripe
	removed     atomic.Bool       // taken off the tables; a pointer kept elsewhere is worthless
	unlogged    bool              // a RELAXED attach that the log may not have yet
}

// Key is the session, for the tables.
func (b *binding) Key() uint64 { return b.session }

// sharedBinding is what bindings of a connection have in common: a hundred thousand sessions of one share a handful. It is never changed.
type sharedBinding struct {
	conn        *conn
	node        uint64
	home        *shardHost // the session's home shard when it was attached here; nil when it was presented
	description string     // what the session is called, for shards that are not its home
}

// maxSharedBindings bounds the shared data that a connection remembers. Beyond it each binding has its own.
const maxSharedBindings = 8

// newBinding makes a binding of a session to this connection. It is in no table yet.
func (c *conn) newBinding(session, epoch, node uint64, home *shardHost, description string) *binding {
	return &binding{session: session, epoch: epoch, sharedBinding: c.sharedBinding(node, home, description)}
}

func (c *conn) sharedBinding(node uint64, home *shardHost, description string) *sharedBinding {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.sharedBindings {
		if k.node == node && k.home == home && k.description == description {
			return k
		}
	}
	k := &sharedBinding{c, node, home, strings.Clone(description)} // it may be part of a larger string
	if len(c.sharedBindings) < maxSharedBindings {
		c.sharedBindings = append(c.sharedBindings, k)
	}
	return k
}

const bindingStripes = 64

// bindings is who is bound to which session on this instance, for events that are addressed to sessions. It is soft state: made again by attaches and
// tickets. Nearly every session has one binding; a client that presents a session on further connections has several.
//
// Invariant: a binding that is not gone is in its connection's table and in its session's list.
type bindings struct {
	stripes [bindingStripes]struct {
		mu   sync.Mutex
		list idset.Set[*binding] // of each session the newest
	}
	ended delivery.EndedSessions
}

func newBindings() *bindings { return new(bindings) }

// replaces says whether b, which is newer in the log, takes the session from another connection: by a higher epoch, or as the same attach, or start, sent again
// from elsewhere. A ticket takes nothing from a connection of the same epoch.
func (b *binding) replaces(have *binding) bool {
	return have.epoch < b.epoch || have.epoch == b.epoch && have.home != nil && b.home != nil
}

// insert puts a binding first and takes out those that it replaces: of the same connection, and on others. It answers the latter.
func (t *bindings) insert(b *binding) (older []*binding) {
	s := &t.stripes[b.session*0x9e3779b97f4a7c15>>58]
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := b
	for have := s.list.Get(b.session); have != nil; {
		next := have.next
		have.next = nil
		switch {
		case have.conn == b.conn:
			have.removed.Store(true)
		case b.replaces(have):
			have.removed.Store(true)
			older = append(older, have)
		default:
			keep.next = have
			keep = have
		}
		have = next
	}
	s.list.Put(b)
	return older
}

// newestEpoch is the highest attach epoch that is bound here for the session, 0 for none.
func (t *bindings) newestEpoch(session uint64) (epoch uint64) {
	s := &t.stripes[session*0x9e3779b97f4a7c15>>58]
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := s.list.Get(session); b != nil; b = b.next {
		epoch = max(epoch, b.epoch)
	}
	return epoch
}

// conn is the connection for an event of the session: the one it was bound on last.
func (t *bindings) conn(session uint64) *conn {
	s := &t.stripes[session*0x9e3779b97f4a7c15>>58]
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.list.Get(session); b != nil {
		return b.conn
	}
	return nil
}

// removeAll takes all bindings of a session out.
func (t *bindings) removeAll(session uint64) (list []*binding) {
	s := &t.stripes[session*0x9e3779b97f4a7c15>>58]
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := s.list.Get(session); b != nil; b = b.next {
		b.removed.Store(true)
		list = append(list, b)
	}
	s.list.Remove(session)
	return list
}

// remove takes one binding out.
func (t *bindings) remove(b *binding) {
	s := &t.stripes[b.session*0x9e3779b97f4a7c15>>58]
	s.mu.Lock()
	defer s.mu.Unlock()
	b.removed.Store(true)
	head := s.list.Get(b.session)
	if head == b {
		if b.next == nil {
			s.list.Remove(b.session)
		} else {
			s.list.Put(b.next)
		}
		b.next = nil
		return
	}
	for p := head; p != nil; p = p.next {
		if p.next == b {
			p.next, b.next = b.next, nil
			return
		}
	}
}

// sessionSet is the bindings of one connection. Most have one, and do not pay for a table.
type sessionSet struct {
	one  *binding
	more *idset.Set[*binding] // all of them, once there were two
}

func (x *sessionSet) get(session uint64) *binding {
	if x.more != nil {
		return x.more.Get(session)
	}
	if x.one != nil && x.one.session == session {
		return x.one
	}
	return nil
}

// put adds a binding and answers the one it replaces.
func (x *sessionSet) put(b *binding) (old *binding) {
	if x.more != nil {
		return x.more.Put(b)
	}
	old = x.get(b.session)
	if x.one == nil || old != nil {
		x.one = b
		return old
	}
	x.more = new(idset.Set[*binding])
	x.more.Put(x.one)
	x.more.Put(b)
	x.one = nil
	return nil
}

func (x *sessionSet) remove(session uint64) {
	if x.more != nil {
		x.more.Remove(session)
	} else if x.one != nil && x.one.session == session {
		x.one = nil
	}
}

func (x *sessionSet) len() int {
	switch {
	case x.one != nil:
		return 1
	case x.more != nil:
		return x.more.Len()
	}
	return 0
}

func (x *sessionSet) each(visit func(b *binding)) {
	if x.one != nil {
		visit(x.one)
	}
	if x.more != nil {
		for b := range x.more.All() {
			visit(b)
		}
	}
}

// binding finds the session's binding on this connection; only the goroutine that feeds it calls this.
func (c *conn) binding(session uint64) *binding {
	if b := c.lastBinding; b != nil && b.session == session && !b.removed.Load() {
		return b
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.sessions.get(session)
	if b != nil {
		c.lastBinding = b
	}
	return b
}

// hasSession says whether the session is bound to this connection; any goroutine.
func (c *conn) hasSession(session uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions.get(session) != nil
}

// rejectUnbound answers a request on a session that is not bound to this connection: SESSION_EXPIRED if there is no such
// session, whether it ended or never was, and BAD_SESSION if there is one. The leader of the session's home knows,
// behind a barrier where its machine has not given the id out; an instance that is neither says BAD_SESSION, and the
// attach that it advises tells. The caller holds no machine.
func (c *conn) rejectUnbound(o *outbox, kind protocol.Kind, id, session uint64) {
	bad := c.unboundError(session)
	d := c.server.routing().shard(protocol.SessionTier(session), uint64(protocol.SessionBucket(session)))
	if d == nil || bad.Status == protocol.StatusSessionExpired {
		o.failError(c, kind, id, bad)
		return
	}
	switch lives, gone := d.sessionState(session); {
	case gone:
		o.failError(c, kind, id, errSessionExpired())
	case lives || !d.raft.Leading():
		o.failError(c, kind, id, bad)
	default:
		d.raft.Barrier(func(ok bool) {
			defer d.barrierOutbox.flush()
			active := false
			d.raft.View(func(m *shard.Machine) {
				_, active = m.Bucket(protocol.SessionBucket(session))
				_, lives = m.Session(session)
			})
			if ok && active && !lives {
				bad = errSessionExpired()
			}
			d.barrierOutbox.failError(c, kind, id, bad)
		})
	}
}

// sessionState says whether a session lives in its home here, or did and has ended, as far as the machine has come.
func (d *shardHost) sessionState(session uint64) (lives, ended bool) {
	d.raft.View(func(m *shard.Machine) {
		_, lives = m.Session(session)
		ended = m.SessionEnded(session)
	})
	return lives, ended
}

func errSessionExpired() *protocol.Error {
	return protocol.Errorf(protocol.StatusSessionExpired, "session is gone; start a new one")
}

// unboundError says why a session's request is refused, by what the connection remembers.
func (c *conn) unboundError(session uint64) *protocol.Error {
	c.mu.Lock()
	ended := slices.Contains(c.endedSessions, session)
	c.mu.Unlock()
	if ended {
		return errSessionExpired()
	}
	return protocol.Errorf(protocol.StatusBadSession, "session is not attached on this connection; attach it, or present its ticket")
}

// sessionEnded says that a session which is at home here has ended: its id was given out by what is in the log here, and ids are never used again.
func (s *Server) sessionEnded(session uint64) bool {
	d := s.routing().shard(protocol.SessionTier(session), uint64(protocol.SessionBucket(session)))
	if d == nil {
		return false
	}
	over := false
	d.raft.View(func(m *shard.Machine) { over = m.SessionEnded(session) })
	return over
}

// checkSessionLimit says that the connection has as many sessions as it may, this one not among them.
func (c *conn) checkSessionLimit(session uint64) *protocol.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit := c.server.cfg.Limits.MaxSessionsPerConnection; c.sessions.len() >= limit && c.sessions.get(session) == nil {
		return protocol.Errorf(protocol.StatusOverloaded, "connection has %d sessions, the limit of sessions per connection; open another connection", limit)
	}
	return nil
}

// addBinding binds b on its connection; false when the connection is closed.
func (c *conn) addBinding(b *binding, timeout uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unbindable {
		return false
	}
	if old := c.sessions.put(b); old != nil {
		c.countHome(old, -1)
	}
	c.countHome(b, 1)
	c.AllowSilence(time.Duration(timeout) * time.Millisecond)
	return true
}

func (c *conn) countHome(b *binding, n int) {
	if b.home == nil {
		return
	}
	i := slices.IndexFunc(c.homes, func(h homeSessions) bool { return h.shard == b.home })
	if i < 0 {
		i = len(c.homes)
		c.homes = append(c.homes, homeSessions{shard: b.home})
	}
	c.homes[i].n += n
	if b.unlogged {
		c.homes[i].unlogged += n
	}
}

// attachLogged notes that the log has the attach of a binding that was made ahead of it.
func (c *conn) attachLogged(b *binding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions.get(b.session) != b {
		b.unlogged = false
		return
	}
	c.countHome(b, -1)
	b.unlogged = false
	c.countHome(b, 1)
}

// homeBindings are the bindings of this connection to sessions at home in a run of buckets of a shard here, in order of id.
func (c *conn) homeBindings(d *shardHost, first, count uint32) (list []*binding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.ContainsFunc(c.homes, func(h homeSessions) bool { return h.shard == d && h.n > 0 }) {
		return nil
	}
	c.sessions.each(func(b *binding) {
		if n := protocol.SessionBucket(b.session); b.home == d && n >= first && n-first < count {
			list = append(list, b)
		}
	})
	slices.SortFunc(list, func(a, b *binding) int { return cmp.Compare(a.session, b.session) })
	return list
}

// unbind forgets a binding that is out of the session's list already, and its one-shot watches, which fire with neither flag while the session lives: nothing is told to
// a session any more where it is lost. With ended, late requests on the session are told that it is gone.
func (c *conn) unbind(b *binding, ended bool) {
	for _, d := range c.removeBinding(b, ended) {
		if ended {
			d.delivery.Semaphores.SessionEnded(b.session)
		} else {
			d.delivery.Semaphores.SessionUnbound(c.ID(), b.session, true)
		}
	}
}

func (c *conn) removeBinding(b *binding, ended bool) (watching []*shardHost) {
	const remembered = 64
	c.mu.Lock()
	defer c.mu.Unlock()
	if ended {
		if len(c.endedSessions) >= remembered {
			c.endedSessions = append(c.endedSessions[:0], c.endedSessions[1:]...)
		}
		c.endedSessions = append(c.endedSessions, b.session)
	}
	if c.sessions.get(b.session) == b {
		c.sessions.remove(b.session)
		c.countHome(b, -1)
	}
	return slices.Clone(c.watchedShards)
}

// sessionAttached is told by the home's log that a session was attached: through a connection of this instance, or, with a nil conn, through another instance or
// one that is closed; the shard's leader knows the latter by itself. Connections that had the session under an older epoch lose it and are told.
func (d *shardHost) sessionAttached(o *outbox, c *conn, e *shard.Event) {
	var older []*binding
	if c != nil {
		b := c.newBinding(e.Session, e.Epoch, e.Node, d, e.Text)
		if c.addBinding(b, e.Timeout) {
			older = d.server.bindings.insert(b)
			d.server.dropIfClosed(b)
		} else {
			c = nil
		}
	}
	if c == nil {
		older = d.server.bindings.removeOlder(&binding{session: e.Session, epoch: e.Epoch, sharedBinding: &sharedBinding{home: d}})
	}
	d.server.notifyTakenOver(o, older, e.Epoch)
}

// notifyTakenOver tells connections that a session of theirs was attached elsewhere. The bindings are off the tables already.
func (s *Server) notifyTakenOver(o *outbox, older []*binding, epoch uint64) {
	for _, b := range older {
		b.conn.unbind(b, false)
		o.event(b.conn, protocol.KindTakenOver, 0, 0, &protocol.TakenOver{Session: b.session, Epoch: epoch})
	}
}

// dropIfClosed undoes a binding whose connection closed between the two tables.
func (s *Server) dropIfClosed(b *binding) {
	b.conn.mu.Lock()
	gone := b.conn.unbindable
	b.conn.mu.Unlock()
	if gone {
		s.bindings.remove(b)
	}
}

// removeOlder takes out the session's bindings that one elsewhere replaces.
func (t *bindings) removeOlder(elsewhere *binding) (older []*binding) {
	session := elsewhere.session
	s := &t.stripes[session*0x9e3779b97f4a7c15>>58]
	s.mu.Lock()
	defer s.mu.Unlock()
	var first, lastKept *binding
	for b := s.list.Get(session); b != nil; {
		next := b.next
		b.next = nil
		if elsewhere.replaces(b) {
			b.removed.Store(true)
			older = append(older, b)
		} else {
			if lastKept == nil {
				first = b
			} else {
				lastKept.next = b
			}
			lastKept = b
		}
		b = next
	}
	if first == nil {
		s.list.Remove(session)
	} else {
		s.list.Put(first)
	}
	return older
}
