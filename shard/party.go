package shard

import "github.com/signalbox-dev/signalbox/protocol"

// party is a session as this shard's semaphores see it: one at home here, or a guest. It carries what both have: the attach epoch that requests must come
// under, the memory of requests, and the entries it holds and waits with.
//
// Invariant: entry e is in its party's held if and only if it is in its semaphore's owners or waiters.
// Invariant: a gone party is in Machine.parties exactly while it is in Machine.dying or stranded. The last of its entries may go before it does, when a
// queue ends its waiter.
type party struct {
	id    uint64
	node  *node
	epoch uint64 // attach epoch; for a guest the highest seen
	low   uint64 // lowest request number whose answer the client may still lack; never goes back

	answers answers
	held    treap // by name
	desc    string
	timer   timer // of an idle guest

	more *belongings // nil for most
	home *session    // nil for a guest, unless its home copy is here and not active
	used uint64      // a guest's last use, log time
	mark uint32
	gone bool

	// detached is the home's last word about a remote session under this epoch. It is not used
	// while the home is active here.
	detached bool

	weighed uint32 // answers that its node's bytes count
}

// things is how many things in this shard the party is part of: a guest's record stays while there is one, its home is asked about it, and a gone party is kept
// until the last of them is looked after. Whoever adds the first, or removes the last, of a session that is not at home here tells the leader: becameHeld,
// becameIdle.
func (p *party) things() int { return p.held.n + len(p.places()) + len(p.tracks()) }

func (p *party) busy() bool { return p.things() > 0 }

func partyLess(a, b *party) bool { return a.id < b.id }

func (p *party) clock() *timer { return &p.timer }

func (p *party) deadline() (deadlineKind, uint64, uint32) { return deadlineGuest, p.id, 0 }

// alive says whether a session counts as there: it has not ended and, at home, is not overdue.
func (m *Machine) alive(p *party) bool {
	if p.gone || p.node.dropped {
		return false
	}
	return !m.atHome(p) || !m.overdue(p.home)
}

// atHome says whether a party's home is active here. A session whose home copy is here and not active is a guest like those of other shards.
func (m *Machine) atHome(p *party) bool {
	return p.home != nil && m.bucketOf(p.home).state == bucketActive
}

// detached says whether a session is detached or gone, so that another session may take its
// instance's id. An active home here decides by its own record, any other shard by the home's last
// word.
func (m *Machine) detached(p *party) bool {
	if !m.alive(p) {
		return true
	}
	if m.atHome(p) {
		attached, _ := m.attached(p.home)
		return !attached
	}
	return p.detached
}

// SessionView is a home session as the leader and the door see it.
type SessionView struct {
	Session     uint64
	Node        uint64
	Epoch       uint64 // attach epoch
	Nonce       uint64 // of the holder
	Key         [protocol.KeyLen]byte
	Timeout     uint64 // ms
	Grace       uint64 // ms, the node's
	Description string
	Client      string // address
	Attached    bool
	Deadline    uint64 // when detached: the last log time at which it exists
	CreatedAt   uint64 // wall clock, ms since 1970
	Held        int    // entries in this shard
}

// SessionEnded says that there was a session of this id, at home in a bucket that is active here, and is no more. Of an id that was not given out as far as this machine
// has come it says nothing.
func (m *Machine) SessionEnded(id uint64) bool {
	b := m.homeBucket(id)
	if b == nil || id <= protocol.MakeSessionID(m.tier, uint16(protocol.SessionBucket(id)), 0) || id > protocol.MakeSessionID(m.tier, uint16(protocol.SessionBucket(id)), b.sessions) {
		return false
	}
	_, there := m.Session(id)
	return !there
}

// Session looks a session up in its home bucket, which must be active here. One that has ended or is overdue is not found.
func (m *Machine) Session(id uint64) (SessionView, bool) {
	p := m.parties[id]
	if p == nil || p.home == nil || !m.alive(p) || m.homeBucket(id) == nil {
		return SessionView{}, false
	}
	s := p.home
	attached, deadline := m.attached(s)
	if !attached {
		deadline = m.bucketOf(s).logAt(deadline)
	}
	return SessionView{
		Session: id, Node: p.node.id, Epoch: p.epoch, Nonce: s.nonce, Key: s.key, Timeout: uint64(s.timeout), Grace: p.node.config.GracePeriod,
		Description: p.desc, Client: s.client, Attached: attached, Deadline: deadline, CreatedAt: s.created, Held: p.held.n,
	}, true
}

// GuestView is what this shard knows of a session at home elsewhere.
type GuestView struct {
	Session     uint64
	Node        uint64
	Epoch       uint64 // highest attach epoch seen
	Description string
	Held        int // entries it owns and waits with
	Tracks      int // tracks it has instances of
	Detached    bool
}

// Guest looks up a guest. A guest that is gone is not found.
func (m *Machine) Guest(id uint64) (GuestView, bool) {
	p := m.parties[id]
	if p == nil || m.atHome(p) || !m.alive(p) {
		return GuestView{}, false
	}
	return GuestView{Session: id, Node: p.node.id, Epoch: p.epoch, Description: p.desc, Held: p.held.n, Tracks: len(p.tracks()), Detached: p.detached}, true
}
