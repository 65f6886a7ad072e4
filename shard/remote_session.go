package shard

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// requireSession finds the session a request is made on, and checks the attach epoch it is made
// under; it answers the command when the session is gone or attached elsewhere. A session whose
// home bucket is not active here is a remote session, and is recorded with its first request. Its
// description is the one that came with the request, if one did, until its home says another.
func requireSession(m *Machine, id uint64, n *node, epoch uint64, description []byte) *sessionRecord {
	if id == 0 {
		m.reply(protocol.StatusSessionExpired, textSessionEnded)
		return nil
	}
	p := m.sessions.get(id)
	if m.activeHomeBucket(id) != nil {
		if p == nil || p.home == nil || p.node != n || !m.alive(p) {
			m.reply(protocol.StatusSessionExpired, textSessionEnded)
			return nil
		}
		if epoch != p.epoch {
			text := textTakenOver
			if epoch > p.epoch {
				text = textNotAttached
			}
			m.reply(protocol.StatusBadSession, text)
			return nil
		}
		m.touch(p)
		return p
	}
	if p == nil {
		if m.endedRemotes.Has(id, m.logTime) {
			m.reply(protocol.StatusSessionExpired, textSessionEnded)
			return nil
		}
		p = newRemoteSession()
		p.id, p.node, p.epoch, p.lastSeen, p.snapMark = id, n, epoch, m.logTime, m.snapMark
		p.updateDescription(m, description)
		m.sessions.add(p)
		n.remoteSessions.Insert(p.id, cmp.Less)
		m.schedule(p, addSaturated(m.logTime, Retention))
		return p
	}
	if p.node != n || !m.alive(p) {
		m.reply(protocol.StatusSessionExpired, textSessionEnded)
		return nil
	}
	if epoch < p.epoch {
		m.reply(protocol.StatusBadSession, textTakenOver)
		return nil
	}
	m.touch(p)
	p.raiseEpoch(epoch)
	if p.home == nil {
		p.lastSeen = m.logTime
	}
	p.updateDescription(m, description)
	return p
}

// raiseEpoch records an attach epoch that was seen. A report of the home about an older epoch no
// longer counts.
func (r *sessionRecord) raiseEpoch(epoch uint64) {
	if epoch > r.epoch {
		r.epoch, r.detached = epoch, false
	}
}

func (r *sessionRecord) updateDescription(m *Machine, description []byte) {
	if n := len(description); n > 0 && n <= maxDescription && r.description != string(description) {
		r.setDescription(m.interner.Bytes(description))
	}
}

// expireRemote is called when the time of an idle remote session's record may be over. A use does
// not move the timer: it is scheduled again here.
func (r *sessionRecord) expireRemote(m *Machine) {
	m.touch(r)
	m.unschedule(r)
	if r.hasReferences() {
		return // scheduled again when it becomes idle
	}
	if until := addSaturated(r.lastSeen, Retention); until >= m.logTime {
		m.schedule(r, until)
		return
	}
	m.sessions.remove(r)
	r.node.remoteSessions.Remove(r.id, cmp.Less)
	r.ended = true
	r.chargeAnswers()
}

// remoteHeld and remoteIdle report a remote session's first and last reference to the leader. The
// record of an idle remote session is kept for a while: a retry of a request still finds its
// answer, and an old attach epoch is still refused.
func (r *sessionRecord) remoteHeld(m *Machine) {
	m.batch.out.List = append(m.batch.out.List,
		Event{Kind: EventRemoteHeld, Session: r.id, Node: r.node.id, Epoch: r.epoch})
}

func (r *sessionRecord) remoteIdle(m *Machine) {
	m.touch(r)
	m.batch.out.List = append(m.batch.out.List,
		Event{Kind: EventRemoteIdle, Session: r.id, Node: r.node.id, Epoch: r.epoch})
	if r.home != nil {
		return
	}
	r.lastSeen = m.logTime
	if !r.ended && r.timer.pos == 0 {
		m.schedule(r, addSaturated(r.lastSeen, Retention))
	}
}

// applyRemoteEnded ends remote sessions whose homes reported their end. An id that is unknown here
// is refused from now on too, because a request of it may be on its way. An id at home here is
// skipped: its home decides.
func applyRemoteEnded(m *Machine, c *rawCommand) {
	r := varint.Reader{Rest: c.body}
	n := r.Count(varint.NoLimit)
	items := r.Rest
	var x RemoteEnd
	for range n {
		varint.Decode(&r, x.fields)
	}
	if r.Failed || len(r.Rest) != 0 {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	r = varint.Reader{Rest: items}
	ends := m.batch.ends[:0]
	for range n {
		if varint.Decode(&r, x.fields); m.activeHomeBucket(x.Session) == nil {
			ends = append(ends, x)
		}
	}
	endRemotes(m, ends)
	m.batch.ends = ends[:0]
	m.reply(protocol.StatusOK, "")
}

// endText is why a session ended, as far as this shard knows.
func endText(p *sessionRecord) string {
	if p.node.dropped {
		return textNodeEnd
	}
	return textSessionEnded
}

// endRemotes ends remote sessions, in the order given. All of them end before the first is
// released, so that none is granted what another gives up.
func endRemotes(m *Machine, ends []RemoteEnd) {
	var gone []*sessionRecord
	for i := range ends {
		x := &ends[i]
		if p := markRemoteEnded(m, x.Session); p != nil {
			if x.Ending != (protocol.Ending{}) {
				how := x.Ending
				p.endedAs(&how)
			}
			gone = append(gone, p)
		}
	}
	for _, p := range gone {
		p.releaseRemote(m)
	}
}

// markRemoteEnded refuses a remote session's id from now on. It returns the record if the session
// had not ended before.
func markRemoteEnded(m *Machine, id uint64) *sessionRecord {
	remember(&m.endedRemotes, id, m.logTime)
	p := m.sessions.get(id)
	if p == nil || m.atHome(p) || p.ended {
		return nil
	}
	m.touch(p)
	if p.home != nil {
		p.home.unlink(m) // its home is active elsewhere, and says so: this copy never will be
	} else {
		m.unschedule(p)
		p.node.remoteSessions.Remove(p.id, cmp.Less)
	}
	p.ended = true
	p.chargeAnswers()
	return p
}

// releaseRemote releases what an ended remote session holds.
func (r *sessionRecord) releaseRemote(m *Machine) {
	m.deferRelease(r, r.releaseAll(m, endText(r)))
}

// endUnknownRemotes ends the remote sessions at home in buckets that became active here, in order
// of id.
func endUnknownRemotes(m *Machine, first, count uint32) {
	if count == 0 {
		return
	}
	ends := m.batch.ends[:0]
	low, high := m.homeIDs(first, count)
	m.nodeIndex.All(func(n *node) bool {
		n.remoteSessions.Ascend(func(id uint64) bool { return id < low }, func(id uint64) bool {
			if id <= high && m.activeHomeBucket(id) != nil {
				ends = append(ends, RemoteEnd{Session: id})
			}
			return id < high
		})
		return true
	})
	slices.SortFunc(ends, func(a, b RemoteEnd) int { return cmp.Compare(a.Session, b.Session) })
	endRemotes(m, ends)
	m.batch.ends = ends[:0]
}

// applyRemoteUpdate records the report of a remote session's home.
func applyRemoteUpdate(m *Machine, c *rawCommand) {
	var x RemoteUpdateBody
	if !readBody(c.body, x.fields) || len(x.Description) > maxDescription {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	if p := m.sessions.get(x.Session); p != nil && !m.atHome(p) && m.alive(p) && x.Epoch >= p.epoch {
		m.touch(p)
		p.epoch, p.detached = x.Epoch, x.Detached
		p.setDescription(x.Description)
	}
	m.reply(protocol.StatusOK, "")
}
