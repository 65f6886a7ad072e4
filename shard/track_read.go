package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// readTrack finds a track without touching the machine: reads run beside each other. Errors:
// WRONG_SHARD; NOT_FOUND for the node or the track.
func (m *Machine) readTrack(node uint64, name []byte) (*trackRecord, error) {
	b, _, err := m.readBucket(node, name)
	if err != nil {
		return nil, err
	}
	var key [8 + protocol.MaxNameLen]byte
	x := b.tracks[string(appendSemaphoreKey(key[:0], node, name))]
	if x == nil {
		return nil, &protocol.Error{Status: protocol.StatusNotFound, Message: textNoTrack}
	}
	return x, nil
}

// trackTime is the time of a read: that of the bucket at a log time, or now if the log is further.
func (m *Machine) trackTime(x *trackRecord, logTime uint64) rollout.Now {
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
	x, err := m.readTrack(req.Node, req.Name)
	if err != nil {
		return err
	}
	*out = x.state.Describe(m.trackTime(x, logTime))
	out.Index, out.Revision, out.Name = m.applied, x.revision, x.name
	if req.Flags&protocol.WithTrackConfig != 0 {
		out.Config = x.state.Config()
	}
	if req.Flags&protocol.WithTrackInstances == 0 {
		return nil
	}
	p := newPage(req.Limit, PageBytes)
	for _, id := range x.state.InstancesAfter(string(req.Cursor), p.maxEntries+1) {
		i, err := x.state.Instance(id)
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
	x, err := m.readTrack(node, name)
	if err == nil && location != "" {
		_, err = x.state.History(location)
	}
	return err
}

// TrackHistory reads a location's history. Errors: BAD_REQUEST, WRONG_SHARD, NOT_FOUND.
func (m *Machine) TrackHistory(req *protocol.TrackHistory, logTime uint64, out *protocol.TrackHistoryReply) error {
	if err := req.Validate(); err != nil {
		return err
	}
	x, err := m.readTrack(req.Node, req.Name)
	if err != nil {
		return err
	}
	rows, err := x.state.History(req.Location)
	if err != nil {
		return err
	}
	*out = protocol.TrackHistoryReply{Index: m.applied, Clock: m.trackTime(x, logTime).Log, Rows: rows}
	return nil
}

// ListTracks reads a page of a node's tracks in the active buckets of this shard, in order of name.
// The cursor is the last name of the page before. Errors: BAD_REQUEST, NOT_FOUND.
func (m *Machine) ListTracks(req *protocol.TrackList, out *protocol.TrackListReply) error {
	if err := req.Validate(); err != nil {
		return err
	}
	n, err := m.readNode(req.Node)
	if err != nil {
		return err
	}
	l, err := newListing(req.Prefix, req.Cursor, req.Limit)
	if err != nil {
		return err
	}
	*out = protocol.TrackListReply{Index: m.applied, Tracks: out.Tracks[:0]}
	n.tracks.ascend(func(x *trackRecord) bool { return bytes.Compare(x.name, l.from) < 0 }, func(x *trackRecord) bool {
		if take, more := l.look(x.name, x.bucket, 48, &out.Cursor); !take {
			return more
		}
		item := x.state.Summary()
		item.Name = x.name
		out.Tracks = append(out.Tracks, item)
		return true
	})
	return nil
}

// TracksFrom yields the tracks that are active here, in order of node and name, from the one named
// on.
func (m *Machine) TracksFrom(first uint64, name []byte, yield func(node uint64, name []byte) bool) {
	more := true
	m.nodeIndex.ascend(func(n *node) bool { return n.id < first }, func(n *node) bool {
		if n.dropped {
			return true
		}
		n.tracks.ascend(func(x *trackRecord) bool { return n.id == first && bytes.Compare(x.name, name) < 0 }, func(x *trackRecord) bool {
			more = x.bucket.state != bucketActive || yield(n.id, x.name)
			return more
		})
		return more
	})
}
