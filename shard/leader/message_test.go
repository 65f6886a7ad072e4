package leader

import (
	"reflect"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

func TestMessagesRoundTrip(t *testing.T) {
	long := strings.Repeat("d", protocol.MaxDescriptionLen)
	entries := []sessionStatus{{session: never, state: stateEnded,
		ending: protocol.Ending{Reason: protocol.EndExpired, Link: protocol.LinkCut, Silent: 1 << 40, Stood: never}},
		{session: 1, state: stateAttached, epoch: never, description: long}, {session: 2, state: stateAttached, epoch: 1}, {session: 3, state: stateRetry}}
	for _, m := range []message{
		&subscribeMsg{1 << 40, 2, 3, []subscribeEntry{{never, never, never}, {1, 2, 3}}},
		&heartbeatMsg{never, 1, never, 4},
		&subscribeReply{1, 2, 3, 4, 5, 6, entries},
		&heartbeatReply{1, 2, 3, 4, true},
		&notifyMsg{1, 2, 3, never, entries},
	} {
		if got := parseMessage(encode(m)); !reflect.DeepEqual(got, m) {
			t.Errorf("wrote %+v, read %+v", m, got)
		}
	}
}

func TestMalformedMessagesAreIgnored(t *testing.T) {
	w := newHarness()
	w.l.Start(w.now, 1, 1, nil)
	w.l.Take()
	whole := encode(&subscribeMsg{1, 1, 1, []subscribeEntry{{1, 1, 1}, {2, 2, 2}}})
	for n := range len(whole) {
		w.l.Receive(w.now, 2, whole[:n], w)
	}
	if got := w.l.Stats().Malformed; got != uint64(len(whole)) {
		t.Errorf("%d of %d cut messages counted as malformed", got, len(whole))
	}
	w.l.Receive(w.now, 2, append([]byte{messageVersion + 1}, whole[1:]...), w) // a later version's
	w.l.Receive(w.now, 2, []byte{messageVersion, 99}, w)                       // a kind of later
	if len(w.l.subscribers.requests.waiting) != 0 {
		t.Errorf("%d requests wait that were not made", len(w.l.subscribers.requests.waiting))
	}
	w.l.Receive(w.now, 2, append(whole, 7, 7, 7), w) // fields of later
	if len(w.l.subscribers.requests.waiting) != 1 {
		t.Error("a request with fields of a later version was not received")
	}
}

// TestMessagesAreSmall: lists of any length with descriptions of any size travel in messages of at
// most MaxMessage.
func TestMessagesAreSmall(t *testing.T) {
	const n = 3_000
	long := strings.Repeat("d", protocol.MaxDescriptionLen)
	home, remote := newHarness(), newHarness()
	remote.l.cfg.Shard = 2
	var ids []uint64
	for i := range uint64(n) {
		id := protocol.MakeSessionID(0, 1, 1<<40+i)
		ids = append(ids, id)
		home.table[id] = sessionStatus{epoch: 1 << 30, description: long}
	}
	home.l.Start(home.now, 1<<40, 0, nil)
	remote.l.Start(remote.now, 1<<40, 0, ids)
	largest, seen := 0, 0
	for range 40 {
		for _, x := range []struct {
			w, to *harness
			from  uint64
		}{{remote, home, 2}, {home, remote, 1}} {
			x.w.now += 100
			x.w.l.Tick(x.w.now, x.w.lastHeard, 0, false)
			r := x.w.l.Take()
			for _, c := range r.Commands {
				x.w.l.Done(x.w.now, c.ID, true)
				seen++
			}
			if r.Barrier != 0 {
				x.w.l.BarrierDone(x.w.now, r.Barrier, true, x.w)
			}
			for _, p := range r.Messages {
				largest = max(largest, len(p.Bytes))
				x.to.l.Receive(x.to.now, x.from, p.Bytes, x.to)
			}
		}
	}
	if largest > MaxMessage || largest < MaxMessage/2 {
		t.Errorf("the largest message has %d bytes", largest)
	}
	if s := remote.l.Stats(); s.Unsubscribed != 0 || s.RemoteSessions != n || seen != n {
		t.Errorf("%+v, %d learned", s, seen)
	}
	for _, id := range ids {
		home.l.Ended(home.now, id, &protocol.Ending{Reason: protocol.EndExpired})
	}
	for _, p := range home.l.Take().Messages {
		if len(p.Bytes) > MaxMessage {
			t.Errorf("news of %d bytes", len(p.Bytes))
		}
		remote.l.Receive(remote.now, 1, p.Bytes, remote)
	}
	if got := len(remote.l.Take().Commands); got == 0 {
		t.Error("nothing is released")
	}
}

// TestSlowSubscriberIsDropped: news for it are bounded, and its next beat learns that it must
// subscribe again.
func TestSlowSubscriberIsDropped(t *testing.T) {
	w := newHarness()
	w.l.Start(w.now, 1, 0, nil)
	w.table[7] = sessionStatus{epoch: 1}
	w.epochs[1] = 1
	id := protocol.MakeSessionID(0, 1, 7)
	w.table[id] = sessionStatus{epoch: 1}
	w.l.BarrierDone(w.now, w.l.Take().Barrier, true, w)
	w.l.Receive(w.now, 2, encode(&subscribeMsg{9, 1, 1, []subscribeEntry{{id, 1, 0}}}), w)
	w.l.BarrierDone(w.now, w.l.Take().Barrier, true, w)
	for i := range uint64(MaxUnacked + 1) {
		w.l.Attached(w.now, 1, id, 2+i, 1_000, "")
		w.l.Take()
	}
	if p := w.l.subscribers.byShard[2]; !p.dropped || len(p.updates) != 0 || len(w.l.subscribers.bySession) != 0 {
		t.Errorf("the subscriber keeps %d updates, dropped %v", len(p.updates), p.dropped)
	}
	for _, m := range []message{
		&subscribeMsg{9, 1, 2, []subscribeEntry{{id, 1, 0}}}, &heartbeatMsg{9, 1, 5, 1},
	} {
		w.l.Receive(w.now, 2, encode(m), w)
		w.l.BarrierDone(w.now, w.l.Take().Barrier, true, w)
		out := w.l.Take().Messages
		if life, ok := parseMessage(out[len(out)-1].Bytes).(*heartbeatReply); !ok || life.known {
			t.Errorf("a dropped attempt is answered %s", formatMessage(out[len(out)-1].Bytes))
		}
	}
}

// FuzzReceive feeds a leader bytes as messages of peers, with ticks and barriers in between:
// nothing panics, nothing grows without bound, and what goes out is well formed.
func FuzzReceive(f *testing.F) {
	id, away := protocol.MakeSessionID(0, 1, 1), protocol.MakeSessionID(0, 2, 1)
	for _, m := range []message{
		&subscribeMsg{1, 1, 1, []subscribeEntry{{id, 1, 0}}}, &heartbeatMsg{1, 1, 10_000, 1},
		&subscribeReply{1, 1, 1, 1, 0, 1, []sessionStatus{{session: away, state: stateAttached, epoch: 2, description: "x"}}},
		&subscribeReply{1, 1, 1, 1, 0, 1, []sessionStatus{{session: away, state: stateEnded}}},
		&heartbeatReply{1, 1, 1, 10_000, false},
		&notifyMsg{1, 1, 1, 1, []sessionStatus{{session: away, state: stateEnded}}},
	} {
		b := encode(m)
		f.Add(append([]byte{byte(len(b))}, b...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newHarness()
		w.table[id] = sessionStatus{epoch: 1}
		w.l.Start(w.now, 1, 0, []uint64{away})
		for steps := 0; len(data) > 0 && steps < 100; steps++ {
			n := min(int(data[0]), len(data)-1)
			msg := data[1 : 1+n]
			data = data[1+n:]
			w.l.Receive(w.now, uint64(n%3)+1, msg, w)
			w.now += 100
			w.l.Tick(w.now, w.lastHeard, 0, false)
			r := w.l.Take()
			for _, p := range r.Messages {
				if len(p.Bytes) > MaxMessage || p.Bytes[0] != messageVersion {
					t.Fatalf("sent %x", p.Bytes[2:])
				}
				parseMessage(p.Bytes)
			}
			for _, c := range r.Commands {
				w.l.Done(w.now, c.ID, c.ID%2 == 0)
			}
			if r.Barrier != 0 {
				w.l.BarrierDone(w.now, r.Barrier, n%5 != 0, w)
			}
		}
		if home, away := &w.l.subscribers, &w.l.remotes; home.queuedSessions > MaxQueuedSessions ||
			len(home.byShard) > 3 || len(away.subscriptions) > 2 || len(away.sessions) > 1 {
			t.Fatalf("grew: %+v", w.l.Stats())
		}
	})
}
