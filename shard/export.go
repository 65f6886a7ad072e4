package shard

import (
	"bytes"
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

const (
	// ChunkBytes bounds a chunk of an export. The last record may exceed it by up to 1 MiB.
	ChunkBytes = 256 << 10

	exportScanLimit = 50_000 // records looked at for one chunk
	exportSortLimit = 4_096  // semaphores of a bucket put in order at a time
)

// Buckets reads copies of buckets for a move.
type Buckets struct{ reader }

// Export reads the next chunk of a run of buckets that is frozen here for the move with this epoch.
// The cursor is nil at first, then what the call before gave as next, which is nil with the last
// chunk. Chunks with the same cursor carry the same, in every call, but for what was dropped with
// its node meanwhile. maxBytes 0 is ChunkBytes, which is the most too. A call's work is bounded, so
// that a chunk may be small. Errors: PRECONDITION_FAILED, BAD_REQUEST.
func (r Buckets) Export(
	first, count uint32, epoch uint64, cursor []byte, maxBytes int,
) (part, next []byte, err error) {
	run := BucketsBody{Tier: r.m.tier, Total: uint32(len(r.m.buckets)), First: first, Count: count, Epoch: epoch}
	if uint64(first)+uint64(count) > uint64(len(r.m.buckets)) || count == 0 {
		return nil, nil, &protocol.Error{Status: protocol.StatusPreconditionFailed, Message: textNotFrozen}
	}
	for i := first; i < first+count; i++ {
		if b := &r.m.buckets[i]; b.state != bucketFrozen || b.moveEpoch != epoch {
			return nil, nil, &protocol.Error{Status: protocol.StatusPreconditionFailed, Message: textNotFrozen}
		}
	}
	x := export{m: r.m, bucketRange: &run}
	if !x.cursor.read(cursor) || x.cursor.section >= sectionSemaphores && len(x.cursor.key) > 0 &&
		!run.contains(x.cursor.bucket) {
		return nil, nil, &protocol.Error{Status: protocol.StatusBadRequest, Message: textExportCursor}
	}
	x.w = chunkWriter{maxBytes: ChunkBytes, scanBudget: exportScanLimit, writtenSessions: make(map[uint64]bool)}
	if maxBytes > 0 {
		x.w.maxBytes = min(maxBytes, ChunkBytes)
	}
	for x.cursor.section != sectionEnd && x.section() {
		x.cursor = exportCursor{section: x.cursor.section + 1}
	}
	if x.cursor.section != sectionEnd {
		next = x.cursor.append(nil)
	}
	return x.w.finish(r.m.format, &run, cursor, next), next, nil
}

// export is one call. Its cursor is behind the last item of the chunk.
type export struct {
	m           *Machine
	bucketRange *BucketsBody
	cursor      exportCursor
	w           chunkWriter
}

// section goes on with the present one; true: it is complete.
func (x *export) section() bool {
	switch x.cursor.section {
	case sectionCounters:
		return x.counters()
	case sectionSessions:
		low, high := x.m.homeIDs(x.bucketRange.First, x.bucketRange.Count)
		return x.eachNode(func(n *node) (complete bool) {
			complete = true
			n.homeSessions.Ascend(func(s *homeSession) bool {
				return s.id <= max(x.cursor.id, low)
			}, func(s *homeSession) bool {
				if s.id > high {
					return false
				}
				if complete = !x.w.full(); complete {
					x.w.scanBudget--
					x.w.homeSession(s)
					x.cursor.id = s.id
				}
				return complete
			})
			return complete
		})
	case sectionEndedCreateIDs:
		return x.endedCreateIDs()
	case sectionAnswers:
		return x.eachNode(func(n *node) bool { return n.eachSessionRecord(&x.m.sessions, x.cursor, x.answers) })
	case sectionSemaphores:
		return exportKeyed(x, x.m.semaphores.in, x.semaphore)
	}
	kind := x.cursor.section - sectionObjects
	return exportKeyed(x, func(b *bucket) iter.Seq[*hostedObject] { return maps.Values(b.objects[kind]) }, x.object)
}

// precedes reports whether a session's record is behind the cursor, or in it: seq is the last of
// its answers that was given.
func (e *exportCursor) precedes(id uint64) bool { return id > e.id || id == e.id && e.seq > 0 }

// eachSessionRecord walks the node's session records behind the cursor, or in it, until yield
// returns false. Sessions and remote sessions are walked as one: a session record may become one of
// the other kind meanwhile.
func (n *node) eachSessionRecord(all *sessionSet, at exportCursor, yield func(*sessionRecord) bool) bool {
	homes := n.homeSessions.From(func(s *homeSession) bool { return !at.precedes(s.id) })
	remotes := n.remoteSessions.From(func(id uint64) bool { return !at.precedes(id) })
	s, remote := homes.Next(), remotes.Next()
	for s != nil || remote != 0 {
		var first *sessionRecord
		if remote == 0 || s != nil && s.id < remote {
			first, s = s.sessionRecord, homes.Next()
		} else {
			first, remote = all.get(remote), remotes.Next()
		}
		if !yield(first) {
			return false
		}
	}
	return true
}

// eachNode visits the nodes from the cursor's on.
func (x *export) eachNode(one func(*node) bool) bool {
	for {
		n := x.m.nodeFrom(x.cursor.node)
		if n == nil {
			return true
		}
		if n.id != x.cursor.node {
			x.cursor.node, x.cursor.id, x.cursor.seq = n.id, 0, 0
		}
		if x.w.full() {
			return false
		}
		x.w.scanBudget--
		if !n.dropped && !one(n) {
			return false
		}
		if n.id+1 == 0 {
			return true
		}
		x.cursor.node, x.cursor.id, x.cursor.seq = n.id+1, 0, 0
	}
}

func (x *export) counters() bool {
	for i := max(uint64(x.bucketRange.First), x.cursor.bucket); i < uint64(x.bucketRange.First)+uint64(
		x.bucketRange.Count); i++ {
		if x.w.full() {
			return false
		}
		x.w.counters(&x.m.buckets[i])
		x.cursor.bucket = i + 1
	}
	return true
}

// endedCreateIDs gives the create ids of sessions that ended lately, in order.
func (x *export) endedCreateIDs() bool {
	var keys []container.ExpiringKey[[protocol.KeyLen]byte]
	for _, k := range x.m.endedCreateIDs.Queue() {
		if x.m.logTime <= k.Until && bytes.Compare(x.cursor.key, k.Key[:]) < 0 &&
			x.bucketRange.contains(uint64(protocol.HomeBucket(k.Key, x.bucketRange.Total))) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys,
		func(a, b container.ExpiringKey[[protocol.KeyLen]byte]) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	for i := range keys {
		if x.w.full() {
			return false
		}
		x.w.endedCreateID(keys[i].Key, keys[i].Until-x.m.logTime)
		x.cursor.key = keys[i].Key[:]
	}
	return true
}

// answers gives the answers that a session remembers of requests on the range's semaphores.
func (x *export) answers(p *sessionRecord) bool {
	if x.w.full() {
		return false
	}
	x.w.scanBudget--
	after := uint64(0)
	if p.id == x.cursor.id {
		after = x.cursor.seq
	}
	var part []answer
	size := 0
	live := p.answers.list[p.answers.head:]
	x.w.scanBudget -= len(live) / 16
	for i := range live {
		a := &live[i]
		if a.seq <= after || !x.bucketRange.contains(uint64(a.bucket)) {
			continue
		}
		if size += 24; size > x.w.maxBytes && len(part) > 0 {
			x.w.sessionRecord(p, true, part)
			x.cursor.id, x.cursor.seq = p.id, part[len(part)-1].seq
			return false
		}
		part = append(part, *a)
	}
	if len(part) > 0 {
		x.w.sessionRecord(p, true, part)
	}
	x.cursor.id, x.cursor.seq = p.id, 0
	return true
}

// exportKeyed gives the objects of the run, bucket by bucket, in order of key. one gives an object
// and moves the cursor behind it; it is false when the chunk is full.
func exportKeyed[T keyed](x *export, objects func(*bucket) iter.Seq[T], one func(o T, key []byte) bool) bool {
	for i := max(uint64(x.bucketRange.First), x.cursor.bucket); i < uint64(x.bucketRange.First)+uint64(
		x.bucketRange.Count); i++ {
		if i != x.cursor.bucket {
			x.cursor = exportCursor{section: x.cursor.section, bucket: i}
		}
		all := objects(&x.m.buckets[i])
		for more := true; more; {
			var list []T
			list, more = keyedFrom(all, x.cursor.key)
			for _, o := range list {
				if x.w.full() {
					return false
				}
				x.w.scanBudget--
				node, name := o.key()
				if !one(o, appendSemaphoreKey(nil, node, name)) {
					return false
				}
			}
		}
	}
	return true
}

// semaphore gives one, or goes on with it: order ids up to id are given. A complete one is behind
// the cursor.
func (x *export) semaphore(s *semaphore, key []byte) bool {
	if s.node.dropped {
		x.cursor.key, x.cursor.id = append(key, 0), 0
		return true
	}
	after, given := uint64(0), 0
	if bytes.Equal(x.cursor.key, key) {
		after = x.cursor.id
	}
	x.w.semaphore(s, after > 0)
	x.cursor.key = key
	// Owners come before waiters, but where tokens are late.
	owner, waiter := s.owners.seekOrder(after), s.waiters.seekOrder(after)
	for owner != nil || waiter != nil {
		if x.w.full() && given > 0 {
			return false
		}
		var e *entry
		if waiter == nil || owner != nil && owner.orderID < waiter.orderID {
			e, owner = owner, next(owner, byOrder)
		} else {
			e, waiter = waiter, next(waiter, byOrder)
		}
		given++
		x.w.scanBudget--
		x.w.entry(e)
		x.cursor.id = e.orderID
	}
	x.cursor.key, x.cursor.id = append(key, 0), 0 // the first key behind it
	return true
}

// keyed is a semaphore or a hosted object, which have an order in their bucket.
type keyed interface {
	key() (node uint64, name []byte)
}

func compareKeys[T keyed](a, b T) int {
	node, name := a.key()
	otherNode, otherName := b.key()
	return cmp.Or(cmp.Compare(node, otherNode), bytes.Compare(name, otherName))
}

// keyedFrom are the next of a bucket's semaphores, or hosted objects, in order of key, from a key
// on; more: there are others behind them.
func keyedFrom[T keyed](all iter.Seq[T], from []byte) (list []T, more bool) {
	var limit T // where more
	var key [8 + protocol.MaxNameLen]byte
	for o := range all { // sorted below
		if len(from) > 0 {
			if node, name := o.key(); bytes.Compare(appendSemaphoreKey(key[:0], node, name), from) < 0 {
				continue
			}
		}
		if more && compareKeys(o, limit) >= 0 {
			continue
		}
		list = append(list, o)
		if len(list) == 2*exportSortLimit {
			slices.SortFunc(list, compareKeys[T])
			list, limit, more = list[:exportSortLimit], list[exportSortLimit], true
		}
	}
	slices.SortFunc(list, compareKeys[T])
	if len(list) > exportSortLimit {
		return list[:exportSortLimit], true
	}
	return list, more
}

// Imported says how far the import of a run under this epoch is: the cursor of the next chunk (nil
// before the first), or that it is complete, as it stays after the activation. ok is false when
// nothing can be imported under this epoch any more.
func (r Buckets) Imported(first, count uint32, epoch uint64) (cursor []byte, complete, ok bool) {
	if uint64(first)+uint64(count) > uint64(len(r.m.buckets)) {
		return nil, false, len(r.m.buckets) == 0
	}
	complete = count > 0
	for i := first; i < first+count; i++ {
		b := &r.m.buckets[i]
		switch {
		case b.epoch == epoch && (b.state == bucketImported || b.state == bucketActive):
			continue
		case b.state == bucketActive, b.highestEpoch() > epoch, b.highestEpoch() == epoch &&
			b.state != bucketImporting:
			return nil, false, false
		}
		complete = false
	}
	if i := r.m.imports.find(&BucketsBody{First: first, Count: count, Epoch: epoch}); i >= 0 {
		cursor = bytes.Clone(r.m.imports[i].next)
	}
	return cursor, complete, true
}
