package leader

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

func (t *subscriberTable) notifyEnded(id uint64, how *protocol.Ending) {
	list := t.bySession[id]
	delete(t.bySession, id)
	for _, p := range list {
		delete(p.subs, id)
		t.notify(p, sessionStatus{session: id, state: stateEnded, ending: *how})
	}
}

// notifyAlive notifies subscribers that a session was attached or detached.
func (t *subscriberTable) notifyAlive(id uint64, v sessionState, attachEpoch uint64, description string) {
	for _, p := range slices.Clone(t.bySession[id]) {
		t.notify(p, sessionStatus{session: id, state: v, epoch: attachEpoch, description: description})
	}
}

// notify queues an update. A subscriber that does not acknowledge is dropped; its next heartbeat
// notifies it, and it subscribes again.
func (t *subscriberTable) notify(p *subscriber, e sessionStatus) {
	if p.dropped {
		return
	}
	if len(p.updates) >= MaxUnacked {
		t.drop(p)
		return
	}
	p.updates = append(p.updates, e)
	t.scheduleNotify(p)
}

func (t *subscriberTable) scheduleNotify(p *subscriber) {
	if !p.scheduled && p.sent < len(p.updates) {
		p.scheduled = true
		t.notifyQueue = append(t.notifyQueue, p)
	}
}

// acknowledge drops the updates before this number, which the subscriber has. It is false for the
// number of another leadership here.
func (s *subscriber) acknowledge(next uint64) bool {
	if next > s.firstUpdate+uint64(len(s.updates)) {
		return false
	}
	if next > s.firstUpdate {
		n := int(next - s.firstUpdate)
		s.updates = slices.Delete(s.updates, 0, n)
		s.firstUpdate, s.sent = next, max(s.sent-n, 0)
	} else if s.sent > 0 && next == s.acked {
		s.sent = 0 // no progress for a whole period: send again
	}
	s.acked = next
	return true
}

// flush sends updates, within a window of unacknowledged ones per subscriber.
func (t *subscriberTable) flush() {
	for _, p := range t.notifyQueue {
		p.scheduled = false
		if p.dropped || t.byShard[p.shard] != p {
			continue
		}
		for p.sent < len(p.updates) && p.sent < maxNotifyWindow*maxNotifySessions {
			m := notifyMsg{homeEpoch: t.epoch, epoch: p.epoch, attempt: p.attempt,
				firstUpdate: p.firstUpdate + uint64(p.sent)}
			size := 0
			n := p.sent
			for n < len(p.updates) && n-p.sent < maxNotifySessions &&
				size+p.updates[n].size() <= MaxMessage-maxMessageOverhead {
				size += p.updates[n].size()
				n++
			}
			m.sessions = p.updates[p.sent:n]
			p.sent = n
			t.send(p.shard, &m)
		}
	}
	clear(t.notifyQueue)
	t.notifyQueue = t.notifyQueue[:0]
}
