package shard

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// importing is a run of buckets whose chunks are coming in.
type importing struct {
	first, count uint32
	epoch        uint64
	next         []byte // cursor the next chunk must begin at
	open         []byte // key of the semaphore whose entries may go on there
	track, part  []byte // key of the track whose record goes on there, and what is there of the record
}

func (m *Machine) importOf(x *BucketsBody) int {
	return slices.IndexFunc(m.imports, func(o importing) bool { return o.first == x.First && o.count == x.Count && o.epoch == x.Epoch })
}

// forgetImport forgets the imports into any bucket of a run.
func (m *Machine) forgetImport(x *BucketsBody) {
	m.imports = slices.DeleteFunc(m.imports, func(o importing) bool { return o.first < x.First+x.Count && x.First < o.first+o.count })
}

// imports: where there is no copy, or an outdated one, and the epoch is newer than all that is known of the bucket.
func (b *bucket) imports(epoch uint64) stepVerdict {
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
	if b.state != bucketActive && b.known() < epoch {
		return stepDo
	}
	return stepNever
}

// applyImport adds a chunk to a copy that serves nothing yet. A chunk is applied whole or not at all.
func (m *Machine) applyImport(c *rawCommand) {
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
	if !m.hasTable(x) || !m.mayStep(x, (*bucket).imports) {
		return
	}
	i := m.importOf(x)
	var here place // how far the import is
	if i >= 0 {
		here.read(m.imports[i].next)
	}
	switch {
	case len(part.nextBytes) > 0 && part.next.compare(&here) <= 0:
		m.reply(protocol.StatusOK, "") // all of it was imported
		return
	case part.at.compare(&here) != 0:
		m.reply(protocol.StatusAborted, textImportOrder)
		return
	}
	for k := range part.records {
		if r := &part.records[k]; r.node != 0 && m.nodes[r.node] == nil && !m.isDropped(r.node) {
			m.reply(protocol.StatusAborted, textImportNode)
			return
		}
	}
	if i < 0 {
		if !m.makeRoom(x) {
			m.reply(protocol.StatusAborted, textDropping)
			return
		}
		m.imports = append(m.imports, importing{first: x.First, count: x.Count, epoch: x.Epoch})
		i = len(m.imports) - 1
	}
	m.importRecords(&m.imports[i], part)
	if len(part.nextBytes) > 0 {
		m.imports[i].next = bytes.Clone(part.nextBytes)
	} else {
		m.closeSemaphore(&m.imports[i], nil)
		m.imports = slices.Delete(m.imports, i, i+1)
		for k := x.First; k < x.First+x.Count; k++ {
			m.buckets[k].state = bucketImported
		}
	}
	m.reply(protocol.StatusOK, "")
}

// makeRoom begins an import: outdated copies go first.
func (m *Machine) makeRoom(x *BucketsBody) bool {
	outdated := BucketsBody{First: x.First, Count: x.Count}
	m.forgetImport(&outdated)
	homes := m.homesSome(x.First, x.Count)
	for k := x.First; k < x.First+x.Count; k++ {
		if b := &m.buckets[k]; b.state != bucketAbsent && b.state != bucketDropping {
			m.drop(b, min(b.known(), x.Epoch-1), homes)
		}
	}
	m.clear()
	for k := x.First; k < x.First+x.Count; k++ {
		if m.buckets[k].state != bucketAbsent {
			return false
		}
	}
	for k := x.First; k < x.First+x.Count; k++ {
		b := &m.buckets[k]
		b.state, b.epoch, b.pending, b.base = bucketImporting, x.Epoch, 0, 0
	}
	m.copies = m.countCopies()
	return true
}

// importRecords adds records. What does not fit together in them is left out, on every replica alike.
func (m *Machine) importRecords(o *importing, part *chunk) {
	var s *semaphore
	for k := range part.records {
		r := &part.records[k]
		switch r.kind {
		case chunkCounters:
			b := &m.buckets[r.bucket]
			if plantOrdersRestart {
				r.orders = 1 // far below what the source has given out
			}
			b.orders, b.sessions, b.stood = max(b.orders, r.orders), max(b.sessions, r.sessions), r.stood
		case chunkSession:
			m.importSession(r)
		case chunkEnded:
			if !m.ended.has(r.create, m.logTime) {
				m.ended.put(r.create, addSaturated(m.logTime, r.remain))
			}
		case chunkParty:
			m.importParty(r)
		case chunkSemaphore, chunkMore:
			s = m.importSemaphore(o, r)
		case chunkProcess:
			m.importProcess(r)
		case chunkTrackPart:
			o.importTrackPart(r)
		case chunkTrack:
			m.importTrack(o, r)
		case chunkEntry:
			if s != nil {
				m.importEntry(s, r)
			}
		}
	}
}

// importSession gives a session a home copy here; a guest that is known stays what it is to the semaphores here.
func (m *Machine) importSession(r *chunkRecord) {
	n, p := m.nodes[r.node], m.parties[r.id]
	switch {
	case n == nil || r.id > m.firstSession(protocol.SessionBucket(r.id))+m.buckets[protocol.SessionBucket(r.id)].sessions:
		return
	case m.creates[r.create] != nil || m.gone.has(r.id, m.logTime):
		return
	case p != nil && (p.gone || p.home != nil || p.node != n):
		return
	}
	var s *session
	if p == nil {
		s = newSession()
		*s.party = party{id: r.id, node: n, epoch: r.epoch, low: 1, mark: m.mark, home: s}
		m.parties[r.id] = s.party
	} else {
		m.touchParty(p)
		m.cancel(p)
		n.guests.remove(p, partyLess)
		s = &session{party: p}
		p.home = s
		p.raise(r.epoch)
	}
	s.desc = string(r.desc)
	s.key, s.create, s.nonce, s.client, s.created = r.key, r.create, r.nonce, string(r.client), r.created
	s.timeout, s.attached, s.since, s.generation = uint32(r.timeout), r.attached, m.logTime, m.takeovers.generation
	m.creates[s.create] = s
	n.addSession(s)
	if !s.attached {
		m.arm(s, r.at)
	}
}

// importParty takes over what the source knew of a session. One that is gone stays gone; one that a home here does not know is gone too.
func (m *Machine) importParty(r *chunkRecord) {
	n, p := m.nodes[r.node], m.parties[r.id]
	if n == nil || p != nil && (p.node != n || p.gone) {
		return
	}
	if p == nil {
		p = &party{id: r.id, node: n, epoch: r.epoch, low: max(r.low, 1), desc: string(r.desc), used: m.logTime, mark: m.mark}
		m.parties[r.id] = p
		if r.gone || m.homeBucket(r.id) != nil || m.gone.has(r.id, m.logTime) {
			p.gone = true
			m.stranded = append(m.stranded, p)
			return
		}
		n.guests.insert(p, partyLess)
		m.arm(p, addSaturated(m.logTime, Retention))
	}
	m.touchParty(p)
	if !m.atHome(p) {
		p.raise(r.epoch)
		if p.desc == "" {
			p.redescribe(string(r.desc))
		}
	}
	if plantMemoryStays {
		return
	}
	p.answers.merge(r.answers)
	p.low = max(p.low, r.low)
	p.forget()
}

// importSemaphore adds a semaphore, or finds the one whose entries go on.
func (m *Machine) importSemaphore(o *importing, r *chunkRecord) *semaphore {
	n := m.nodes[r.node]
	key := appendSemaphoreKey(nil, r.node, r.name)
	m.closeSemaphore(o, key)
	if n == nil {
		return nil
	}
	b := &m.buckets[protocol.Bucket(r.node, r.name, uint32(len(m.buckets)))]
	s := b.semaphores[string(key)]
	if r.kind == chunkMore || s != nil {
		return s
	}
	m.serial++
	s = &semaphore{
		bucket: b, node: n, name: bytes.Clone(r.name), data: keep(r.data), limit: r.limit, version: r.version, revision: m.applied, created: r.created,
		ephemeral: r.ephemeral, mark: m.mark, serial: m.serial,
	}
	m.link(s)
	o.open = key
	return s
}

// closeSemaphore ends the semaphore whose entries might have gone on, unless they do.
func (m *Machine) closeSemaphore(o *importing, key []byte) {
	if len(o.open) == 0 || bytes.Equal(o.open, key) {
		return
	}
	b := &m.buckets[protocol.Bucket(binary.BigEndian.Uint64(o.open), o.open[8:], uint32(len(m.buckets)))]
	if s := b.semaphores[string(o.open)]; s != nil && s.ephemeral && s.owners.n+s.waiters.n == 0 {
		m.unlink(s)
	}
	o.open = nil
}

// importEntry adds an owner or a waiter behind those that are there.
func (m *Machine) importEntry(s *semaphore, r *chunkRecord) {
	p := m.parties[r.id]
	last := s.waiters.last
	if last == nil {
		last = s.owners.last
	}
	switch {
	case p == nil || p.node != s.node || s.entryOf(p) != nil || r.orderID > s.bucket.orders || last != nil && r.orderID <= last.orderID || r.orderID == 0:
		return
	case !r.waiting && (s.waiters.n > 0 || s.used+r.count < s.used):
		return
	case r.waiting && s.waiters.n == 0 && s.fits(r.count):
		return
	}
	m.touchParty(p)
	m.touchSemaphore(s)
	e := &entry{
		sem: s, party: p, orderID: r.orderID, count: r.count, seq: r.seq, timeout: r.timeout, since: r.since, data: keep(r.data), waiting: r.waiting, mark: m.mark,
	}
	p.held.insert(e, byName)
	s.node.enroll(e)
	if e.waiting {
		s.enqueue(e)
		if r.timed {
			m.arm(e, r.at)
		}
	} else {
		s.owners.insert(e, byOrder)
		s.used += e.count
	}
	if p.things() == 1 && !p.gone && !m.atHome(p) {
		m.becameHeld(p)
	}
}
