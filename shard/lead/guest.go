package lead

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// guest is a session that holds or waits for something here and is at home elsewhere.
//
// Invariant: it is in exactly one list: its link's ask, asked or sure, the leader's young, retry or gone; or, in none, its release is proposed. It is in sure
// only if the home's leader answered, to a question about this very record, that it had registered this leadership's subscription under the bucket
// epoch named here.
type guest struct {
	session     uint64
	link        *link // nil while in young, retry or gone
	bucketEpoch uint64
	known       uint64 // attach epoch whose description this shard has, or is to log; 0 if unknown
	question    uint64 // the one it is asked with, 0 is none
	at          uint64 // when it was confirmed, or is to be placed
	note        uint64 // of the proposed release
	gone        bool
	detached    bool                    // likewise
	seen        *shard.RemoteUpdateBody // in Leader.seenQ, not proposed yet

	list       *guestList
	prev, next *guest
}

// guestList is a queue of guests in a fixed order.
type guestList struct {
	first, last *guest
	n           int
}

func (q *guestList) push(g *guest) {
	g.list, g.prev, g.next = q, q.last, nil
	if q.last != nil {
		q.last.next = g
	} else {
		q.first = g
	}
	q.last = g
	q.n++
}

func (q *guestList) remove(g *guest) {
	if g.prev != nil {
		g.prev.next = g.next
	} else {
		q.first = g.next
	}
	if g.next != nil {
		g.next.prev = g.prev
	} else {
		q.last = g.prev
	}
	g.list, g.prev, g.next = nil, nil, nil
	q.n--
}

func (g *guest) unlist() {
	if g.list != nil {
		g.list.remove(g)
	}
}

// GuestHeld is EventGuestHeld. The home is asked with the next tick, so that what is held for a moment only costs nothing. When guests come in a crowd, most
// of them lock and unlock and wait for each other only: of those past [MaxFresh] between two ticks it is asked when they still hold something after [YoungFor].
func (l *Leader) GuestHeld(now, id uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	if l.guests[id] != nil {
		return
	}
	g := &guest{session: id}
	l.guests[id] = g
	if l.fresh++; l.fresh > MaxFresh {
		g.at = l.clock.seen + YoungFor
		l.young.push(g)
		return
	}
	l.place(g)
}

// grown has the homes of those asked that have held something for long enough.
func (l *Leader) grown() {
	for l.young.n > 0 && l.young.first.at <= l.clock.seen {
		g := l.young.first
		l.young.remove(g)
		l.place(g)
	}
}

// GuestIdle is EventGuestIdle. The record goes, and with it the belief in its subscription: a later one of the same session asks anew.
func (l *Leader) GuestIdle(now, id uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	if g := l.guests[id]; g != nil {
		g.unlist()
		delete(l.guests, id)
	}
}

// Holdings answers Ready.Compare: the sessions that hold or wait for something here and are not in an ACTIVE home bucket of this shard. What
// the leader did not know is asked for, what is held no more is forgotten.
func (l *Leader) Holdings(now uint64, guests []uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	held := make(map[uint64]bool, len(guests))
	for _, id := range guests {
		held[id] = true
		l.GuestHeld(now, id)
	}
	for id, g := range l.guests { // the order of removals shows nowhere
		if !held[id] {
			g.unlist()
			delete(l.guests, id)
		}
	}
}

// RouteChanged says that Route may answer differently now. A guest whose home has another owner or another bucket epoch subscribes anew.
func (l *Leader) RouteChanged(now uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	var moved []*guest
	stale := func(q *guestList) {
		for g := q.first; g != nil; g = g.next {
			if to, epoch := l.route(g.session); g.link == nil || to != g.link.shard || epoch != g.bucketEpoch && !plantEpochKept {
				moved = append(moved, g)
			}
		}
	}
	for _, k := range l.linkOrder {
		stale(&k.ask)
		stale(&k.asked)
		stale(&k.sure)
	}
	stale(&l.retry)
	for _, g := range moved {
		g.unlist()
		l.place(g)
	}
}

func (l *Leader) route(session uint64) (shard, epoch uint64) {
	return l.cfg.Route(protocol.SessionTier(session), protocol.SessionBucket(session))
}

// place queues a guest for a question to whoever owns its home bucket.
func (l *Leader) place(g *guest) {
	to, epoch := l.route(g.session)
	if to == unknownShard {
		l.later(g)
		return
	}
	g.link, g.bucketEpoch, g.question = l.linkTo(to), epoch, 0
	g.link.ask.push(g)
}

// later has a guest placed again after a self-check period: nobody could answer.
func (l *Leader) later(g *guest) {
	g.unlist()
	g.link, g.question = nil, 0
	g.at = l.clock.seen + l.cfg.SelfCheck
	l.retry.push(g)
}

func (l *Leader) retries() {
	for l.retry.n > 0 && l.retry.first.at <= l.clock.seen {
		g := l.retry.first
		l.retry.remove(g)
		l.place(g)
	}
}

// sure notes that the home knows this leadership as a subscriber for the guest.
func (l *Leader) sure(g *guest) {
	g.unlist()
	g.question, g.at = 0, l.clock.seen
	g.link.sure.push(g)
}

// goneFor takes a home's word that the session is gone. It is final, whoever asked and whenever: ids are not reused. So it is taken for any
// record, and from the answer to a question that does not count any more.
func (l *Leader) goneFor(id uint64) {
	g := l.guests[id]
	if g == nil || g.gone {
		return
	}
	g.unlist()
	g.link, g.question, g.gone = nil, 0, true
	l.gone.push(g)
}

// hasSeen is the attach epoch to name in questions.
func (g *guest) hasSeen() uint64 {
	if g.detached {
		return 0
	}
	return g.known
}

// seen takes a home's word for the attach epoch and description of a living session, and whether it
// is detached. It is logged if it is new here. Only instances of tracks depend on a detach. It is
// not logged for sessions without one: a change of the home's leader detaches all sessions.
//
// The last word about an epoch counts: a session may be attached again under the epoch that it was
// detached with. The next comparison corrects a word that comes out of order.
func (l *Leader) seen(e *entry, st State) {
	g := l.guests[e.session]
	if g == nil || g.gone || e.epoch < g.known {
		return
	}
	x := shard.RemoteUpdateBody{Session: e.session, Epoch: e.epoch, Description: e.description, Detached: e.verdict == verdictDetached}
	have, ok := st.Guest(e.session)
	if have.Tracks == 0 {
		x.Detached = false
	}
	if x.Epoch == g.known && x.Detached == g.detached {
		return
	}
	if ok && have.Epoch > x.Epoch {
		g.known, g.detached = have.Epoch, have.Detached
		return
	}
	same := have.Epoch == x.Epoch && have.Description == x.Description && have.Detached == x.Detached
	higher := x.Epoch > g.known
	g.known, g.detached = x.Epoch, x.Detached
	if ok && higher && same {
		return // what was proposed has lower epochs, and changes nothing
	}
	if g.seen != nil {
		*g.seen = x
		return
	}
	g.seen = &x
	l.seenQ = append(l.seenQ, &x)
}
