package leader

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// BucketsFrozen is EventBucketsFrozen. The homes in the run are to be elsewhere: nothing here vouches for their sessions any more. Their clients are told so on their
// connections by whoever delivers the events of the log, before this call: a pong that goes out from here on counts for what else is attached there. What the
// sessions hold here is a guest's now.
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
	l.ready.Compare = !faultMovesUnasked
}

// BucketsActive is EventBucketsActive. Who is a guest has changed: the sessions at home in the run are none, those that hold something in it may be new ones.
func (l *Leader) BucketsActive(now uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	l.ready.Compare = !faultMovesUnasked
}

// BucketsLeft is EventBucketsLeft. Nobody is told about the sessions at home there by this shard any more; who asks is answered "retry".
func (l *Leader) BucketsLeft(now uint64, first, count uint32) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	for id, list := range l.subscribersOf { // the order of removals shows nowhere
		if inRun(id, first, count) {
			for _, p := range list {
				delete(p.subs, id)
			}
			delete(l.subscribersOf, id)
		}
	}
	l.ready.Compare = !faultMovesUnasked
}

// inRun says that a session, of this shard's tier, is at home in the run.
func inRun(session uint64, first, count uint32) bool {
	b := protocol.SessionBucket(session)
	return b >= first && b-first < count
}

// atHome says that all sessions on a connection are at home in ACTIVE buckets here. One that is not is about to be taken off it: the freeze is applied, and its
// client may not have been told yet.
func (c *conn) atHome(st State) bool {
	for _, s := range c.sessions {
		if _, active := st.HomeBucket(s.id); !active {
			return false
		}
	}
	return true
}
