package server

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// rollouts is what an instance does about the tracks of one shard beside answering requests: streams, counters, audit lines.
//
// A stream begins with how its track stands, read and sent inside Exclusive, so that the changes which follow it are those of later entries. A connection that takes no more gets
// the status again when it has room; so nothing is queued here. Streams are there while the instance leads the shard: what a follower of it knows may be late. Lock order:
// that of a hub.
type rollouts struct {
	desk *desk

	polls struct{ read, logged atomic.Uint64 } // answered from memory; handed to the log
	count atomic.Int64                         // of streams, so that changes that nobody watches cost one load

	mu      sync.Mutex
	byTrack map[string]map[trackFilter][]*trackStream // by node and name
	byConn  map[uint64][]*trackStream
	chosen  map[trackChoice]uint64 // targets set while leading, for the metrics; bounded by Limits.MaxSeries

	// Scratch of one call.
	status protocol.TrackStatus
	change protocol.TrackChange
}

// trackFilter is what streams of one track differ in.
type trackFilter struct {
	location string
	targets  bool
}

// trackStream is one opened TrackWatch.
type trackStream struct {
	conn, id uint64
	node     uint64
	name     string
	filter   trackFilter
	live     bool // the status was sent, and every change since
}

func newRollouts(d *desk) *rollouts {
	return &rollouts{
		desk: d, byTrack: make(map[string]map[trackFilter][]*trackStream), byConn: make(map[uint64][]*trackStream), chosen: make(map[trackChoice]uint64),
	}
}

// trackKey names a track among those of a shard.
func trackKey(node uint64, name string) string {
	return string(append(binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(name)), node), name...))
}

func everyTrack(uint64, []byte) bool { return true }

// open opens a stream on a connection; id is the request's. Its status is due: the caller has the pager come. Errors: BAD_REQUEST, OVERLOADED, UNAVAILABLE.
func (t *rollouts) open(conn, id uint64, w *protocol.TrackWatch) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	limits := &t.desk.srv.cfg.Limits
	key := trackKey(w.Node, string(w.Name))
	watchers := 0
	for _, list := range t.byTrack[key] {
		watchers += len(list)
	}
	switch {
	case slices.ContainsFunc(t.byConn[conn], func(s *trackStream) bool { return s.id == id }):
		return protocol.Errorf(protocol.StatusBadRequest, "watch id %d is in use on this connection; each request needs its own", id)
	case len(t.byConn[conn]) >= limits.MaxStreams:
		return protocol.Errorf(protocol.StatusOverloaded, "streams over tracks per connection are limited to %d; close one", limits.MaxStreams)
	case watchers >= limits.MaxWatchers:
		return protocol.Errorf(protocol.StatusOverloaded, "watchers per track are limited to %d; share a connection", limits.MaxWatchers)
	case !t.desk.leading.Load(): // who ends the streams of a leader that was has the lock behind this, or had it before
		return protocol.Errorf(protocol.StatusUnavailable, "shard %d has no leader here now; fetch the map and retry", t.desk.id)
	}
	s := &trackStream{conn: conn, id: id, node: w.Node, name: string(w.Name), filter: trackFilter{w.Location, w.Targets}}
	if t.byTrack[key] == nil {
		t.byTrack[key] = make(map[trackFilter][]*trackStream)
	}
	t.byTrack[key][s.filter] = append(t.byTrack[key][s.filter], s)
	t.byConn[conn] = append(t.byConn[conn], s)
	t.count.Add(1)
	return nil
}

// close closes a stream, if there is one.
func (t *rollouts) close(conn, id uint64) {
	t.remove(conn, func(s *trackStream) bool { return s.id == id })
}

// connGone closes the streams of a connection.
func (t *rollouts) connGone(conn uint64) { t.remove(conn, func(*trackStream) bool { return true }) }

func (t *rollouts) remove(conn uint64, which func(*trackStream) bool) {
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range slices.Clone(t.byConn[conn]) {
		if which(s) {
			t.drop(s)
		}
	}
}

// drop takes a stream out of the tables. mu is held.
func (t *rollouts) drop(s *trackStream) {
	same := func(x *trackStream) bool { return x == s }
	key := trackKey(s.node, s.name)
	filters := t.byTrack[key]
	if filters[s.filter] = slices.DeleteFunc(filters[s.filter], same); len(filters[s.filter]) == 0 {
		delete(filters, s.filter)
	}
	if len(filters) == 0 {
		delete(t.byTrack, key)
	}
	if t.byConn[s.conn] = slices.DeleteFunc(t.byConn[s.conn], same); len(t.byConn[s.conn]) == 0 {
		delete(t.byConn, s.conn)
	}
	t.count.Add(-1)
}

// cut ends the streams of some tracks, with the reason.
func (t *rollouts) cut(which func(node uint64, name []byte) bool, status protocol.Status, text string) {
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*trackStream
	for _, on := range t.byConn {
		for _, s := range on {
			if which(s.node, []byte(s.name)) {
				list = append(list, s)
			}
		}
	}
	for _, s := range list {
		t.cutStream(s, status, text)
	}
}

// deleted is told that a track is gone.
func (t *rollouts) deleted(node uint64, name []byte) {
	t.cut(func(n uint64, x []byte) bool { return n == node && string(x) == string(name) }, protocol.StatusNotFound, "the track was deleted; nothing is left to watch")
}

// cutStream ends a stream with the reason. mu is held.
func (t *rollouts) cutStream(s *trackStream, status protocol.Status, text string) {
	t.drop(s)
	frame := protocol.AppendFrame(nil, protocol.KindStreamCut, s.id, t.desk.id, &protocol.StreamCut{Status: status, Message: text})
	t.desk.Send(s.conn, frame, false)
}

// restart has all streams begin with the status again: changes were missed.
func (t *rollouts) restart() {
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn, list := range t.byConn {
		for _, s := range list {
			s.live = false
		}
		t.desk.PagesDue(t.desk.id, conn)
	}
}

// page sends the status to one stream of the connection that waits for it, and says whether others do. Called inside Exclusive.
func (t *rollouts) page(conn uint64, m *shard.Machine) (more bool) {
	if t.count.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	waits := func(s *trackStream) bool { return !s.live }
	i := slices.IndexFunc(t.byConn[conn], waits)
	if i < 0 {
		return false
	}
	s := t.byConn[conn][i]
	err := m.DescribeTrack(&protocol.TrackDescribe{Node: s.node, Name: []byte(s.name)}, t.desk.rep.LogTime(), &t.status)
	if err != nil {
		t.cutStream(s, protocol.StatusOf(err), err.Error())
	} else {
		s.live = true
		t.desk.Send(s.conn, protocol.AppendFrame(nil, protocol.KindTrackStatus, s.id, t.desk.id, &t.status), false)
	}
	return slices.ContainsFunc(t.byConn[conn], waits)
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
		for filter, streams := range t.byTrack[trackKey(list[0].Node, string(list[0].Name))] {
			t.tell(index, filter, streams, list[:n])
		}
		list = list[n:]
	}
}

// tell tells streams with the same filter of changes of their track. What it says is encoded once; only the head of a frame differs. mu is held.
func (t *rollouts) tell(index uint64, filter trackFilter, streams []*trackStream, list []shard.TrackChange) {
	t.change = protocol.TrackChange{Revision: index, Events: t.change.Events[:0]}
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
		if s.live && !t.desk.Send(s.conn, protocol.AppendFrameRaw(nil, protocol.KindTrackChange, s.id, t.desk.id, body), true) {
			s.live = false
			t.desk.PagesDue(t.desk.id, s.conn)
		}
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
