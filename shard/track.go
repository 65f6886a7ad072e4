package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// trackState is a rollout's track as a hosted object. The sessions of its instances take part in
// it.
type trackState struct{ *rollout.Track }

func decodeTrack(record []byte) (hostedState, error) {
	t, err := rollout.Decode(record)
	return trackState{t}, err
}

func validTrackName(name []byte) bool { return len(name) > 0 && len(name) <= protocol.MaxNameLen }

func (h *hostedObject) track() *rollout.Track { return h.state.(trackState).Track }

func (s trackState) sessions(list []uint64) []uint64 { return append(list, s.Sessions()...) }

func (s trackState) part(session uint64) (label string, count int) { return s.InstancesOf(session) }

func (s trackState) size() int { return s.NumInstances() }

func (s trackState) highest() uint64 { return s.Revision() }

// bumpCounters leaves the incarnations: one counts only together with the session that registered
// it.
func (s trackState) bumpCounters(next func(uint64) uint64) { s.SkipRevisions(next) }

func (s trackState) wake(m *Machine, x *hostedObject) {
	s.Tick(x.callTrack(m), &m.batch.track)
	s.requestDone(m, x)
}

func (s trackState) sessionEnded(m *Machine, x *hostedObject, session uint64) {
	m.spendWork(1)
	s.SessionEnded(x.callTrack(m), session, &m.batch.track)
	s.requestDone(m, x)
}

// requestDone follows every call: it emits changes for watches and schedules the timer.
func (s trackState) requestDone(m *Machine, x *hostedObject) {
	out := &m.batch.track
	if !x.node.dropped {
		for _, c := range out.List {
			m.batch.out.TrackChanges = append(m.batch.out.TrackChanges, TrackChange{
				Node: x.node.id, Bucket: x.bucket.number, Name: x.name, TrackEvent: c,
			})
		}
	}
	out.Reset()
	x.charge(x.quotaBytes())
	x.schedule(m)
}

// trackNow is the time of a call: the bucket's, which moves with it and stands still while it is
// frozen.
func trackNow(m *Machine, b *bucket) rollout.Now {
	return rollout.Now{Log: m.bucketTime(b), Wall: m.wall}
}

// callTrack prepares a call: it saves the track for a snapshot.
func (h *hostedObject) callTrack(m *Machine) rollout.Now {
	m.touch(h)
	h.revision = m.applied
	return trackNow(m, h.bucket)
}

// syncSession keeps the track among the session's holdings exactly while the session has an
// instance there.
func (h *hostedObject) syncSession(m *Machine, session uint64) {
	p := m.sessions.get(session)
	switch {
	case p == nil:
	case h.track().HasSession(session):
		p.addHolding(m, h)
	case p.removeHolding(m, h) && !p.ended:
		p.remoteIdle(m)
	}
}

// Tracks reads the tracks of rollouts.
type Tracks struct{ reader }

// now is the time of a read: that of the bucket at a log time, or now if the log is further.
func (r Tracks) now(x *hostedObject, logTime uint64) rollout.Now {
	return rollout.Now{Log: x.bucket.timeAt(max(logTime, r.m.logTime))}
}

// Describe reads how a track stands at the log time that the leader would stamp now: the log of an
// idle shard is silent. Instances come in pages in order of id, the request's limit of them or
// about PageBytes; the rest comes with each page. Errors: BAD_REQUEST, WRONG_SHARD, NOT_FOUND.
func (r Tracks) Describe(req *protocol.TrackDescribe, logTime uint64, out *protocol.TrackStatus) error {
	if err := protocol.Validate(req); err != nil {
		return err
	}
	if len(req.Cursor) > protocol.MaxTrackInstance {
		return badCursor()
	}
	x, err := r.object(kindTrack, req.Node, req.Name)
	if err != nil {
		return err
	}
	*out = x.track().Describe(r.now(x, logTime))
	out.Index, out.Revision, out.Name = r.m.applied, x.revision, x.name
	if req.Flags&protocol.WithTrackConfig != 0 {
		out.Config = x.track().Config()
	}
	if req.Flags&protocol.WithTrackInstances == 0 {
		return nil
	}
	p := newPage(req.Limit, PageBytes)
	for _, id := range x.track().InstancesAfter(string(req.Cursor), p.maxEntries+1) {
		i, err := x.track().Instance(id)
		if err != nil {
			return err
		}
		if !p.takes(128 + len(i.ID) + len(i.Location) + len(i.Meta) + len(i.Report.Code) + len(i.Report.Message)) {
			out.Cursor = []byte(out.Instances[len(out.Instances)-1].ID)
			return nil
		}
		out.Instances = append(out.Instances, i)
	}
	return nil
}

// CheckLocation looks for a track, and for a location of it if one is named. Errors: WRONG_SHARD,
// NOT_FOUND.
func (r Tracks) CheckLocation(node uint64, name []byte, location string) error {
	x, err := r.object(kindTrack, node, name)
	if err == nil && location != "" {
		_, err = x.track().History(location)
	}
	return err
}

// History reads a location's history. Errors: BAD_REQUEST, WRONG_SHARD, NOT_FOUND.
func (r Tracks) History(req *protocol.TrackHistory, logTime uint64, out *protocol.TrackHistoryReply) error {
	if err := protocol.Validate(req); err != nil {
		return err
	}
	x, err := r.object(kindTrack, req.Node, req.Name)
	if err != nil {
		return err
	}
	rows, err := x.track().History(req.Location)
	if err != nil {
		return err
	}
	*out = protocol.TrackHistoryReply{Index: r.m.applied, Clock: r.now(x, logTime).Log, Rows: rows}
	return nil
}

// List reads a page of a node's tracks in the active buckets of this shard, in order of name. Their
// states are those at the log time that the leader would stamp now. The cursor is the last name of
// the page before. Errors: BAD_REQUEST, NOT_FOUND.
func (r Tracks) List(req *protocol.TrackList, logTime uint64, out *protocol.TrackListReply) error {
	if err := protocol.Validate(req); err != nil {
		return err
	}
	*out = protocol.TrackListReply{Index: r.m.applied, Tracks: out.Tracks[:0], Runs: r.m.activeRuns(out.Runs)}
	page := objectPage{node: req.Node, prefix: req.Prefix, cursor: req.Cursor, limit: req.Limit}
	return r.listObjects(kindTrack, page, &out.Cursor, func(x *hostedObject) {
		item := x.track().Summary(r.now(x, logTime))
		item.Name = x.name
		out.Tracks = append(out.Tracks, item)
	})
}

// From yields the tracks that are active here, in order of node and name, from the one named on.
func (r Tracks) From(first uint64, name []byte, yield func(node uint64, name []byte) bool) {
	r.objectsFrom(kindTrack, first, name, func(x *hostedObject) bool { return yield(x.node.id, x.name) })
}

// Peek answers a valid poll that would change nothing, at the log time and wall time that the
// leader would stamp now. False: write the poll to the log, which answers refusals too. It changes
// nothing, and may run beside other reads; whether the leader may still answer is the caller's to
// know, by a read barrier.
func (r Tracks) Peek(
	node, epoch uint64, req *protocol.TrackPoll, logTime, wall uint64, out *protocol.TrackPollReply,
) bool {
	p := r.m.sessions.get(req.Session)
	b := r.m.activeBucket(node, req.Name)
	if b == nil || p == nil || p.node.id != node || p.epoch != epoch || !r.m.alive(p) {
		return false
	}
	if r.m.atHome(p) {
		if attached, _ := r.m.attached(p.home); !attached {
			return false
		}
	} else if r.m.activeHomeBucket(req.Session) != nil {
		return false
	}
	x := b.readObject(kindTrack, node, req.Name)
	if x == nil {
		return false
	}
	caller := rollout.Caller{Session: req.Session, ID: req.ID, Incarnation: req.Incarnation}
	now := r.now(x, logTime)
	now.Wall = wall
	reply, ok, err := x.track().Peek(now, caller, &req.Report)
	if !ok || err != nil {
		return false
	}
	*out = reply
	completePoll(x, req.WithPayload, out)
	return true
}
