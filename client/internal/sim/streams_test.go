package sim

import (
	"bytes"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// stream is a watch that a replica serves. It follows server/delivery: pages of the state first, in
// order of name, and between them and after them the changes of names that were covered. Replicas
// that lag serve streams too.
type stream struct {
	k      *conn
	id     uint64
	name   []byte
	prefix bool
	cursor []byte // where the next page begins
	paged  []byte // names up to this one are covered; nil: none
	live   bool   // all are
}

func (s *stream) concerns(name []byte) bool {
	return bytes.Equal(s.name, name) || s.prefix && bytes.HasPrefix(name, s.name)
}

func (s *stream) covers(name []byte) bool {
	return s.live || s.paged != nil && bytes.Compare(name, s.paged) <= 0
}

func (s *stream) restart() { s.cursor, s.paged, s.live = nil, nil, false }

// watch opens a stream.
func (in *instance) watch(k *conn, h protocol.Header) {
	var m protocol.Watch
	in.decode(&m, h)
	i := slices.IndexFunc(in.hosted, func(r *replica) bool { return r.s.id == m.Shard })
	if i < 0 {
		in.rejectElsewhere(k, h)
		return
	}
	r := in.hosted[i]
	switch _, known := r.m.Nodes().Config(node); {
	case !known:
		k.fail(h.Kind, h.ID, protocol.StatusUnavailable, protocol.Failure{})
	case !m.Prefix && !r.isActive(h.Arg) && in.known.owner[h.Arg] != r.s.id:
		in.rejectElsewhere(k, h)
	case !m.Prefix && !r.isActive(h.Arg):
		r.reject(&origin{k: k, kind: h.Kind, id: h.ID}, protocol.StatusWrongShard, protocol.RefusalNone, "")
	default:
		r.streams = append(r.streams, &stream{k: k, id: h.ID, name: bytes.Clone(m.Name), prefix: m.Prefix})
		in.w.counts["stream opened"]++
		k.reply(h.Kind, h.ID, nil)
	}
}

func (in *instance) unwatch(k *conn, h protocol.Header) {
	var m protocol.Unwatch
	in.decode(&m, h)
	for _, r := range in.hosted {
		r.streams = slices.DeleteFunc(r.streams, func(s *stream) bool { return s.k == k && s.id == m.WatchID })
	}
	k.reply(h.Kind, h.ID, nil)
}

func (r *replica) cutStreams(status protocol.Status, which func(*stream) bool) {
	r.streams = slices.DeleteFunc(r.streams, func(s *stream) bool {
		cut := which(s)
		if cut {
			s.k.send(protocol.KindStreamCut, s.id, r.s.id, &protocol.StreamCut{Status: status})
			r.w.counts["stream cut by the server"]++
		}
		return cut
	})
}

// sendPages sends the next page of each stream that is not live.
func (r *replica) sendPages() {
	w := r.w
	r.streams = slices.DeleteFunc(r.streams, func(s *stream) bool { return !s.k.open })
	r.cutStreams(protocol.StatusUnavailable, func(*stream) bool { return w.fault(CutStream, r.n, 0.002) })
	for _, s := range r.streams {
		if s.live && w.fault(RestartStream, r.n, 0.002) {
			s.restart() // its reader is slow
		}
		if s.live {
			continue
		}
		var page protocol.Snapshot
		next, err := r.m.Semaphores().StreamSnapshot(node, s.name, s.prefix, s.cursor, 150, &page)
		if err != nil {
			r.cutStreams(protocol.StatusOf(err), func(x *stream) bool { return x == s })
			return
		}
		s.cursor, s.live = next, next == nil
		if n := len(page.Semaphores); n > 0 {
			s.paged = bytes.Clone(page.Semaphores[n-1].Name)
		}
		s.k.send(protocol.KindSnapshot, s.id, r.s.id, &page)
	}
}

// sendChanges sends what an entry changed, once over each connection.
func (r *replica) sendChanges(changes []shard.SemaphoreChange) {
	for len(changes) > 0 {
		name, n := changes[0].Name, 0
		m := &protocol.Delta{Node: node, Name: name, Index: uint64(r.applied)}
		for n < len(changes) && bytes.Equal(changes[n].Name, name) {
			m.Changes = append(m.Changes, changes[n].SemaphoreChange)
			n++
		}
		changes = changes[n:]
		var sent []*conn
		for _, s := range r.streams {
			if s.concerns(name) && s.covers(name) && !slices.Contains(sent, s.k) {
				sent = append(sent, s.k)
				s.k.send(protocol.KindDelta, 0, r.s.id, m)
			}
		}
	}
}

// bucketsChanged is called when buckets come to the shard or leave it. Streams over names in the
// latter end.
func (r *replica) bucketsChanged(left func(bucket uint32) bool) {
	r.cutStreams(protocol.StatusWrongShard, func(s *stream) bool {
		return !s.prefix && left(protocol.Bucket(node, s.name, buckets))
	})
	for _, s := range r.streams {
		if s.prefix {
			s.restart()
		}
	}
}
