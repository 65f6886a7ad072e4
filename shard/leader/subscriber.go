package leader

import (
	"cmp"
	"slices"
)

// subscriber is the leader of one shard that has remote sessions at home here. It is soft state:
// after a change of leader here all shards subscribe again.
type subscriber struct {
	shard       uint64
	epoch       uint64 // of its leadership
	attempt     uint64 // of its subscription
	subs        map[uint64]struct{}
	updates     []sessionStatus // not acknowledged; the first one has the number firstUpdate
	firstUpdate uint64
	sent        int    // of updates
	acked       uint64 // by its last heartbeat
	lastHeard   uint64
	scheduled   bool // in subscriberTable.notifyQueue
	dropped     bool // this attempt is rejected for good, because its registrations are lost
}

// subscriberTable is the home side of remote sessions: the leaders of shards that hold something
// for sessions at home here. It replies to their requests, and notifies them of what becomes of the
// sessions.
type subscriberTable struct {
	*leadership
	byShard     map[uint64]*subscriber
	order       []*subscriber            // by shard id
	bySession   map[uint64][]*subscriber // by shard id
	notifyQueue []*subscriber

	requests       barrierQueue[pendingRequest]
	heartbeats     barrierQueue[pendingHeartbeat]
	queuedSessions int // in requests
}

func newSubscriberTable(s *leadership) subscriberTable {
	return subscriberTable{leadership: s, byShard: make(map[uint64]*subscriber),
		bySession: make(map[uint64][]*subscriber)}
}

// newerAttempt compares attempts: of a newer leadership, or a later one of the same.
func newerAttempt(epoch, attempt, thanEpoch, thanAttempt uint64) bool {
	return epoch > thanEpoch || epoch == thanEpoch && attempt > thanAttempt
}

// subscriberFor returns the subscriber of a request, nil if it is outdated or was dropped. A newer
// attempt replaces everything registered before.
func (t *subscriberTable) subscriberFor(from, epoch, attempt uint64) *subscriber {
	p := t.byShard[from]
	switch {
	case p == nil:
	case newerAttempt(epoch, attempt, p.epoch, p.attempt):
		t.drop(p)
		t.order = slices.DeleteFunc(t.order, func(x *subscriber) bool { return x == p })
	case epoch == p.epoch && attempt == p.attempt && !p.dropped:
		return p
	default:
		return nil
	}
	p = &subscriber{shard: from, epoch: epoch, attempt: attempt, subs: make(map[uint64]struct{}),
		firstUpdate: 1, lastHeard: t.clock.seen}
	t.byShard[from] = p
	at, _ := slices.BinarySearchFunc(t.order, from,
		func(p *subscriber, s uint64) int { return cmp.Compare(p.shard, s) })
	t.order = slices.Insert(t.order, at, p)
	return p
}

// drop removes all registrations. The record stays: the same attempt must not register a
// part of its list again and then look complete.
func (t *subscriberTable) drop(p *subscriber) {
	for id := range p.subs { // the order of removals has no effect
		t.unsubscribe(id, p)
	}
	p.dropped, p.subs, p.updates, p.sent = true, nil, nil, 0
}

func (t *subscriberTable) subscribe(id uint64, p *subscriber) {
	if _, ok := p.subs[id]; ok {
		return
	}
	p.subs[id] = struct{}{}
	list := t.bySession[id]
	at, _ := slices.BinarySearchFunc(list, p, func(a, b *subscriber) int { return cmp.Compare(a.shard, b.shard) })
	t.bySession[id] = slices.Insert(list, at, p)
}

func (t *subscriberTable) unsubscribe(id uint64, p *subscriber) {
	list := slices.DeleteFunc(t.bySession[id], func(x *subscriber) bool { return x == p })
	if len(list) == 0 {
		delete(t.bySession, id)
	} else {
		t.bySession[id] = list
	}
}

// expire drops subscribers that were silent for long. Their leadership has ended, or they have no
// remote sessions at home here any more.
func (t *subscriberTable) expire() {
	for _, p := range t.order {
		if !p.dropped && t.clock.seen-p.lastHeard > subscriberTimeout {
			t.drop(p)
		}
	}
}

// left drops the subscriptions for sessions of these buckets.
func (t *subscriberTable) left(first, count uint32) {
	for id, list := range t.bySession { // the order of removals has no effect
		if inRun(id, first, count) {
			for _, p := range list {
				delete(p.subs, id)
			}
			delete(t.bySession, id)
		}
	}
}
