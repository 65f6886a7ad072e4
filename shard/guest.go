package shard

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// actor finds the session a request is made on, and checks the attach epoch it is made under; it answers the command when the session is
// gone or attached elsewhere. A session whose home bucket is not active here is a guest, and is recorded with its first request. Its description is the one
// that came with the request, if one did, until its home says another.
func (m *Machine) actor(id uint64, n *node, epoch uint64, description []byte) *party {
	if id == 0 {
		m.reply(protocol.StatusSessionExpired, textSessionGone)
		return nil
	}
	p := m.parties[id]
	if m.homeBucket(id) != nil {
		if p == nil || p.home == nil || p.node != n || !m.alive(p) {
			m.reply(protocol.StatusSessionExpired, textSessionGone)
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
		m.touchParty(p)
		return p
	}
	if p == nil {
		if m.gone.has(id, m.logTime) && !plantGoneForgotten {
			m.reply(protocol.StatusSessionExpired, textSessionGone)
			return nil
		}
		p = &party{id: id, node: n, epoch: epoch, low: 1, used: m.logTime, mark: m.mark}
		p.describe(description)
		m.parties[id] = p
		n.guests.insert(p, partyLess)
		m.arm(p, addSaturated(m.logTime, Retention))
		return p
	}
	if p.node != n || !m.alive(p) {
		m.reply(protocol.StatusSessionExpired, textSessionGone)
		return nil
	}
	if epoch < p.epoch {
		m.reply(protocol.StatusBadSession, textTakenOver)
		return nil
	}
	m.touchParty(p)
	p.raise(epoch)
	p.used = m.logTime
	p.describe(description)
	return p
}

// raise takes in an attach epoch that was seen. What the home said about an older one does not
// count any more.
func (p *party) raise(epoch uint64) {
	if epoch > p.epoch {
		p.epoch, p.detached = epoch, false
	}
}

func (p *party) describe(description []byte) {
	if n := len(description); n > 0 && n <= maxDescription && p.desc != string(description) {
		p.redescribe(string(description))
	}
}

// retire is reached when the time of an idle guest's record may be over. Its timer is not moved at each use: it is armed anew here.
func (m *Machine) retire(p *party) {
	m.touchParty(p)
	m.cancel(p)
	if p.busy() || p.home != nil {
		return // armed again when it becomes idle, or its home departs
	}
	if until := addSaturated(p.used, Retention); until >= m.logTime {
		m.arm(p, until)
		return
	}
	delete(m.parties, p.id)
	p.node.guests.remove(p, partyLess)
	p.gone = true
	p.weighAnswers()
}

// becameHeld and becameIdle tell the leader about a guest's first and last entry. An idle guest's record is kept from the end of the last one on,
// so that a retry of what waited or was held for long still finds its answer, and an old attach epoch is still refused.
func (m *Machine) becameHeld(p *party) {
	m.run.out.List = append(m.run.out.List, Event{Kind: EventGuestHeld, Session: p.id, Node: p.node.id, Epoch: p.epoch})
}

func (m *Machine) becameIdle(p *party) {
	m.run.out.List = append(m.run.out.List, Event{Kind: EventGuestIdle, Session: p.id, Node: p.node.id, Epoch: p.epoch})
	p.used = m.logTime
	if !p.gone && p.home == nil && p.timer.pos == 0 {
		m.arm(p, addSaturated(p.used, Retention))
	}
}

// applyGuestGone ends guests whose homes said that they are gone. An id this shard does not know is refused from now on too: a request of
// it may be on its way. An id at home here is for its home to judge.
func (m *Machine) applyGuestGone(c *rawCommand) {
	r := reader{b: c.body}
	n := r.count()
	items := r.b
	for range n {
		r.uvarint()
	}
	if r.bad || len(r.b) != 0 {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	r = reader{b: items}
	ids := m.run.ids[:0]
	for range n {
		if id := r.uvarint(); m.homeBucket(id) == nil {
			ids = append(ids, id)
		}
	}
	m.endGuests(ids)
	m.run.ids = ids[:0]
	m.reply(protocol.StatusOK, "")
}

// goneText says why a session is gone, as far as this shard knows.
func goneText(p *party) string {
	if p.node.dropped {
		return textNodeEnd
	}
	return textSessionGone
}

// endGuests ends guests, in the order given. All of them are gone before anything of one is released, so that nothing is granted to the next.
func (m *Machine) endGuests(ids []uint64) {
	var gone []*party
	for _, id := range ids {
		if p := m.condemn(id); p != nil {
			gone = append(gone, p)
		}
	}
	for _, p := range gone {
		m.releaseGuest(p)
	}
}

// condemn refuses a guest's id from now on. It gives the guest if it was not gone before.
func (m *Machine) condemn(id uint64) *party {
	m.gone.add(id, m.logTime)
	p := m.parties[id]
	if p == nil || m.atHome(p) || p.gone {
		return nil
	}
	m.touchParty(p)
	if p.home != nil {
		m.forgetHome(p) // its home is active elsewhere, and says so: this copy never will be
	} else {
		m.cancel(p)
		p.node.guests.remove(p, partyLess)
	}
	p.gone = true
	p.weighAnswers()
	return p
}

// releaseGuest releases what a condemned guest holds.
func (m *Machine) releaseGuest(p *party) {
	m.layOut(p, m.releaseAll(p, goneText(p)))
}

// endUnknownGuests ends the guests at home in buckets that became active here, in order of id.
func (m *Machine) endUnknownGuests(first, count uint32) {
	if count == 0 {
		return
	}
	ids := m.run.ids[:0]
	low, high := m.firstSession(first), m.lastSession(first+count-1)
	m.nodeIndex.all(func(n *node) bool {
		n.guests.ascend(func(p *party) bool { return p.id < low }, func(p *party) bool {
			if p.id <= high && m.homeBucket(p.id) != nil {
				ids = append(ids, p.id)
			}
			return p.id < high
		})
		return true
	})
	slices.Sort(ids)
	m.endGuests(ids)
	m.run.ids = ids[:0]
}

// applyGuestSeen takes over what a guest's home said about it.
func (m *Machine) applyGuestSeen(c *rawCommand) {
	var x GuestSeenBody
	if !x.read(c.body) || len(x.Description) > maxDescription {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	if p := m.parties[x.Session]; p != nil && !m.atHome(p) && m.alive(p) && x.Epoch >= p.epoch {
		m.touchParty(p)
		p.epoch, p.detached = x.Epoch, x.Detached
		p.redescribe(x.Description)
	}
	m.reply(protocol.StatusOK, "")
}

// Guests yields the sessions that own or wait for something here and have no active home bucket in this shard, in order of id. One that is
// gone already but not released to the end is not among them.
func (m *Machine) Guests(yield func(session, attachEpoch uint64) bool) {
	var ids []uint64
	away := m.idRanges(func(is bucketState) bool { return is != bucketActive && is != bucketAbsent })
	m.nodeIndex.all(func(n *node) bool {
		n.guests.all(func(p *party) bool {
			if p.busy() {
				ids = append(ids, p.id)
			}
			return true
		})
		for s := n.sessionIn(away, 0); s != nil; s = n.sessionIn(away, s.id) {
			if s.busy() {
				ids = append(ids, s.id)
			}
		}
		return true
	})
	slices.Sort(ids)
	for _, id := range ids {
		if !yield(id, m.parties[id].epoch) {
			return
		}
	}
}
