package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// trackTime is the time of a read: that of the bucket at a log time, or now if the log is further.
func (m *Machine) trackTime(x *hostedObject, logTime uint64) rollout.Now {
	return rollout.Now{Log: x.bucket.timeAt(max(logTime, m.logTime))}
}

// DescribeTrack reads how a track stands at the log time that the leader would stamp now: the log
// of an idle shard is silent. Instances come in pages in order of id, the request's limit of them
// or about PageBytes; the rest comes with each page. Errors: BAD_REQUEST, WRONG_SHARD, NOT_FOUND.
func (m *Machine) DescribeTrack(req *protocol.TrackDescribe, logTime uint64, out *protocol.TrackStatus) error {
	if err := req.Validate(); err != nil {
		return err
	}
	if len(req.Cursor) > protocol.MaxTrackInstance {
		return badCursor()
	}
	x, err := m.readObject(kindTrack, req.Node, req.Name)
	if err != nil {
		return err
	}
	*out = x.track().Describe(m.trackTime(x, logTime))
	out.Index, out.Revision, out.Name = m.applied, x.revision, x.name
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

// TrackLocation says whether a track is here, and has the location if one is named. Errors:
// WRONG_SHARD, NOT_FOUND.
func (m *Machine) TrackLocation(node uint64, name []byte, location string) error {
	x, err := m.readObject(kindTrack, node, name)
	if err == nil && location != "" {
		_, err = x.track().History(location)
	}
	return err
}

// TrackHistory reads a location's history. Errors: BAD_REQUEST, WRONG_SHARD, NOT_FOUND.
func (m *Machine) TrackHistory(req *protocol.TrackHistory, logTime uint64, out *protocol.TrackHistoryReply) error {
	if err := req.Validate(); err != nil {
		return err
	}
	x, err := m.readObject(kindTrack, req.Node, req.Name)
	if err != nil {
		return err
	}
	rows, err := x.track().History(req.Location)
	if err != nil {
		return err
	}
	*out = protocol.TrackHistoryReply{Index: m.applied, Clock: m.trackTime(x, logTime).Log, Rows: rows}
	return nil
}

// ListTracks reads a page of a node's tracks in the active buckets of this shard, in order of name.
// Their states are those at the log time that the leader would stamp now. The cursor is the last
// name of the page before. Errors: BAD_REQUEST, NOT_FOUND.
func (m *Machine) ListTracks(req *protocol.TrackList, logTime uint64, out *protocol.TrackListReply) error {
	if err := req.Validate(); err != nil {
		return err
	}
	*out = protocol.TrackListReply{Index: m.applied, Tracks: out.Tracks[:0], Runs: m.activeRuns(out.Runs)}
	page := objectPage{node: req.Node, prefix: req.Prefix, cursor: req.Cursor, limit: req.Limit}
	return m.listObjects(kindTrack, page, &out.Cursor, func(x *hostedObject) {
		item := x.track().Summary(m.trackTime(x, logTime))
		item.Name = x.name
		out.Tracks = append(out.Tracks, item)
	})
}

// TracksFrom yields the tracks that are active here, in order of node and name, from the one named
// on.
func (m *Machine) TracksFrom(first uint64, name []byte, yield func(node uint64, name []byte) bool) {
	m.objectsFrom(kindTrack, first, name, func(x *hostedObject) bool { return yield(x.node.id, x.name) })
}
