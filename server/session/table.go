package session

import (
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

const stripes = 64

// Table is the bindings of all connections of this instance, for events that are addressed to
// sessions. It is soft state: made again by attaches and tickets. Nearly every session has one
// binding; a client that presents a session on further connections has several.
//
// Invariant: a binding that is not gone is in its connection's table and in its session's list.
type Table struct {
	stripes [stripes]stripe
	ended   endedSessions
}

type stripe struct {
	mu   sync.Mutex
	list container.IDSet[Binding, *Binding] // of each session the newest
}

func (t *Table) stripe(session uint64) *stripe { return &t.stripes[session*0x9e3779b97f4a7c15>>58] }

// Len is how many sessions are bound.
func (t *Table) Len() (n int) {
	for i := range t.stripes {
		s := &t.stripes[i]
		s.mu.Lock()
		n += s.list.Len()
		s.mu.Unlock()
	}
	return n
}

// Elsewhere notes that a session was attached through another instance, or a connection that is
// closed: connections that have it under an older epoch lose it.
func (t *Table) Elsewhere(session, epoch uint64, home Home) {
	notifyTakenOver(t.removeOlder(&Binding{Session: session, Epoch: epoch, shared: &shared{home: home}}), epoch)
}

// notifyTakenOver tells connections that a session of theirs was attached elsewhere. The bindings
// are off the table already.
func notifyTakenOver(older []*Binding, epoch uint64) {
	for _, b := range older {
		b.Conn.forget(b, false)
		b.Conn.Append(protocol.KindTakenOver, 0, 0, &protocol.TakenOver{Session: b.Session, Epoch: epoch})
	}
}

// End takes all bindings of a session out, for it has ended for this reason. It answers them: their
// connections are to be notified.
func (t *Table) End(session uint64, reason string, now time.Duration) []*Binding {
	// Before the bindings go: a result that another shard has meanwhile finds the one or the other.
	if c := t.Conn(session); c != nil {
		t.ended.add(session, sessionEnd{c.ID(), reason}, now)
	}
	list := t.removeAll(session)
	for _, b := range list {
		b.Conn.forget(b, true)
	}
	return list
}

// Ended is the id of the connection that a session had when it ended, 0 if that is not known any
// more, and the reason of its end.
func (t *Table) Ended(session uint64) (conn uint64, reason string) {
	end := t.ended.end(session)
	return end.conn, end.reason
}

// insert puts a binding before those of its epoch and takes out those that it replaces: of the same
// connection, and on others. It answers the latter. A newer epoch stays first: a ticket may have
// been checked just before the attach was applied. On the same connection it stays alone.
func (t *Table) insert(b *Binding) (older []*Binding) {
	s := t.stripe(b.Session)
	s.mu.Lock()
	defer s.mu.Unlock()
	for have := s.list.Get(b.Session); have != nil; have = have.next {
		if have.Conn == b.Conn && have.outlasts(b) {
			b.removed.Store(true)
			return nil
		}
	}
	var list Binding
	newer, keep := &list, b // the last of those before b, and of those from b on
	for have := s.list.Get(b.Session); have != nil; {
		next := have.next
		have.next = nil
		switch {
		case have.Conn == b.Conn:
			have.removed.Store(true)
		case b.replaces(have):
			have.removed.Store(true)
			older = append(older, have)
		case have.Epoch > b.Epoch:
			newer.next, newer = have, have
		default:
			keep.next, keep = have, have
		}
		have = next
	}
	newer.next = b
	s.list.Put(list.next)
	return older
}

// NewestEpoch is the highest attach epoch that is bound here for the session, 0 for none.
func (t *Table) NewestEpoch(session uint64) (epoch uint64) {
	s := t.stripe(session)
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := s.list.Get(session); b != nil; b = b.next {
		epoch = max(epoch, b.Epoch)
	}
	return epoch
}

// Conn is the connection for an event of the session: the one it was bound on last. Nil: none.
func (t *Table) Conn(session uint64) *Conn {
	s := t.stripe(session)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.list.Get(session); b != nil {
		return b.Conn
	}
	return nil
}

func (t *Table) removeAll(session uint64) (list []*Binding) {
	s := t.stripe(session)
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := s.list.Get(session); b != nil; b = b.next {
		b.removed.Store(true)
		list = append(list, b)
	}
	s.list.Remove(session)
	return list
}

func (t *Table) remove(b *Binding) {
	s := t.stripe(b.Session)
	s.mu.Lock()
	defer s.mu.Unlock()
	b.removed.Store(true)
	head := s.list.Get(b.Session)
	if head == b {
		if b.next == nil {
			s.list.Remove(b.Session)
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

// removeOlder takes out the session's bindings that one elsewhere replaces.
func (t *Table) removeOlder(elsewhere *Binding) (older []*Binding) {
	session := elsewhere.Session
	s := t.stripe(session)
	s.mu.Lock()
	defer s.mu.Unlock()
	var first, lastKept *Binding
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
