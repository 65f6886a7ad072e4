package leader

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// BucketsFrozen is EventBucketsFrozen: the buckets are about to move away, and their sessions leave
// their connections. The driver notifies the clients before this call, so a later pong does not
// count for these sessions. What they hold here belongs to remote sessions now.
func (l *Leader) BucketsFrozen(now uint64, first, count uint32) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	var left []*session
	for s := range l.sessions.All() { // sorted below
		if inRun(s.id, first, count) {
			left = append(left, s)
		}
	}
	slices.SortFunc(left, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	for _, s := range left {
		l.sessions.Remove(s.id)
		s.unqueue()
		l.leave(s)
	}
	l.ready.Compare = true
}

// BucketsActive is EventBucketsActive: sessions at home in the buckets are no longer remote, and
// others that hold something in them may be new here.
func (l *Leader) BucketsActive(now uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	l.ready.Compare = true
}

// BucketsLeft is EventBucketsLeft: the subscriptions for sessions of these buckets are dropped.
// Requests about them are answered "retry".
func (l *Leader) BucketsLeft(now uint64, first, count uint32) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	for id, list := range l.subscribersOf { // the order of removals has no effect
		if inRun(id, first, count) {
			for _, p := range list {
				delete(p.subs, id)
			}
			delete(l.subscribersOf, id)
		}
	}
	l.ready.Compare = true
}

// inRun reports whether a session of this shard's tier is at home in the buckets.
func inRun(session uint64, first, count uint32) bool {
	b := protocol.SessionBucket(session)
	return b >= first && b-first < count
}

// atHome reports whether all sessions on a connection are at home in ACTIVE buckets here. After a
// freeze is applied, a session stays on its connection until its client is notified.
func (c *conn) atHome(st State) bool {
	for _, s := range c.sessions {
		if _, active := st.HomeBucket(s.id); !active {
			return false
		}
	}
	return true
}
