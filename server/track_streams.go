package server

import (
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// trackStreams is what an instance does about the tracks of one shard beside answering requests: streams, counters, audit lines. Streams are there while the instance leads the
// shard: what a follower of it knows may be late.
type trackStreams struct {
	objectStreams[trackFilter]

	polls      struct{ read, logged atomic.Uint64 } // answered from memory; handed to the log
	targetsSet map[targetKey]uint64                 // targets set while leading, for the metrics; bounded by Limits.MaxSeries; mu guards it

	// Scratch of one call.
	status protocol.TrackStatus
	change protocol.TrackEvents
}

// trackFilter is what streams of one track differ in.
type trackFilter struct {
	location string
	targets  bool
}

func newTrackStreams(d *shardHost) *trackStreams {
	t := &trackStreams{objectStreams: newObjectStreams[trackFilter](d, "track"), targetsSet: make(map[targetKey]uint64)}
	t.sendInitial = t.sendStatus
	t.refuse = func() error {
		if d.leading.Load() { // who ends the streams of a leader that was has the lock behind this, or had it before
			return nil
		}
		return protocol.Errorf(protocol.StatusUnavailable, "shard %d has no leader here now; fetch the map and retry", d.id)
	}
	return t
}

// trackDeleted is told that a track is gone.
func (t *trackStreams) trackDeleted(node uint64, name []byte) {
	t.cut(func(n uint64, x []byte) bool { return n == node && string(x) == string(name) }, protocol.StatusNotFound, "the track was deleted; nothing is left to watch")
}

// sendStatus sends how a stream's track stands. mu is held.
func (t *trackStreams) sendStatus(s *objectStream[trackFilter], m *shard.Machine) {
	err := m.DescribeTrack(&protocol.TrackDescribe{Node: s.node, Name: []byte(s.name)}, t.host.raft.LogTime(), &t.status)
	if err != nil {
		t.cutStream(s, protocol.StatusOf(err), err.Error())
		return
	}
	s.live = true
	t.host.Send(s.conn, protocol.AppendFrame(nil, protocol.KindTrackStatus, s.id, t.host.id, &t.status), false)
}

// tracksChanged tells what an entry changed: streams, and on the leader counters and the audit log. Called in log order, by the goroutine that applies.
func (t *trackStreams) tracksChanged(index uint64, list []shard.TrackChange) {
	if len(list) == 0 {
		return
	}
	if t.host.leading.Load() {
		for i := range list {
			t.recordDecision(index, &list[i])
		}
	}
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].Node == list[0].Node && string(list[n].Name) == string(list[0].Name) {
			n++
		}
		for filter, streams := range t.byName[nameKey(list[0].Node, list[0].Name)] {
			t.notifyStreams(index, filter, streams, list[:n])
		}
		list = list[n:]
	}
}

// notifyStreams tells streams with the same filter of changes of their track. What it says is encoded once; only the head of a frame differs. mu is held.
func (t *trackStreams) notifyStreams(index uint64, filter trackFilter, streams []*objectStream[trackFilter], list []shard.TrackChange) {
	t.change = protocol.TrackEvents{Revision: index, Events: t.change.Events[:0]}
	for i := range list {
		if c := &list[i].TrackEvent; filter.wants(c) {
			t.change.Events = append(t.change.Events, *c)
		}
	}
	if len(t.change.Events) == 0 {
		return
	}
	body := t.change.AppendBody(nil)
	for _, s := range streams {
		t.sendChange(s, protocol.KindTrackEvents, body)
	}
	clear(t.change.Events)
}

// wants says whether streams with this filter are told of a change.
func (f *trackFilter) wants(c *protocol.TrackEvent) bool {
	if f.location != "" && c.Location != "" && c.Location != f.location {
		return false
	}
	return !f.targets || c.Kind == protocol.TrackEventTarget || c.Kind == protocol.TrackEventWiden || c.Kind == protocol.TrackEventState && c.State == protocol.StateReady
}
