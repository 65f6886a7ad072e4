package shard

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

func appendTrack(b []byte, x *trackRecord, sum *uint64) []byte {
	start := len(b)
	b = varint.Append(b, x.node.id)
	b = varint.AppendBytes(b, x.name)
	b = varint.Append(b, x.revision)
	b = x.state.Append(b)
	return closeRecord(b, start, 0, recordTrack, 0, sum)
}

func (m *Machine) touchTrack(x *trackRecord) {
	if m.snapshot != nil && x.snapMark != m.snapMark {
		m.snapshot.saveTrack(x)
	}
}

func (s *Snapshot) saveTrack(x *trackRecord) {
	if x.snapMark != s.snapMark {
		x.snapMark = s.snapMark
		s.records++
		s.buf = appendTrack(s.buf, x, &s.sum)
	}
}

// walkTracks goes on over the node's tracks, one record at a time.
func (s *Snapshot) walkTracks(n *node, left *int) (more bool) {
	n.tracks.ascend(func(o *trackRecord) bool { return bytes.Compare(o.name, s.name) < 0 }, func(o *trackRecord) bool {
		if more = *left <= 0 || len(s.buf) >= stepBytes; more {
			return false
		}
		*left--
		s.name = append(append(s.name[:0], o.name...), 0)
		s.saveTrack(o)
		return true
	})
	return more
}

type trackLink struct {
	x    *trackRecord
	node uint64
}

func (x *restorer) track(r *varint.Reader) bool {
	l := trackLink{x: new(trackRecord), node: r.Uint()}
	l.x.name, l.x.revision = bytes.Clone(r.Bytes(varint.NoLimit)), r.Uint()
	if r.Failed {
		return false
	}
	state, err := rollout.Decode(r.Rest)
	r.Rest = nil
	l.x.state = state
	x.tracks = append(x.tracks, l)
	return err == nil
}

func (x *restorer) linkTracks() bool {
	m := x.m
	for _, l := range x.tracks {
		t := l.x
		if t.node = x.nodes[l.node]; t.node == nil || len(m.buckets) == 0 {
			return false
		}
		t.bucket = &m.buckets[protocol.Bucket(l.node, t.name, uint32(len(m.buckets)))]
		if m.track(t.bucket, l.node, t.name) != nil {
			return false
		}
		m.linkTrack(t)
		for _, id := range t.state.Sessions() {
			p := m.sessions[id]
			if p == nil || p.node != t.node || !p.addTrack(t) {
				return false
			}
		}
		m.armTrack(t)
	}
	return true
}

const (
	maxTrackRecord = 64 << 20 // bytes; all that a track may have is less
	minTrackPart   = 64       // bytes, however small the chunks are to be
)

// trackPart puts bytes of a track's record into a chunk.
func (w *chunkWriter) trackPart(kind byte, x *trackRecord, part []byte) {
	f := varint.Append(w.fields, x.node.id)
	f = varint.AppendBytes(f, x.name)
	w.put(kind, append(f, part...))
}

func (c *chunkRecord) readTrack(r *varint.Reader, x *BucketsBody) bool {
	c.node, c.name = r.Uint(), r.Bytes(varint.NoLimit)
	c.data = r.Rest
	r.Rest = nil
	return !r.Failed && c.validName(x)
}

// tracks gives the run's tracks, bucket by bucket, in order of key.
func (x *export) tracks() bool {
	for i := max(uint64(x.bucketRange.First), x.cursor.bucket); i < uint64(x.bucketRange.First)+uint64(x.bucketRange.Count); i++ {
		if i != x.cursor.bucket {
			x.cursor = exportCursor{section: sectionTracks, bucket: i}
		}
		b := &x.m.buckets[i]
		for more := true; more; {
			var keys []string
			keys, more = keysFrom(b.tracks, x.cursor.key)
			for _, key := range keys {
				if x.w.full() {
					return false
				}
				x.w.scanBudget--
				if o := b.tracks[key]; !o.node.dropped && !x.track(o, []byte(key)) {
					return false
				}
				x.cursor.key, x.cursor.id = append([]byte(key), 0), 0 // the first key behind it
			}
		}
	}
	return true
}

// track gives a track, or goes on with it: so many bytes of its record as the cursor says are
// given. The last of them come behind what is known of its sessions.
func (x *export) track(o *trackRecord, key []byte) (complete bool) {
	record := o.state.Append(nil)
	if bytes.Equal(x.cursor.key, key) {
		record = record[min(x.cursor.id, uint64(len(record))):]
	} else {
		x.cursor.key, x.cursor.id = key, 0
	}
	if n := max(x.w.maxBytes, minTrackPart); len(record) > n {
		x.w.trackPart(chunkTrackPart, o, record[:n])
		x.cursor.id += uint64(n)
		return false // the chunk is full
	}
	x.w.scanBudget -= o.state.NumInstances()
	for _, id := range o.state.Sessions() {
		if !x.w.writtenSessions[id] {
			x.w.sessionRecord(x.m.sessions[id], nil)
		}
	}
	x.w.trackPart(chunkTrack, o, record)
	return true
}

// importTrackPart keeps bytes of a track's record until the last of them are there.
func (o *importState) importTrackPart(r *chunkRecord) {
	key := appendSemaphoreKey(nil, r.node, r.name)
	if !bytes.Equal(o.openTrack, key) {
		o.openTrack, o.trackBytes = key, nil
	}
	if len(o.trackBytes)+len(r.data) > maxTrackRecord {
		o.openTrack, o.trackBytes = nil, nil
		return
	}
	o.trackBytes = append(o.trackBytes, r.data...)
}

// importTrack adds a track with its sessions' instances. One that does not fit to what is here is
// left out whole.
func (m *Machine) importTrack(o *importState, r *chunkRecord) {
	data := r.data
	if len(o.openTrack) > 0 && bytes.Equal(o.openTrack, appendSemaphoreKey(nil, r.node, r.name)) {
		data = append(o.trackBytes, data...)
	}
	o.openTrack, o.trackBytes = nil, nil
	n := m.nodes[r.node]
	if n == nil {
		return
	}
	b := &m.buckets[protocol.Bucket(r.node, r.name, uint32(len(m.buckets)))]
	state, err := rollout.Decode(data)
	if err != nil || m.track(b, r.node, r.name) != nil {
		return
	}
	ids := state.Sessions()
	for _, id := range ids {
		if p := m.sessions[id]; p == nil || p.node != n {
			return
		}
	}
	x := &trackRecord{bucket: b, node: n, name: bytes.Clone(r.name), state: state, revision: m.applied, snapMark: m.snapMark}
	m.linkTrack(x)
	for _, id := range ids {
		m.addTrackSession(m.sessions[id], x)
	}
	m.armTrack(x)
}

// clearTrack removes one of a dropped copy. It is true.
func (m *Machine) clearTrack(x *trackRecord) bool {
	m.spendWork(1 + len(x.state.Sessions()))
	m.unlinkTrack(x)
	return true
}

// checkTrack says which invariant of a track does not hold, if any.
func (m *Machine) checkTrack(x *trackRecord) error {
	if err := x.state.Check(); err != nil {
		return err
	}
	for _, id := range x.state.Sessions() {
		p := m.sessions[id]
		if p == nil || p.node != x.node || !slices.Contains(p.tracks(), x) {
			return fmt.Errorf("session %d does not know of its instances", id)
		}
	}
	if at, ok := x.state.Next(); ok != (x.timer.pos != 0) || ok && x.timer.at != max(at, 1)-1 {
		return fmt.Errorf("it is due at %d (%v), and its timer is at %d", at, ok, x.timer.at)
	}
	return nil
}
