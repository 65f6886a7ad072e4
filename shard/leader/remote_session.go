package leader

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// remoteSession is a session at home elsewhere that holds or waits for something here.
//
// Invariant: it is in exactly one list (queued, asked or confirmed of its subscription; delayed,
// retry or endedRemotes of the leader), or its release is proposed. It is in confirmed only if the
// home's leader answered a request about this very record that it has registered this leadership as
// a subscriber, under the bucket epoch named here.
type remoteSession struct {
	session      uint64
	subscription *subscription // nil in delayed, retry and endedRemotes
	bucketEpoch  uint64
	epoch        uint64 // attach epoch whose description this shard has or is logging; 0: unknown
	request      uint64 // id of the pending request, 0: none
	at           uint64 // when it was confirmed, or when it leaves its list
	releaseID    uint64 // of the proposed release
	ended        bool
	detached     bool                    // as of epoch
	update       *shard.RemoteUpdateBody // in Leader.remoteUpdates, not proposed yet

	list       *remoteList
	prev, next *remoteSession
}

// remoteList is a FIFO list of remote sessions.
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

// RemoteHeld is EventRemoteHeld. The next tick requests it from the home shard, so that short locks
// cost nothing. Of more than [MaxNewPerTick] between two ticks, the rest is delayed and
// is requested if it still holds something after [NewRemoteDelay].
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
		g.at = l.clock.seen + NewRemoteDelay
		l.delayed.push(g)
		return
	}
	l.queueRequest(g)
}

// requestDelayed requests the remote sessions that have been delayed long enough.
func (l *Leader) requestDelayed() {
	for l.delayed.n > 0 && l.delayed.first.at <= l.clock.seen {
		g := l.delayed.first
		l.delayed.remove(g)
		l.queueRequest(g)
	}
}

// RemoteIdle is EventRemoteIdle. The record is dropped, and its subscription with it.
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

// Holdings answers Ready.Compare with the sessions that hold or wait for something here and have no
// ACTIVE home bucket here. Unknown ones are requested; others are dropped.
func (l *Leader) Holdings(now uint64, remotes []uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	held := make(map[uint64]bool, len(remotes))
	for _, id := range remotes {
		held[id] = true
		l.RemoteHeld(now, id)
	}
	for id, g := range l.remotes { // the order of removals has no effect
		if !held[id] {
			g.unlist()
			delete(l.remotes, id)
		}
	}
}

// RouteChanged must be called when Route may answer differently. A remote session whose home has
// another owner or another bucket epoch is requested again.
func (l *Leader) RouteChanged(now uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	var moved []*remoteSession
	stale := func(q *remoteList) {
		for g := q.first; g != nil; g = g.next {
			if to, epoch := l.route(g.session); g.subscription == nil || to != g.subscription.shard || epoch != g.bucketEpoch {
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

// queueRequest puts a remote session into a request to the owner of its home bucket.
func (l *Leader) queueRequest(g *remoteSession) {
	to, epoch := l.route(g.session)
	if to == unknownShard {
		l.retryLater(g)
		return
	}
	g.subscription, g.bucketEpoch, g.request = l.subscriptionTo(to), epoch, 0
	g.subscription.queued.push(g)
}

// retryLater queues a remote session again after a self-check period: the home shard could not
// answer.
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

// confirm notes that the home has registered this leadership for the remote session.
func (l *Leader) confirm(g *remoteSession) {
	g.unlist()
	g.request, g.at = 0, l.clock.seen
	g.subscription.confirmed.push(g)
}

// remoteEnded handles the end of a session. It is final for any record and from any answer, because
// ids are never reused.
func (l *Leader) remoteEnded(id uint64) {
	g := l.remotes[id]
	if g == nil || g.ended {
		return
	}
	g.unlist()
	g.subscription, g.request, g.ended = nil, 0, true
	l.endedRemotes.push(g)
}

// knownEpoch is the attach epoch to name in requests.
func (g *remoteSession) knownEpoch() uint64 {
	if g.detached {
		return 0
	}
	return g.epoch
}

// updateRemote handles the attach epoch, description and detached state of a living session, and
// logs them if they are new here. Detached is logged only for sessions with an instance of a track:
// nothing else depends on it, and a change of the home's leader detaches all sessions.
//
// For an epoch the last update counts: a session may attach again under the epoch that it was
// detached with. The next comparison corrects updates that come out of order.
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
		return // pending updates have lower epochs and change nothing
	}
	if g.update != nil {
		*g.update = x
		return
	}
	g.update = &x
	l.remoteUpdates = append(l.remoteUpdates, &x)
}
