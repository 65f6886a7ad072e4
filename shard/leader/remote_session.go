package leader

import "github.com/signalbox-dev/signalbox/shard"

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

	list       *remoteList
	prev, next *remoteSession
}

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

// knownEpoch is the attach epoch to name in requests.
func (g *remoteSession) knownEpoch() uint64 {
	if g.detached {
		return 0
	}
	return g.epoch
}

// askedBy reports whether this request of the subscription waits for a reply about the session.
func (g *remoteSession) askedBy(k *subscription, q *request) bool {
	return g.subscription == k && g.request == q.id
}
