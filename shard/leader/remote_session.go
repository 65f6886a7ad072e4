package leader

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

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
