package shard

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

func appendTrack(b []byte, x *track, sum *uint64) []byte {
	start := len(b)
	b = binary.AppendUvarint(b, x.node.id)
	b = appendBytes(b, x.name)
	b = binary.AppendUvarint(b, x.revision)
	b = x.state.Append(b)
	return closeRecord(b, start, 0, recordTrack, 0, sum)
}

func (m *Machine) touchTrack(x *track) {
	if m.snap != nil && x.mark != m.mark {
		m.snap.saveTrack(x)
	}
}

func (s *Snapshot) saveTrack(x *track) {
	if x.mark != s.mark {
		x.mark = s.mark
		s.records++
		s.buf = appendTrack(s.buf, x, &s.sum)
	}
}

// walkTracks goes on over the node's tracks, one record at a time.
func (s *Snapshot) walkTracks(n *node, left *int) (more bool) {
	n.tracks.ascend(func(o *track) bool { return bytes.Compare(o.name, s.name) < 0 }, func(o *track) bool {
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
	x    *track
	node uint64
}

func (x *restorer) track(r *reader) bool {
	l := trackLink{x: new(track), node: r.uvarint()}
	l.x.name, l.x.revision = bytes.Clone(r.bytes()), r.uvarint()
	if r.bad {
		return false
	}
	state, err := rollout.Decode(r.b)
	r.b = nil
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
			p := m.parties[id]
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
func (w *chunkWriter) trackPart(kind byte, x *track, part []byte) {
	f := binary.AppendUvarint(w.fields, x.node.id)
	f = appendBytes(f, x.name)
	w.put(kind, append(f, part...))
}

func (c *chunkRecord) readTrack(r *reader, x *BucketsBody) bool {
	c.node, c.name = r.uvarint(), r.bytes()
	c.data = r.b
	r.b = nil
	return !r.bad && c.named(x)
}

// tracks gives the run's tracks, bucket by bucket, in order of key.
func (x *export) tracks() bool {
	for i := max(uint64(x.run.First), x.at.bucket); i < uint64(x.run.First)+uint64(x.run.Count); i++ {
		if i != x.at.bucket {
			x.at = place{section: atTracks, bucket: i}
		}
		b := &x.m.buckets[i]
		for more := true; more; {
			var keys []string
			keys, more = keysFrom(b.tracks, x.at.key)
			for _, key := range keys {
				if x.w.full() {
					return false
				}
				x.w.looks--
				if o := b.tracks[key]; !o.node.dropped && !x.track(o, []byte(key)) {
					return false
				}
				x.at.key, x.at.id = append([]byte(key), 0), 0 // the first key behind it
			}
		}
	}
	return true
}

// track gives a track, or goes on with it: so many bytes of its record as the cursor says are given. The last of them come behind what is known of its sessions.
func (x *export) track(o *track, key []byte) (complete bool) {
	record := o.state.Append(nil)
	if bytes.Equal(x.at.key, key) {
		record = record[min(x.at.id, uint64(len(record))):]
	} else {
		x.at.key, x.at.id = key, 0
	}
	if n := max(x.w.most, minTrackPart); len(record) > n {
		x.w.trackPart(chunkTrackPart, o, record[:n])
		x.at.id += uint64(n)
		return false // the chunk is full
	}
	x.w.looks -= o.state.Instances()
	for _, id := range o.state.Sessions() {
		if !x.w.parties[id] {
			x.w.party(x.m.parties[id], nil)
		}
	}
	x.w.trackPart(chunkTrack, o, record)
	return true
}

// importTrackPart keeps bytes of a track's record until the last of them are there.
func (o *importing) importTrackPart(r *chunkRecord) {
	key := appendSemaphoreKey(nil, r.node, r.name)
	if !bytes.Equal(o.track, key) {
		o.track, o.part = key, nil
	}
	if len(o.part)+len(r.data) > maxTrackRecord {
		o.track, o.part = nil, nil
		return
	}
	o.part = append(o.part, r.data...)
}

// importTrack adds a track with its sessions' instances. One that does not fit to what is here is left out whole.
func (m *Machine) importTrack(o *importing, r *chunkRecord) {
	data := r.data
	if len(o.track) > 0 && bytes.Equal(o.track, appendSemaphoreKey(nil, r.node, r.name)) {
		data = append(o.part, data...)
	}
	o.track, o.part = nil, nil
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
		if p := m.parties[id]; p == nil || p.node != n {
			return
		}
	}
	x := &track{bucket: b, node: n, name: bytes.Clone(r.name), state: state, revision: m.applied, mark: m.mark}
	m.linkTrack(x)
	for _, id := range ids {
		m.joinTrack(m.parties[id], x)
	}
	m.armTrack(x)
}

// clearTrack lets go of one in a dropped copy. It is true.
func (m *Machine) clearTrack(x *track) bool {
	m.spend(1 + len(x.state.Sessions()))
	m.unlinkTrack(x)
	return true
}

// checkTrack says which invariant of a track does not hold, if any.
func (m *Machine) checkTrack(x *track) error {
	if err := x.state.Check(); err != nil {
		return err
	}
	for _, id := range x.state.Sessions() {
		p := m.parties[id]
		if p == nil || p.node != x.node || !slices.Contains(p.tracks(), x) {
			return fmt.Errorf("session %d does not know of its instances", id)
		}
	}
	if at, ok := x.state.Next(); ok != (x.timer.pos != 0) || ok && x.timer.at != max(at, 1)-1 {
		return fmt.Errorf("it is due at %d (%v), and its timer is at %d", at, ok, x.timer.at)
	}
	return nil
}
