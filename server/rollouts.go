package server

import (
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// rollouts is what an instance does about the tracks of one shard beside answering requests: streams, counters, audit lines. Streams are there while the instance leads the
// shard: what a follower of it knows may be late.
type rollouts struct {
	streams[trackFilter]

	polls  struct{ read, logged atomic.Uint64 } // answered from memory; handed to the log
	chosen map[trackChoice]uint64               // targets set while leading, for the metrics; bounded by Limits.MaxSeries; mu guards it

	// Scratch of one call.
	status protocol.TrackStatus
	change protocol.TrackEvents
}

// trackFilter is what streams of one track differ in.
type trackFilter struct {
	location string
	targets  bool
}

func newRollouts(d *desk) *rollouts {
	t := &rollouts{streams: newStreams[trackFilter](d, "track"), chosen: make(map[trackChoice]uint64)}
	t.begin = t.tellStatus
	t.refuse = func() error {
		if d.leading.Load() { // who ends the streams of a leader that was has the lock behind this, or had it before
			return nil
		}
		return protocol.Errorf(protocol.StatusUnavailable, "shard %d has no leader here now; fetch the map and retry", d.id)
	}
	return t
}

// deleted is told that a track is gone.
func (t *rollouts) deleted(node uint64, name []byte) {
	t.cut(func(n uint64, x []byte) bool { return n == node && string(x) == string(name) }, protocol.StatusNotFound, "the track was deleted; nothing is left to watch")
}

// tellStatus sends how a stream's track stands. mu is held.
func (t *rollouts) tellStatus(s *stream[trackFilter], m *shard.Machine) {
	err := m.DescribeTrack(&protocol.TrackDescribe{Node: s.node, Name: []byte(s.name)}, t.desk.rep.LogTime(), &t.status)
	if err != nil {
		t.cutStream(s, protocol.StatusOf(err), err.Error())
		return
	}
	s.live = true
	t.desk.Send(s.conn, protocol.AppendFrame(nil, protocol.KindTrackStatus, s.id, t.desk.id, &t.status), false)
}

// changed tells what an entry changed: streams, and on the leader counters and the audit log. Called in log order, by the goroutine that applies.
func (t *rollouts) changed(index uint64, list []shard.TrackChange) {
	if len(list) == 0 {
		return
	}
	if t.desk.leading.Load() {
		for i := range list {
			t.note(index, &list[i])
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
			t.tell(index, filter, streams, list[:n])
		}
		list = list[n:]
	}
}

// tell tells streams with the same filter of changes of their track. What it says is encoded once; only the head of a frame differs. mu is held.
func (t *rollouts) tell(index uint64, filter trackFilter, streams []*stream[trackFilter], list []shard.TrackChange) {
	t.change = protocol.TrackEvents{Revision: index, Events: t.change.Events[:0]}
	for i := range list {
		if c := &list[i].Change; filter.wants(c) {
			t.change.Events = append(t.change.Events, c.Wire())
		}
	}
	if len(t.change.Events) == 0 {
		return
	}
	body := t.change.AppendBody(nil)
	for _, s := range streams {
		t.told(s, protocol.KindTrackEvents, body)
	}
	clear(t.change.Events)
}

// wants says whether streams with this filter are told of a change.
func (f *trackFilter) wants(c *rollout.Change) bool {
	if f.location != "" && c.Location != "" && c.Location != f.location {
		return false
	}
	return !f.targets || c.Kind == rollout.ChangeTarget || c.Kind == rollout.ChangeWiden || c.Kind == rollout.ChangeState && c.State == rollout.StateReady
}
