package leader

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// remoteSession is a session that holds or waits for something here and is at home elsewhere.
//
// Invariant: it is in exactly one list: its link's ask, asked or sure, the leader's young, retry or gone; or, in none, its release is proposed. It is in sure
// only if the home's leader answered, to a question about this very record, that it had registered this leadership's subscription under the bucket
// epoch named here.
type remoteSession struct {
	session      uint64
	subscription *subscription // nil while in young, retry or gone
	bucketEpoch  uint64
	epoch        uint64 // attach epoch whose description this shard has, or is to log; 0 if unknown
	request      uint64 // the one it is asked with, 0 is none
	at           uint64 // when it was confirmed, or is to be placed
	releaseID    uint64 // of the proposed release
	ended        bool
	detached     bool                    // likewise
	update       *shard.RemoteUpdateBody // in Leader.remoteUpdates, not proposed yet

	list       *remoteList
	prev, next *remoteSession
}

// remoteList is a queue of guests in a fixed order.
type remoteList struct {
	first, last *remoteSession
	n           int
}

func (q *remoteList) push(g *remoteSession) {
	g.list, g.prev, g.next = q, q.last, nil
	if q.last != nil {
		q.last.next = g
	} else {
		q.first = g
	}
	q.last = g
	q.n++
}

func (q *remoteList) remove(g *remoteSession) {
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

func (g *remoteSession) unlist() {
	if g.list != nil {
		g.list.remove(g)
	}
}

// RemoteHeld is EventGuestHeld. The home is asked with the next tick, so that what is held for a moment only costs nothing. When guests come in a crowd, most
// of them lock and unlock and wait for each other only: of those past [MaxNewPerTick] between two ticks it is asked when they still hold something after [NurseryTime].
func (l *Leader) RemoteHeld(now, id uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	if l.remotes[id] != nil {
		return
	}
	g := &remoteSession{session: id}
	l.remotes[id] = g
	if l.newRemotes++; l.newRemotes > MaxNewPerTick {
		g.at = l.clock.seen + NurseryTime
		l.nursery.push(g)
		return
	}
	l.queueRequest(g)
}

// leaveNursery has the homes of those asked that have held something for long enough.
func (l *Leader) leaveNursery() {
	for l.nursery.n > 0 && l.nursery.first.at <= l.clock.seen {
		g := l.nursery.first
		l.nursery.remove(g)
		l.queueRequest(g)
	}
}

// RemoteIdle is EventGuestIdle. The record goes, and with it the belief in its subscription: a later one of the same session asks anew.
func (l *Leader) RemoteIdle(now, id uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	if g := l.remotes[id]; g != nil {
		g.unlist()
		delete(l.remotes, id)
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
		l.RemoteHeld(now, id)
	}
	for id, g := range l.remotes { // the order of removals shows nowhere
		if !held[id] {
			g.unlist()
			delete(l.remotes, id)
		}
	}
}

// RouteChanged says that Route may answer differently now. A guest whose home has another owner or another bucket epoch subscribes anew.
func (l *Leader) RouteChanged(now uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	var moved []*remoteSession
	stale := func(q *remoteList) {
		for g := q.first; g != nil; g = g.next {
			if to, epoch := l.route(g.session); g.subscription == nil || to != g.subscription.shard || epoch != g.bucketEpoch && !faultEpochKept {
				moved = append(moved, g)
			}
		}
	}
	for _, k := range l.subscriptionOrder {
		stale(&k.queued)
		stale(&k.asked)
		stale(&k.confirmed)
	}
	stale(&l.retry)
	for _, g := range moved {
		g.unlist()
		l.queueRequest(g)
	}
}

func (l *Leader) route(session uint64) (shard, epoch uint64) {
	return l.cfg.Route(protocol.SessionTier(session), protocol.SessionBucket(session))
}

// queueRequest queues a guest for a question to whoever owns its home bucket.
func (l *Leader) queueRequest(g *remoteSession) {
	to, epoch := l.route(g.session)
	if to == unknownShard {
		l.retryLater(g)
		return
	}
	g.subscription, g.bucketEpoch, g.request = l.subscriptionTo(to), epoch, 0
	g.subscription.queued.push(g)
}

// retryLater has a guest placed again after a self-check period: nobody could answer.
func (l *Leader) retryLater(g *remoteSession) {
	g.unlist()
	g.subscription, g.request = nil, 0
	g.at = l.clock.seen + l.cfg.SelfCheck
	l.retry.push(g)
}

func (l *Leader) retryDue() {
	for l.retry.n > 0 && l.retry.first.at <= l.clock.seen {
		g := l.retry.first
		l.retry.remove(g)
		l.queueRequest(g)
	}
}

// confirm notes that the home knows this leadership as a subscriber for the guest.
func (l *Leader) confirm(g *remoteSession) {
	g.unlist()
	g.request, g.at = 0, l.clock.seen
	g.subscription.confirmed.push(g)
}

// remoteEnded takes a home's word that the session is gone. It is final, whoever asked and whenever: ids are not reused. So it is taken for any
// record, and from the answer to a question that does not count any more.
func (l *Leader) remoteEnded(id uint64) {
	g := l.remotes[id]
	if g == nil || g.ended {
		return
	}
	g.unlist()
	g.subscription, g.request, g.ended = nil, 0, true
	l.endedRemotes.push(g)
}

// knownEpoch is the attach epoch to name in questions.
func (g *remoteSession) knownEpoch() uint64 {
	if g.detached {
		return 0
	}
	return g.epoch
}

// updateRemote takes a home's word for the attach epoch and description of a living session, and whether it
// is detached. It is logged if it is new here. Only instances of tracks depend on a detach. It is
// not logged for sessions without one: a change of the home's leader detaches all sessions.
//
// The last word about an epoch counts: a session may be attached again under the epoch that it was
// detached with. The next comparison corrects a word that comes out of order.
func (l *Leader) updateRemote(e *sessionStatus, st State) {
	g := l.remotes[e.session]
	if g == nil || g.ended || e.epoch < g.epoch {
		return
	}
	x := shard.RemoteUpdateBody{Session: e.session, Epoch: e.epoch, Description: e.description, Detached: e.state == stateDetached}
	have, ok := st.RemoteSession(e.session)
	if have.Tracks == 0 {
		x.Detached = false
	}
	if x.Epoch == g.epoch && x.Detached == g.detached {
		return
	}
	if ok && have.Epoch > x.Epoch {
		g.epoch, g.detached = have.Epoch, have.Detached
		return
	}
	same := have.Epoch == x.Epoch && have.Description == x.Description && have.Detached == x.Detached
	higher := x.Epoch > g.epoch
	g.epoch, g.detached = x.Epoch, x.Detached
	if ok && higher && same {
		return // what was proposed has lower epochs, and changes nothing
	}
	if g.update != nil {
		*g.update = x
		return
	}
	g.update = &x
	l.remoteUpdates = append(l.remoteUpdates, &x)
}
