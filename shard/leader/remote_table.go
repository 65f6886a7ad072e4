package leader

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// remoteTable has the sessions at home elsewhere that hold or wait for something here, and this
// shard's subscriptions to their homes. It logs what the homes say of them.
type remoteTable struct {
	*leadership
	sessions map[uint64]*remoteSession
	spare    []*remoteSession // nobody has a pointer to them
	fresh    int              // new in the present span of NewRemoteDelay
	freshIn  uint64           // the number of the span

	delayed remoteList // to be requested later
	retry   remoteList // the home could not answer
	ended   remoteList // to be released in the log
	updates []*shard.RemoteUpdateBody

	subscriptions     map[uint64]*subscription
	subscriptionOrder []*subscription // by shard id
	lastAttempt       uint64
	lastRequest       uint64
}

func newRemoteTable(s *leadership) remoteTable {
	return remoteTable{leadership: s, sessions: make(map[uint64]*remoteSession),
		subscriptions: make(map[uint64]*subscription)}
}

// heldAtStart takes over what a new leadership finds, and requests all at once.
func (t *remoteTable) heldAtStart(remotes []uint64) {
	for _, id := range remotes {
		t.held(id)
		t.fresh = 0
	}
}

// held adds a remote session. While there are few, each is requested with the next tick. Of many,
// most are released soon, so the rest of a span of NewRemoteDelay waits for the whole next span.
// The spans of all shards end together: their requests of a home come at the same time, and are
// answered behind the same barrier.
func (t *remoteTable) held(id uint64) {
	if t.sessions[id] != nil {
		return
	}
	g := t.record(id)
	t.sessions[id] = g
	if span := t.clock.seen / NewRemoteDelay; span != t.freshIn {
		t.freshIn, t.fresh = span, 0
	}
	if t.fresh++; t.fresh > MaxNewAtOnce {
		g.at = (t.freshIn + 2) * NewRemoteDelay
		t.delayed.push(g)
		return
	}
	t.queueRequest(g)
}

// maxSpareRemotes bounds the records that are kept for the next remote sessions.
const maxSpareRemotes = 1024

// record returns a new record in no list.
func (t *remoteTable) record(id uint64) *remoteSession {
	last := len(t.spare) - 1
	if last < 0 {
		return &remoteSession{session: id}
	}
	g := t.spare[last]
	t.spare = t.spare[:last]
	*g = remoteSession{session: id}
	return g
}

// idle drops the record of a remote session that holds nothing any more. One that was only delayed
// was in no request and no proposal, so nothing refers to it: it is used again, as nearly all are
// while short locks come and go.
func (t *remoteTable) idle(id uint64) {
	g := t.sessions[id]
	if g == nil {
		return
	}
	again := g.list == &t.delayed && len(t.spare) < maxSpareRemotes
	t.forget(g)
	if again {
		t.spare = append(t.spare, g)
	}
}

func (t *remoteTable) forget(g *remoteSession) {
	g.unlist()
	delete(t.sessions, g.session)
}

// compare replaces the list of remote sessions by the machine's.
func (t *remoteTable) compare(remotes []uint64) {
	held := make(map[uint64]bool, len(remotes))
	for _, id := range remotes {
		held[id] = true
		t.held(id)
	}
	for id, g := range t.sessions { // the order of removals has no effect
		if !held[id] {
			t.forget(g)
		}
	}
}

func (t *remoteTable) tick() {
	t.requestDue(&t.delayed)
	t.requestDue(&t.retry)
	t.subscriptionOrder = slices.DeleteFunc(t.subscriptionOrder, func(k *subscription) bool {
		if k.tick() {
			return false
		}
		delete(t.subscriptions, k.shard)
		return true
	})
}

// requestDue requests the remote sessions that have been in a list long enough.
func (t *remoteTable) requestDue(q *remoteList) {
	for q.n > 0 && q.first.at <= t.clock.seen {
		g := q.first
		q.remove(g)
		t.queueRequest(g)
	}
}

// routeChanged requests the remote sessions again whose home has another owner or bucket epoch.
func (t *remoteTable) routeChanged() {
	var moved []*remoteSession
	stale := func(q *remoteList) {
		for g := q.first; g != nil; g = g.next {
			if to, epoch := t.route(g.session); g.subscription == nil ||
				to != g.subscription.shard || epoch != g.bucketEpoch {
				moved = append(moved, g)
			}
		}
	}
	for _, k := range t.subscriptionOrder {
		stale(&k.queued)
		stale(&k.asked)
		stale(&k.confirmed)
	}
	stale(&t.retry)
	for _, g := range moved {
		g.unlist()
		t.queueRequest(g)
	}
}

func (t *remoteTable) route(session uint64) (shard, epoch uint64) {
	return t.cfg.Route(protocol.SessionTier(session), protocol.SessionBucket(session))
}

// queueRequest puts a remote session into a request to the owner of its home bucket.
func (t *remoteTable) queueRequest(g *remoteSession) {
	to, epoch := t.route(g.session)
	if to == unknownShard {
		t.retryLater(g)
		return
	}
	g.subscription, g.bucketEpoch, g.request = t.subscriptionTo(to), epoch, 0
	g.subscription.queued.push(g)
}

// retryLater queues a remote session again after a self-check period: the home shard could not
// answer.
func (t *remoteTable) retryLater(g *remoteSession) {
	g.unlist()
	g.subscription, g.request = nil, 0
	g.at = t.clock.seen + t.cfg.SelfCheck
	t.retry.push(g)
}

func (t *remoteTable) subscriptionTo(shard uint64) *subscription {
	if k := t.subscriptions[shard]; k != nil {
		return k
	}
	k := &subscription{table: t, shard: shard}
	k.resubscribe()
	t.subscriptions[shard] = k
	at, _ := slices.BinarySearchFunc(t.subscriptionOrder, shard,
		func(k *subscription, s uint64) int { return cmp.Compare(k.shard, s) })
	t.subscriptionOrder = slices.Insert(t.subscriptionOrder, at, k)
	return k
}

// count returns how many remote sessions there are, and how many of them no home has confirmed.
func (t *remoteTable) count() (all, unsubscribed int) {
	unsubscribed = t.delayed.n + t.retry.n
	for _, k := range t.subscriptionOrder {
		unsubscribed += k.queued.n + k.asked.n
	}
	return len(t.sessions), unsubscribed
}

// remoteSession is a session at home elsewhere that holds or waits for something here.
//
// Invariant: it is in exactly one list (queued, asked or confirmed of its subscription; delayed,
// retry or ended of the table), or its release is proposed. It is in confirmed only if the
// home's leader answered a request about this very record that it has registered this leadership as
// a subscriber, under the bucket epoch named here.
type remoteSession struct {
	session      uint64
	subscription *subscription // nil in delayed, retry and ended
	bucketEpoch  uint64
	epoch        uint64 // attach epoch whose description this shard has or is logging; 0: unknown
	request      uint64 // id of the pending request, 0: none
	at           uint64 // when it was confirmed, or when it leaves its list
	releaseID    uint64 // of the proposed release
	ended        bool
	detached     bool                    // as of epoch
	update       *shard.RemoteUpdateBody // in remoteTable.updates, not proposed yet
	ending       *protocol.Ending        // of one that has ended, if its home said it

	list       *remoteList
	prev, next *remoteSession
}

type remoteList struct {
	first, last *remoteSession
	n           int
}

func (r *remoteList) push(g *remoteSession) {
	g.list, g.prev, g.next = r, r.last, nil
	if r.last != nil {
		r.last.next = g
	} else {
		r.first = g
	}
	r.last = g
	r.n++
}

func (r *remoteList) remove(g *remoteSession) {
	if g.prev != nil {
		g.prev.next = g.next
	} else {
		r.first = g.next
	}
	if g.next != nil {
		g.next.prev = g.prev
	} else {
		r.last = g.prev
	}
	g.list, g.prev, g.next = nil, nil, nil
	r.n--
}

func (r *remoteSession) unlist() {
	if r.list != nil {
		r.list.remove(r)
	}
}

// knownEpoch is the attach epoch to name in requests.
func (r *remoteSession) knownEpoch() uint64 {
	if r.detached {
		return 0
	}
	return r.epoch
}

// askedBy reports whether this request of the subscription waits for a reply about the session.
func (r *remoteSession) askedBy(k *subscription, q *request) bool {
	return r.subscription == k && r.request == q.id
}
