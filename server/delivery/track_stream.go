package delivery

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// TrackStreams are the streams over tracks of one shard, on this instance. They exist while the
// instance leads the shard, because a follower's state of a track may be late.
type TrackStreams struct {
	ObjectStreams[TrackFilter]

	// Buffers of one call.
	status protocol.TrackStatus
	events []protocol.TrackEvent
}

// TrackFilter distinguishes streams of one track.
type TrackFilter struct {
	Location string // send only this one; empty: all
	Targets  bool   // send only changes of targets
}

func newTrackStreams(h *Hubs) *TrackStreams {
	t := &TrackStreams{ObjectStreams: newObjectStreams[TrackFilter](h,
		objectKind{what: "track", use: "watch", bucket: protocol.Bucket, leaderOnly: true})}
	t.sendState = t.sendStatus
	return t
}

// sendStatus sends the status of a stream's track. mu is held.
func (t *TrackStreams) sendStatus(s *objectStream[TrackFilter], m *shard.Machine) {
	err := m.Tracks().Describe(&protocol.TrackDescribe{Node: s.node, Name: []byte(s.name)}, t.leader.LogTime(),
		&t.status)
	if err != nil {
		t.cutStream(s, protocol.StatusOf(err), err.Error())
		return
	}
	s.live = true
	t.send.Send(s.conn, protocol.AppendFrame(nil, protocol.KindTrackStatus, s.id, t.shard, &t.status), false)
}

func (t *TrackStreams) changed(_ Viewer, index uint64, ev *shard.Events) {
	list := ev.TrackChanges
	if len(list) == 0 || t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].Node == list[0].Node && string(list[n].Name) == string(list[0].Name) {
			n++
		}
		for filter, streams := range t.byName[NameKey(list[0].Node, list[0].Name)] {
			t.notify(index, filter, streams, list[:n])
		}
		list = list[n:]
	}
}

// notify sends changes of a track to the streams with one filter, in as many frames as it takes:
// the session of thousands of instances may end in one entry. Each body is encoded once; only the
// head of a frame differs. mu is held.
func (t *TrackStreams) notify(
	index uint64, filter TrackFilter, streams []*objectStream[TrackFilter], list []shard.TrackChange,
) {
	events := t.events[:0]
	for i := range list {
		if c := &list[i].TrackEvent; filter.selects(c) {
			events = append(events, *c)
		}
	}
	for rest := events; len(rest) > 0; {
		change := protocol.TrackEvents{Revision: index}
		change.Events, rest = splitFrame(rest, trackEventSize)
		body := protocol.AppendBody(nil, &change)
		for _, s := range streams {
			t.sendChange(s, protocol.KindTrackEvents, body)
		}
	}
	clear(events)
	t.events = events[:0]
}

// trackEventSize is about the bytes of an event in a frame.
func trackEventSize(e *protocol.TrackEvent) int {
	return changeCost + len(e.Location) + len(e.Instance) + len(e.Gate) + len(e.Text)
}

// selects reports whether streams with this filter get a change.
func (f *TrackFilter) selects(c *protocol.TrackEvent) bool {
	if f.Location != "" && c.Location != "" && c.Location != f.Location {
		return false
	}
	return !f.Targets || c.Kind == protocol.TrackEventTarget || c.Kind == protocol.TrackEventWiden ||
		c.Kind == protocol.TrackEventState && c.State == protocol.StateReady
}
