package shard

import (
	"bytes"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// ChunkBytes is about how large a chunk of an export is at most; one record more, which may have a mebibyte of data.
	ChunkBytes = 256 << 10

	exportLooks = 50_000 // records looked at for one chunk
	exportKeys  = 4_096  // semaphores of a bucket put in order at a time
)

// Export reads the next chunk of a run of buckets that is frozen here for the move with this epoch. The cursor is nil at first, then what the call
// before gave as next, which is nil with the last chunk. Chunks with the same cursor carry the same, whoever asks, but for what was dropped with its
// node meanwhile. maxBytes 0 is ChunkBytes, which is the most too. A call's work is bounded, so that a chunk may be small. Errors: PRECONDITION_FAILED,
// BAD_REQUEST.
//
// It may run beside other reads.
func (m *Machine) Export(first, count uint32, epoch uint64, cursor []byte, maxBytes int) (part, next []byte, err error) {
	run := BucketsBody{Tier: m.tier, Total: uint32(len(m.buckets)), First: first, Count: count, Epoch: epoch}
	if uint64(first)+uint64(count) > uint64(len(m.buckets)) || count == 0 {
		return nil, nil, &protocol.Error{Status: protocol.StatusPreconditionFailed, Message: textNotFrozen}
	}
	for i := first; i < first+count; i++ {
		if b := &m.buckets[i]; b.state != bucketFrozen || b.pending != epoch {
			return nil, nil, &protocol.Error{Status: protocol.StatusPreconditionFailed, Message: textNotFrozen}
		}
	}
	x := export{m: m, run: &run}
	if !x.at.read(cursor) || x.at.section >= atSemaphores && len(x.at.key) > 0 && !run.inRun(x.at.bucket) {
		return nil, nil, &protocol.Error{Status: protocol.StatusBadRequest, Message: textExportCursor}
	}
	x.w = chunkWriter{most: ChunkBytes, looks: exportLooks, parties: make(map[uint64]bool)}
	if maxBytes > 0 {
		x.w.most = min(maxBytes, ChunkBytes)
	}
	for x.at.section != atEnd && x.section() {
		x.at = place{section: x.at.section + 1}
	}
	if x.at.section != atEnd {
		next = x.at.append(nil)
	}
	return x.w.finish(&run, cursor, next), next, nil
}

// export is one call. at stands behind what is in the chunk.
type export struct {
	m   *Machine
	run *BucketsBody
	at  place
	w   chunkWriter
}

// section goes on with the present one; true: it is complete.
func (x *export) section() bool {
	switch x.at.section {
	case atCounters:
		return x.counters()
	case atSessions:
		low, high := x.m.firstSession(x.run.First), x.m.lastSession(x.run.First+x.run.Count-1)
		return x.nodes(func(n *node) (complete bool) {
			complete = true
			n.sessions.ascend(func(s *session) bool { return s.id <= max(x.at.id, low) }, func(s *session) bool {
				if s.id > high {
					return false
				}
				if complete = !x.w.full(); complete {
					x.w.looks--
					x.w.session(s)
					x.at.id = s.id
				}
				return complete
			})
			return complete
		})
	case atEnded:
		return x.ended()
	case atMemory:
		return x.nodes(func(n *node) bool {
			for p := n.partyFrom(&x.at); p != nil; p = n.partyFrom(&x.at) {
				if !x.memory(p) {
					return false
				}
			}
			return true
		})
	case atProcesses:
		return x.processes()
	case atTracks:
		return x.tracks()
	default:
		return x.buckets()
	}
}

// before says that a party is behind the cursor, or in it: seq is of the last of its answers given.
func (p *place) before(id uint64) bool { return id > p.id || id == p.id && p.seq > 0 }

// partyFrom is the node's first party behind the cursor, or in it. Sessions and guests are walked as one: a party may become one of the other kind meanwhile.
func (n *node) partyFrom(at *place) (p *party) {
	n.sessions.ascend(func(s *session) bool { return !at.before(s.id) }, func(s *session) bool {
		p = s.party
		return false
	})
	n.guests.ascend(func(o *party) bool { return !at.before(o.id) }, func(o *party) bool {
		if p == nil || o.id < p.id {
			p = o
		}
		return false
	})
	return p
}

// nodes goes over the nodes from the one of the cursor on.
func (x *export) nodes(one func(*node) bool) bool {
	for {
		n := x.m.nodeFrom(x.at.node)
		if n == nil {
			return true
		}
		if n.id != x.at.node {
			x.at.node, x.at.id, x.at.seq = n.id, 0, 0
		}
		if x.w.full() {
			return false
		}
		x.w.looks--
		if !n.dropped && !one(n) {
			return false
		}
		if n.id+1 == 0 {
			return true
		}
		x.at.node, x.at.id, x.at.seq = n.id+1, 0, 0
	}
}

func (x *export) counters() bool {
	for i := max(uint64(x.run.First), x.at.bucket); i < uint64(x.run.First)+uint64(x.run.Count); i++ {
		if x.w.full() {
			return false
		}
		x.w.counters(&x.m.buckets[i])
		x.at.bucket = i + 1
	}
	return true
}

// ended gives the create ids of sessions that ended lately, in order.
func (x *export) ended() bool {
	var keys []retainedKey[[protocol.KeyLen]byte]
	for key, until := range x.m.ended.until { // sorted below
		if x.m.logTime <= until && x.run.inRun(uint64(protocol.HomeBucket(key, x.run.Total))) && bytes.Compare(x.at.key, key[:]) < 0 {
			keys = append(keys, retainedKey[[protocol.KeyLen]byte]{key, until})
		}
	}
	slices.SortFunc(keys, func(a, b retainedKey[[protocol.KeyLen]byte]) int { return bytes.Compare(a.key[:], b.key[:]) })
	for i := range keys {
		if x.w.full() {
			return false
		}
		x.w.ended(keys[i].key, keys[i].until-x.m.logTime)
		x.at.key = keys[i].key[:]
	}
	return true
}

// memory gives the answers a party remembers of requests on the run's semaphores.
func (x *export) memory(p *party) bool {
	if x.w.full() {
		return false
	}
	x.w.looks--
	after := uint64(0)
	if p.id == x.at.id {
		after = x.at.seq
	}
	var part []answer
	size := 0
	live := p.answers.list[p.answers.head:]
	x.w.looks -= len(live) / 16
	for i := range live {
		a := &live[i]
		if a.seq <= after || !x.run.inRun(uint64(a.bucket)) {
			continue
		}
		if size += 24 + len(a.said); size > x.w.most && len(part) > 0 {
			x.w.party(p, part)
			x.at.id, x.at.seq = p.id, part[len(part)-1].seq
			return false
		}
		part = append(part, *a)
	}
	if len(part) > 0 {
		x.w.party(p, part)
	}
	x.at.id, x.at.seq = p.id, 0
	return true
}

// buckets gives the semaphores, bucket by bucket, in order of key.
func (x *export) buckets() bool {
	for i := max(uint64(x.run.First), x.at.bucket); i < uint64(x.run.First)+uint64(x.run.Count); i++ {
		if i != x.at.bucket {
			x.at = place{section: atSemaphores, bucket: i}
		}
		for more := true; more; {
			var keys []string
			keys, more = keysFrom(x.m.buckets[i].semaphores, x.at.key)
			for _, key := range keys {
				if x.w.full() {
					return false
				}
				x.w.looks--
				if !x.semaphore(x.m.buckets[i].semaphores[key], []byte(key)) {
					return false
				}
			}
		}
	}
	return true
}

// semaphore gives one, or goes on with it: order ids up to id are given. A complete one is behind the cursor.
func (x *export) semaphore(s *semaphore, key []byte) bool {
	if s.node.dropped {
		x.at.key, x.at.id = append(key, 0), 0
		return true
	}
	after, given := uint64(0), 0
	if bytes.Equal(x.at.key, key) {
		after = x.at.id
	}
	x.w.semaphore(s, after > 0)
	x.at.key = key
	for _, t := range []*treap{&s.owners, &s.waiters} {
		for e := t.seekOrder(after); e != nil; e = next(e, byOrder) {
			if x.w.full() && given > 0 {
				return false
			}
			given++
			x.w.looks--
			x.w.entry(e)
			x.at.id, after = e.orderID, e.orderID
		}
	}
	x.at.key, x.at.id = append(key, 0), 0 // the first key behind it
	return true
}

// keysFrom are the next keys of a bucket's semaphores, or processes, in order, from one on; more: there are others behind them.
func keysFrom[T any](things map[string]T, from []byte) (keys []string, more bool) {
	start, limit := string(from), ""
	for key := range things { // sorted below
		if key < start || limit != "" && key >= limit {
			continue
		}
		keys = append(keys, key)
		if len(keys) == 2*exportKeys {
			slices.Sort(keys)
			keys, limit, more = keys[:exportKeys], keys[exportKeys], true
		}
	}
	slices.Sort(keys)
	if len(keys) > exportKeys {
		return keys[:exportKeys], true
	}
	return keys, more
}

// Imported says how far the import of a run under this epoch is: the cursor of the next chunk (nil before the first), or that it is complete, as it stays
// after the activation. ok is false when nothing can be imported under this epoch any more.
func (m *Machine) Imported(first, count uint32, epoch uint64) (cursor []byte, complete, ok bool) {
	if uint64(first)+uint64(count) > uint64(len(m.buckets)) {
		return nil, false, len(m.buckets) == 0
	}
	complete = count > 0
	for i := first; i < first+count; i++ {
		b := &m.buckets[i]
		switch {
		case b.epoch == epoch && (b.state == bucketImported || b.state == bucketActive):
			continue
		case b.state == bucketActive, b.known() > epoch, b.known() == epoch && b.state != bucketImporting:
			return nil, false, false
		}
		complete = false
	}
	if i := m.importOf(&BucketsBody{First: first, Count: count, Epoch: epoch}); i >= 0 {
		cursor = bytes.Clone(m.imports[i].next)
	}
	return cursor, complete, true
}
