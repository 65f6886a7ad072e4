package shard

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/queue"
)

// importState is a range of buckets whose chunks are coming in.
type importState struct {
	first, count  uint32
	epoch         uint64
	next          []byte // cursor the next chunk must begin at
	openSemaphore []byte // key of the semaphore whose entries may go on there
	// key of the hosted object whose record continues there, and what is there of the record
	openObject, objectBytes []byte
}

type importTable []importState

// find is the place of the import of a run under this epoch, or below 0.
func (t importTable) find(x *BucketsBody) int {
	return slices.IndexFunc(t,
		func(o importState) bool { return o.first == x.First && o.count == x.Count && o.epoch == x.Epoch })
}

// forget forgets the imports into any bucket of a range.
func (t *importTable) forget(x *BucketsBody) {
	*t = slices.DeleteFunc(*t,
		func(o importState) bool { return o.first < x.First+x.Count && x.First < o.first+o.count })
}

// canImport: where there is no copy, or an outdated one, and the epoch is newer than all that is
// known of the bucket.
func (b *bucket) canImport(epoch uint64) stepVerdict {
	switch b.state {
	case bucketImporting:
		if b.epoch == epoch {
			return stepDo
		}
	case bucketImported, bucketActive:
		if b.epoch == epoch {
			return stepDone
		}
	}
	if b.state != bucketActive && b.highestEpoch() < epoch {
		return stepDo
	}
	return stepNever
}

// applyImport adds a chunk to a copy that serves nothing yet. A chunk is applied whole or not at
// all.
func applyImport(m *Machine, c *rawCommand) {
	var body ImportBody
	if !body.read(c.body) || body.Total == 0 || body.Count == 0 || body.Epoch == 0 {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	x := &body.BucketsBody
	part, ok := readChunk(body.Chunk, x)
	if !ok {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	if !requireTier(m, x) || !checkStep(m, x, (*bucket).canImport) {
		return
	}
	i := m.imports.find(x)
	var here exportCursor // how far the import is
	if i >= 0 {
		here.read(m.imports[i].next)
	}
	switch {
	case len(part.nextBytes) > 0 && part.next.compare(&here) <= 0:
		m.reply(protocol.StatusOK, "") // all of it was imported
		return
	case part.start.compare(&here) != 0:
		m.reply(protocol.StatusAborted, textImportOrder)
		return
	}
	for _, id := range part.nodes {
		if m.nodes[id] == nil && !m.isDropped(id) {
			m.reply(protocol.StatusAborted, textImportNode)
			return
		}
	}
	if !part.slotsFit(m, x) {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	if i < 0 {
		if i = m.imports.begin(m, x); i < 0 {
			m.reply(protocol.StatusAborted, textDropping)
			return
		}
	}
	m.format = max(m.format, part.format)
	m.imports[i].importRecords(m, x, part)
	if len(part.nextBytes) > 0 {
		m.imports[i].next = bytes.Clone(part.nextBytes)
	} else {
		m.imports[i].closeOpenSemaphore(m, nil)
		m.imports = slices.Delete(m.imports, i, i+1)
		for k := x.First; k < x.First+x.Count; k++ {
			m.buckets[k].state = bucketImported
		}
	}
	m.reply(protocol.StatusOK, "")
}

// begin begins an import, and gives its place. Outdated copies are removed first: it is below 0
// while they are not gone.
func (t *importTable) begin(m *Machine, x *BucketsBody) int {
	t.forget(x)
	homes := m.hasHomeSessions(m.homeIDs(x.First, x.Count))
	for k := x.First; k < x.First+x.Count; k++ {
		if b := &m.buckets[k]; b.state != bucketAbsent && b.state != bucketDropping {
			b.drop(m, min(b.highestEpoch(), x.Epoch-1), homes)
		}
	}
	m.clearing.advance(m)
	for k := x.First; k < x.First+x.Count; k++ {
		if m.buckets[k].state != bucketAbsent {
			return -1
		}
	}
	for k := x.First; k < x.First+x.Count; k++ {
		b := &m.buckets[k]
		b.state, b.epoch, b.moveEpoch, b.logBase = bucketImporting, x.Epoch, 0, 0
	}
	m.copyCount = m.countCopies()
	*t = append(*t, importState{first: x.First, count: x.Count, epoch: x.Epoch})
	return len(*t) - 1
}

// importRecords adds records. What does not fit together in them is left out, on every replica
// alike.
func (i *importState) importRecords(m *Machine, x *BucketsBody, part *chunk) {
	var s *semaphore
	part.each(x, func(r *chunkRecord) bool {
		switch r.kind {
		case chunkCounters:
			b := &m.buckets[r.bucket]
			b.orderCounter = max(b.orderCounter, r.orderCounter)
			b.versionFloor = max(b.versionFloor, r.versionFloor)
			b.raiseCounters(m.tokenFloor)
			b.sessionCounter = max(b.sessionCounter, r.sessionCounter)
			b.timeBase = r.timeBase
		case chunkHomeSession:
			importHomeSession(m, r)
		case chunkEndedCreateID:
			if !m.endedCreateIDs.Has(r.create, m.logTime) {
				m.endedCreateIDs.Add(r.create, addSaturated(m.logTime, r.remaining))
			}
		case chunkSessionRecord:
			importSessionRecord(m, r)
		case chunkSemaphore, chunkQueue, chunkSemaphoreMore:
			s = i.importSemaphore(m, r)
		case chunkEntry, chunkPlace:
			if s != nil {
				importEntry(m, s, r)
			}
		default:
			if r.piece {
				i.importObjectPart(r)
			} else {
				i.importObject(m, r)
			}
		}
		return true
	})
}

// importHomeSession gives a session a home copy here. A remote session that is known stays what it
// is to the semaphores here.
func importHomeSession(m *Machine, r *chunkRecord) {
	n, p := m.nodes[r.node], m.sessions.get(r.id)
	switch {
	case n == nil ||
		r.id > m.homeIDsBelow(protocol.SessionBucket(r.id))+m.buckets[protocol.SessionBucket(r.id)].sessionCounter:
		return
	case m.byCreateID.get(r.create) != nil || m.endedRemotes.Has(r.id, m.logTime):
		return
	case p != nil && (p.ended || p.home != nil || p.node != n):
		return
	}
	var s *homeSession
	if p == nil {
		s = newHomeSession()
		*s.sessionRecord = sessionRecord{id: r.id, node: n, epoch: r.epoch, snapMark: m.snapMark,
			home: s, sessionUse: &unused}
		m.sessions.add(s.sessionRecord)
	} else {
		m.touch(p)
		m.unschedule(p)
		n.remoteSessions.Remove(p.id, cmp.Less)
		s = &homeSession{sessionRecord: p}
		p.home = s
		p.raiseEpoch(r.epoch)
	}
	s.description = string(r.desc)
	s.key, s.createID, s.nonce, s.client, s.created = r.key, r.create, r.nonce, string(r.client), r.created
	s.link = r.link
	s.timeout, s.attached, s.lastSeen, s.generation = uint32(r.timeout), r.attached, m.logTime, m.takeovers.generation
	m.byCreateID.add(s)
	n.addSession(s, r.parent)
	if !s.attached {
		m.schedule(s, r.at)
	}
}

// importSessionRecord takes over the source's record of a session. An ended session stays ended;
// one that a home here does not know has ended too.
func importSessionRecord(m *Machine, r *chunkRecord) {
	n, p := m.nodes[r.node], m.sessions.get(r.id)
	if n == nil || p != nil && (p.node != n || p.ended) {
		return
	}
	if p == nil {
		p = newRemoteSession()
		p.id, p.node, p.epoch, p.low, p.description = r.id, n, r.epoch, max(r.low, 1), string(r.desc)
		p.lastSeen, p.snapMark = m.logTime, m.snapMark
		m.sessions.add(p)
		if r.ended || m.activeHomeBucket(r.id) != nil || m.endedRemotes.Has(r.id, m.logTime) {
			p.ended = true
			p.endedAs(r.ending)
			m.orphaned = append(m.orphaned, p)
			return
		}
		n.remoteSessions.Insert(p.id, cmp.Less)
		m.schedule(p, addSaturated(m.logTime, Retention))
	}
	m.touch(p)
	if !m.atHome(p) {
		p.raiseEpoch(r.epoch)
		if p.description == "" {
			p.setDescription(string(r.desc))
		}
	}
	if len(r.answers) > 0 || r.low > p.low {
		use := p.ownUse()
		use.answers.merge(r.answers)
		use.low = max(use.low, r.low)
		p.forgetAnswers()
	}
}

// importSemaphore adds a semaphore, or finds the one whose entries go on.
func (i *importState) importSemaphore(m *Machine, r *chunkRecord) *semaphore {
	n := m.nodes[r.node]
	key := appendSemaphoreKey(nil, r.node, r.name)
	i.closeOpenSemaphore(m, key)
	if n == nil {
		return nil
	}
	b := &m.buckets[protocol.Bucket(r.node, r.name, uint32(len(m.buckets)))]
	s := m.semaphores.lookup(b, r.node, r.name)
	if r.kind == chunkSemaphoreMore || s != nil {
		return s
	}
	m.serial++
	s = newSemaphore(r.name)
	s.bucket, s.node, s.limit, s.version, s.revision = b, n, r.limit, r.version, m.applied
	s.created, s.ephemeral, s.snapMark, s.serial = r.created, r.ephemeral, m.snapMark, m.serial
	s.setData(r.data)
	if !r.queue.IsPlain() {
		s.setQueue(r.queue)
	}
	s.link(m)
	i.openSemaphore = key
	return s
}

// closeOpenSemaphore ends the semaphore whose entries might have gone on, unless they do.
func (i *importState) closeOpenSemaphore(m *Machine, key []byte) {
	if len(i.openSemaphore) == 0 || bytes.Equal(i.openSemaphore, key) {
		return
	}
	node, name := binary.BigEndian.Uint64(i.openSemaphore), i.openSemaphore[8:]
	b := &m.buckets[protocol.Bucket(node, name, uint32(len(m.buckets)))]
	switch s := m.semaphores.lookup(b, node, name); {
	case s == nil:
	case s.ephemeral && s.owners.n+s.waiters.n == 0:
		s.delete(m)
	case s.queue() != nil:
		s.queue().mend(m)
	}
	i.openSemaphore = nil
}

// importEntry adds an owner or a waiter behind those that are there.
func importEntry(m *Machine, s *semaphore, r *chunkRecord) {
	p := m.sessions.get(r.id)
	last := cmp.Or(s.waiters.last, s.owners.last)
	if late := s.core().Late(); late && s.owners.n > 0 && s.owners.last.orderID > last.orderID {
		last = s.owners.last
	}
	switch {
	case p == nil || p.node != s.node || s.entryOf(p) != nil:
		return
	case r.orderID == 0 || r.orderID > s.bucket.orderCounter || last != nil && r.orderID <= last.orderID:
		return
	case !r.waiting && r.part.Preempted() > s.bucket.orderCounter:
		return
	case !r.waiting && (s.waiters.n > 0 && !s.core().Late() || s.used+r.count < s.used):
		return
	case r.waiting && s.waiters.n == 0 && s.fits(r.count) && !s.core().Late():
		return
	case !r.part.Fits(s.core(), r.orderID, r.count, r.waiting):
		return
	}
	m.touch(p)
	m.touch(s)
	e := &entry{
		semaphore: s, session: p, orderID: r.orderID, count: r.count, seq: r.seq,
		timeout: r.timeout, since: r.since, data: cloneOrNil(r.data), waiting: r.waiting, snapMark: m.snapMark,
	}
	p.addEntry(e)
	s.node.addEntryUsage(e)
	if e.waiting {
		s.enqueue(e)
		restoreEntry(m, e, r.part)
		if r.timed {
			m.schedule(e, r.at)
		}
	} else {
		s.owners.insert(e, byOrder)
		s.used += e.count
		restoreEntry(m, e, r.part)
	}
	if p.references() == 1 && !p.ended && !m.atHome(p) {
		p.remoteHeld(m)
	}
}

// slotsFit reports whether owners in a chunk have slots that are there, each its own, as many as
// their counts.
func (c *chunk) slotsFit(m *Machine, x *BucketsBody) bool {
	var slots queue.SlotCheck // of the semaphore whose entries come
	fits := true
	c.each(x, func(r *chunkRecord) bool {
		switch r.kind {
		case chunkSemaphore:
			slots = queue.NewSlotCheck(nil)
		case chunkQueue:
			slots = queue.NewSlotCheck(r.queue)
		case chunkSemaphoreMore: // those of the chunks before have theirs
			b := &m.buckets[protocol.Bucket(r.node, r.name, uint32(len(m.buckets)))]
			slots = queue.NewSlotCheck(m.semaphores.lookup(b, r.node, r.name).core())
		case chunkEntry, chunkPlace:
			fits = r.waiting || slots.Owner(r.part, r.count)
		}
		return fits
	})
	return fits
}
