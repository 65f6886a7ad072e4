package delivery

import (
	"github.com/signalbox-dev/signalbox/protocol"
)

type oneShot struct {
	key     oneShotKey
	conn    *watchConn    // where it was armed and will fire
	session *watchSession // or nil
	id      uint64
	flags   uint8
	links   [3]listLinks
}

type watchSession struct{ oneShots oneShotList }

// oneShotKey is unique per session and semaphore, or per connection and semaphore without a
// session.
type oneShotKey struct {
	owner  uint64 // session, or connection
	byConn bool
	name   *watchedName
}

// listLinks links a one-shot into one of three lists, in the order of arming: those of its name,
// its connection and its session.
type listLinks struct{ prev, next *oneShot }

const (
	byName = iota
	byConn
	bySession
)

type oneShotList struct{ head, tail *oneShot }

func (l *oneShotList) push(which int, s *oneShot) {
	s.links[which] = listLinks{prev: l.tail}
	if l.tail == nil {
		l.head = s
	} else {
		l.tail.links[which].next = s
	}
	l.tail = s
}

func (l *oneShotList) drop(which int, s *oneShot) {
	at := s.links[which]
	if at.prev == nil {
		l.head = at.next
	} else {
		at.prev.links[which].next = at.next
	}
	if at.next == nil {
		l.tail = at.prev
	} else {
		at.next.links[which].prev = at.prev
	}
	s.links[which] = listLinks{}
}

// firing is a one-shot that fires, and its flags.
type firing struct {
	shot  *oneShot
	flags uint8
}

// OneShot arms a one-shot watch that fires on this connection. It is called inside the
// Shard.Exclusive in which the description was read, with session 0 for none. flags are
// protocol.WatchData and protocol.WatchOwners; without either nothing happens. An older watch of
// the same session (or connection) on the name fires with neither flag. maxWatchers is how many
// watchers the coordination node may have here. OVERLOADED if a limit is reached; the older watch
// then stays.
func (h *WatchHub) OneShot(
	connID, sessionID, nodeID uint64, key []byte, flags uint8, watchID, maxWatchers uint64,
) error {
	flags &= protocol.WatchData | protocol.WatchOwners
	if flags == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return errClosed
	}
	w := h.nodeOrNew(nodeID).nameOrNew(key)
	k := oneShotKey{owner: sessionID, name: w}
	if sessionID == 0 {
		k.owner, k.byConn = connID, true
	}
	old, c := h.oneShots[k], h.conns[connID]
	if limit := h.opt.Limits.OneShots; c != nil && c.count >= limit && (old == nil || old.conn != c) {
		h.removeNameIfUnused(w)
		return protocol.Errorf(protocol.StatusOverloaded,
			"one-shot watches per connection are limited to %d; open a stream over a prefix instead", limit)
	}
	if old == nil && w.count+len(w.exact.streams) >= h.opt.Limits.Watchers {
		return h.tooManyWatchers()
	}
	if old != nil {
		h.opt.Quota.replace(nodeID)
	} else if err := h.opt.Quota.Reserve(nodeID, maxWatchers); err != nil {
		h.removeNameIfUnused(w)
		return err
	}
	s := &oneShot{key: k, conn: h.connOrNew(connID), id: watchID, flags: flags}
	h.oneShots[k] = s
	w.oneShots.push(byName, s)
	w.count++
	s.conn.oneShots.push(byConn, s)
	s.conn.count++
	if sessionID != 0 {
		owner := h.sessions[sessionID]
		if owner == nil {
			owner = new(watchSession)
			h.sessions[sessionID] = owner
		}
		s.session = owner
		owner.oneShots.push(bySession, s)
	}
	h.active.Add(1)
	if old != nil {
		h.firing = append(h.firing, firing{shot: old})
		h.fire()
	}
	return nil
}

// watchFlags returns the flags of one-shot watches that a change concerns. A deletion sets both
// flags. A creation can only follow a deletion. Changes of waiters and limits set neither.
func watchFlags(k protocol.SemaphoreChangeKind) uint8 {
	switch k {
	case protocol.ChangeData:
		return protocol.WatchData
	case protocol.ChangeOwnerAdded, protocol.ChangeOwnerChanged, protocol.ChangeOwnerRemoved:
		return protocol.WatchOwners
	case protocol.ChangeCreated, protocol.ChangeDeleted:
		return protocol.WatchData | protocol.WatchOwners
	}
	return 0
}

// fireChanged fires the one-shots on the names that changed in this call, if something subscribed
// changed. Each reports all that changed.
func (h *WatchHub) fireChanged() {
	if len(h.changedNames) == 0 {
		return
	}
	for _, w := range h.changedNames {
		for s := w.oneShots.head; s != nil; s = s.links[byName].next {
			if s.flags&w.flags != 0 {
				h.firing = append(h.firing, firing{s, w.flags})
			}
		}
		w.flags = 0
	}
	clear(h.changedNames)
	h.changedNames = h.changedNames[:0]
	h.fire()
}

// fire sends the events of the watches in h.firing and disarms them.
func (h *WatchHub) fire() {
	h.frames.reset()
	for _, f := range h.firing {
		h.fired = protocol.WatchFired{
			WatchID:       f.shot.id,
			DataChanged:   f.flags&protocol.WatchData != 0,
			OwnersChanged: f.flags&protocol.WatchOwners != 0,
		}
		if !f.shot.key.byConn {
			h.fired.Session = f.shot.key.owner
		}
		h.frames.add(protocol.KindWatchFired, 0, h.shard, &h.fired)
	}
	h.frames.seal()
	for i, f := range h.firing {
		if f.flags == 0 {
			h.stats.Invalidated++
		} else {
			h.stats.Fired++
		}
		h.disarm(f.shot)
		h.removeConnIfUnused(f.shot.conn)
		h.slices = h.frames.slices(i, i+1, h.slices[:0])
		h.send.Send(f.shot.conn.id, h.slices[0], false)
	}
	clear(h.slices)
	clear(h.firing)
	h.firing = h.firing[:0]
	h.frames.reset()
}

// disarm removes a one-shot from all tables but h.conns.
func (h *WatchHub) disarm(s *oneShot) {
	if h.oneShots[s.key] == s { // else a newer one took its place
		delete(h.oneShots, s.key)
	}
	w := s.key.name
	w.oneShots.drop(byName, s)
	w.count--
	s.conn.oneShots.drop(byConn, s)
	s.conn.count--
	if s.session != nil {
		s.session.oneShots.drop(bySession, s)
		if s.session.oneShots.head == nil {
			delete(h.sessions, s.key.owner)
		}
	}
	h.active.Add(-1)
	h.opt.Quota.Release(w.node.id)
	h.removeNameIfUnused(w)
}
