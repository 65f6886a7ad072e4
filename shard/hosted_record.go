package shard

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol/varint"
)

func (h *hostedObject) snapshotMark() *uint32 { return &h.snapMark }

func (h *hostedObject) appendRecord(b []byte, sum *uint64) []byte {
	start := len(b)
	b = varint.Append(b, h.node.id)
	b = varint.AppendBytes(b, h.name)
	b = varint.Append(b, h.revision)
	b = h.state.Append(b)
	return closeRecord(b, start, 0, hostedKinds[h.kind].record, 0, sum)
}

// walkObjects continues over the node's objects of one kind.
func (s *Snapshot) walkObjects(n *node, left *int) (more bool) {
	before := func(o *hostedObject) bool { return bytes.Compare(o.name, s.name) < 0 }
	return walkIndex(s, &n.objects[s.kind], left, before, func(o *hostedObject) {
		s.name = append(append(s.name[:0], o.name...), 0)
		s.save(o)
	})
}

type objectLink struct {
	x    *hostedObject
	node uint64
}

// object reads the record of an object. It is false if no kind has such records.
func (x *restorer) object(record recordKind, r *varint.Reader) (known, ok bool) {
	i := slices.IndexFunc(hostedKinds[:], func(k hostedKind) bool { return k.record == record })
	if i < 0 {
		return false, false
	}
	kind := &hostedKinds[i]
	l := objectLink{x: &hostedObject{kind: kindNumber(i)}, node: r.Uint()}
	l.x.name, l.x.revision = bytes.Clone(r.Bytes(varint.NoLimit)), r.Uint()
	if r.Failed || !kind.validName(l.x.name) {
		return true, false
	}
	state, err := kind.decode(r.Rest)
	r.Rest = nil
	l.x.state = state
	x.objects = append(x.objects, l)
	return true, err == nil
}

func (x *restorer) linkObjects() bool {
	m := x.m
	slices.SortFunc(x.objects, func(a, b objectLink) int {
		return cmp.Or(cmp.Compare(a.x.kind, b.x.kind), cmp.Compare(a.node, b.node), bytes.Compare(a.x.name, b.x.name))
	})
	var ids []uint64
	for _, l := range x.objects {
		o := l.x
		if o.node = x.nodes[l.node]; o.node == nil || len(m.buckets) == 0 {
			return false
		}
		o.bucket = m.objectBucket(o.kind, l.node, o.name)
		if o.bucket.object(m, o.kind, l.node, o.name) != nil {
			return false
		}
		o.link(m)
		ids = o.state.sessions(ids[:0])
		for _, id := range ids {
			if p := m.sessions.get(id); p == nil || p.node != o.node || !p.linkHolding(o) {
				return false
			}
		}
		o.schedule(m)
	}
	return true
}

const (
	maxPartedRecord = 64 << 20 // bytes; all that a record in parts may have is less
	minPart         = 64       // bytes, however small the chunks are to be
)

// putObject puts an object's record, or bytes of it, into a chunk.
func (w *chunkWriter) putObject(chunk byte, x *hostedObject, record []byte) {
	f := varint.Append(w.fields, x.node.id)
	f = varint.AppendBytes(f, x.name)
	w.put(chunk, append(f, record...))
}

// readObject reads what putObject wrote. It is false if no kind has such records.
func (c *chunkRecord) readObject(r *varint.Reader, x *BucketsBody) bool {
	i := slices.IndexFunc(hostedKinds[:],
		func(k hostedKind) bool { return c.kind == k.chunk || c.kind == k.chunkPart })
	if i < 0 || c.kind == 0 {
		return false
	}
	kind := &hostedKinds[i]
	c.object, c.piece = kindNumber(i), c.kind == kind.chunkPart
	c.node, c.name = r.Uint(), r.Bytes(varint.NoLimit)
	c.data = r.Rest
	r.Rest = nil
	return !r.Failed && kind.validName(c.name) && x.contains(uint64(kind.bucket(c.node, c.name, x.Total)))
}

// object gives an object, or continues with it: so many bytes of its record as the cursor says are
// given, or the sessions up to the cursor's. The last bytes come behind all of its sessions. Those
// whose descriptions are in earlier chunks, as many as fit, have none there.
func (x *export) object(o *hostedObject, key []byte) (complete bool) {
	kind := &hostedKinds[o.kind]
	if !o.node.dropped {
		sessions := o.state.sessions(nil)
		slices.Sort(sessions)
		if !bytes.Equal(x.cursor.key, key) {
			x.cursor.key, x.cursor.id, x.cursor.seq = key, 0, 0
		}
		if after := x.cursor.seq; after > 0 || x.cursor.id == 0 {
			for _, id := range sessions {
				if id <= after {
					continue
				}
				if x.w.full() && x.cursor.seq > after {
					return false
				}
				if !x.w.writtenSessions[id] {
					x.w.scanBudget--
					x.w.sessionRecord(x.m.sessions.get(id), true, nil)
				}
				x.cursor.seq = id
			}
			x.cursor.seq = 0
		}
		record := o.state.Append(nil)
		record = record[min(x.cursor.id, uint64(len(record))):]
		if n := max(x.w.maxBytes, minPart); kind.chunkPart != 0 && len(record) > n {
			x.w.putObject(kind.chunkPart, o, record[:n])
			x.cursor.id += uint64(n)
			return false // the chunk is full
		}
		x.w.scanBudget -= o.state.size()
		for _, id := range sessions {
			if !x.w.writtenSessions[id] {
				x.w.sessionRecord(x.m.sessions.get(id), false, nil)
			}
		}
		x.w.putObject(kind.chunk, o, record)
	}
	x.cursor.key, x.cursor.id, x.cursor.seq = append(key, 0), 0, 0 // the first key behind it
	return true
}

// importObjectPart keeps bytes of a record until the last of them are there.
func (i *importState) importObjectPart(r *chunkRecord) {
	key := appendSemaphoreKey(nil, r.node, r.name)
	if !bytes.Equal(i.openObject, key) {
		i.openObject, i.objectBytes = key, nil
	}
	if len(i.objectBytes)+len(r.data) > maxPartedRecord {
		i.openObject, i.objectBytes = nil, nil
		return
	}
	i.objectBytes = append(i.objectBytes, r.data...)
}

// importObject adds an object with its sessions' places. One that does not fit to what is here is
// left out whole.
func (i *importState) importObject(m *Machine, r *chunkRecord) {
	kind, data := &hostedKinds[r.object], r.data
	if kind.chunkPart != 0 {
		if len(i.openObject) > 0 && bytes.Equal(i.openObject, appendSemaphoreKey(nil, r.node, r.name)) {
			data = append(i.objectBytes, data...)
		}
		i.openObject, i.objectBytes = nil, nil
	}
	n := m.nodes[r.node]
	if n == nil {
		return
	}
	b := m.objectBucket(r.object, r.node, r.name)
	state, err := kind.decode(data)
	if err != nil || b.object(m, r.object, r.node, r.name) != nil {
		return
	}
	ids := state.sessions(nil)
	for _, id := range ids {
		if p := m.sessions.get(id); p == nil || p.node != n {
			return
		}
	}
	x := newObject(m, r.object, b, n, r.name, state)
	x.link(m)
	for _, id := range ids {
		m.sessions.get(id).addHolding(m, x)
	}
	x.schedule(m)
}

// checkObject says which invariant of an object does not hold, if any.
func checkObject(m *Machine, x *hostedObject) error {
	if err := x.state.Check(); err != nil {
		return err
	}
	for _, id := range x.state.sessions(nil) {
		p := m.sessions.get(id)
		if p == nil || p.node != x.node {
			return fmt.Errorf("its session %d is not known here", id)
		}
		if i, found := p.objects(x.kind).find(x.name); !found || p.objects(x.kind)[i] != x {
			return fmt.Errorf("its session %d does not know of it", id)
		}
	}
	at, ok := x.state.Next()
	switch {
	case ok != (x.timer.pos != 0) || ok && x.timer.at != max(at, 1)-1:
		return fmt.Errorf("it is due at %d (%v), and its timer is at %d", at, ok, x.timer.at)
	case x.called || x.deleted:
		return fmt.Errorf("it is called or deleted, and still there")
	}
	return nil
}

// checkHoldings checks that each of the session's objects is in its place.
func checkHoldings(m *Machine, p *sessionRecord) error {
	if p.holdings != nil && p.holdings.count() == 0 {
		return fmt.Errorf("it keeps an empty set of holdings")
	}
	for kind := kindNumber(0); kind < kindCount; kind++ {
		var last *hostedObject
		for _, x := range p.objects(kind) {
			if last != nil && !objectLess(last, x) || x.bucket.object(m, kind, p.node.id, x.name) != x {
				return fmt.Errorf("its place in the %s %q is wrong", hostedKinds[kind].name, x.name)
			}
			last = x
		}
	}
	return nil
}
