package process

import (
	"bytes"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Join is a session's request to become a member.
type Join struct {
	Session  uint64 // alive; not 0
	Key      string // static: survives the session. May be empty
	Identity string // the user that the session belongs to
	Data     []byte // shown to the other members; copied
	Weight   uint32 // for ElectPreferred
}

// Validate checks lengths.
func (j *Join) Validate() error {
	switch {
	case j.Session == 0:
		return protocol.Errorf(protocol.StatusBadRequest, "session is 0; a session must be started first")
	case len(j.Key) > protocol.MaxProcessKey:
		return protocol.Errorf(protocol.StatusBadRequest, "member key is %d bytes long; at most %d are allowed",
			len(j.Key), protocol.MaxProcessKey)
	case len(j.Identity) > MaxIdentity:
		return protocol.Errorf(protocol.StatusBadRequest, "identity is %d bytes long; at most %d are allowed",
			len(j.Identity), MaxIdentity)
	case len(j.Data) > protocol.MaxProcessData:
		return protocol.Errorf(protocol.StatusBadRequest, "member data is %d bytes long; at most %d are allowed",
			len(j.Data), protocol.MaxProcessData)
	}
	return nil
}

// Join makes the session a member. A session that is one already begins again if it asks for the
// same, see rejoin; ALREADY_EXISTS if it does not. A key that another member has takes that
// member's place: the session that had it is notified that it was replaced, if it lives.
// OVERLOADED: protocol.MaxProcessMembers are here.
func (p *Process) Join(at Now, j Join, out *Out) (protocol.ProcessJoinReply, error) {
	if err := j.Validate(); err != nil {
		return protocol.ProcessJoinReply{}, err
	}
	p.fireDeadlines(at, out)
	if m := p.member(j.Session); m != nil {
		if m.key != j.Key || m.weight != j.Weight || m.identity != j.Identity || !bytes.Equal(m.data, j.Data) {
			return protocol.ProcessJoinReply{}, protocol.Errorf(protocol.StatusAlreadyExists,
				"session is a member already, with another key, data or weight; leave first")
		}
		p.rejoin(at, m, j, out)
		return protocol.ProcessJoinReply{Order: m.order, Topology: p.topology, AlreadyMember: true}, nil
	}
	former := p.memberByKey(j.Key)
	if former == nil && len(p.members) >= protocol.MaxProcessMembers {
		return protocol.ProcessJoinReply{}, protocol.Errorf(protocol.StatusOverloaded,
			"process has %d members, which is the most; use several processes", protocol.MaxProcessMembers)
	}
	if former != nil {
		if !former.absent {
			p.rememberFormer(at, former, protocol.RemovedByReplacement)
			p.notifyRemoved(p.findFormer(former.session), out)
		}
		if p.phase == protocol.PhaseCompleted && former.weight == j.Weight && former.identity == j.Identity &&
			bytes.Equal(former.data, j.Data) {
			p.resume(at, former, j, out)
			return protocol.ProcessJoinReply{Order: former.order, Topology: p.topology, Returned: true}, nil
		}
		p.remove(former, "replaced", out)
	}
	p.forgetFormer(j.Session)
	p.joinOrder++
	m := &member{
		session: j.Session, order: p.joinOrder, key: j.Key, identity: j.Identity, data: bytes.Clone(j.Data),
		weight: j.Weight, joined: at.Wall,
	}
	p.members = append(p.members, m)
	p.emitChange(out, protocol.ProcessJoined, p.topology+1, m.session, m.key)
	p.topologyChanged(at, "topology changed: a member joined", out)
	return protocol.ProcessJoinReply{Order: m.order, Topology: p.topology}, nil
}

// rejoin is a join of a session that is a member: its client no longer knows a round, as a program
// that has restored a saved session does. (A request that is sent again is answered by the shard.)
// A complete round is resumed, as with a key. Any other gives way to a new one: the client cannot
// continue a round that it has not prepared.
func (p *Process) rejoin(at Now, m *member, j Join, out *Out) {
	if p.phase == protocol.PhaseCompleted {
		p.resume(at, m, j, out)
		return
	}
	if p.phase == protocol.PhaseCompleting || p.phase == protocol.PhaseWaiting {
		m.status = protocol.MemberOutside
	}
	p.topologyChanged(at, "topology changed: a member joined again", out)
}

// resume gives a member's place to a session, its own or another one with its key. The round is
// complete for the others; the token rises above all that the place had.
func (p *Process) resume(at Now, m *member, j Join, out *Out) {
	p.forgetFormer(j.Session)
	p.counter++
	p.counters.Returned++
	m.session, m.joined, m.absent, m.until = j.Session, at.Wall, false, 0
	m.token, m.status, m.completedEpoch = p.counter, protocol.MemberResuming, p.round.epoch
	if m.order == p.round.coordinator {
		p.round.session = m.session
	}
	p.cachedMembers = nil
	p.emitChange(out, protocol.ProcessReturned, p.topology, m.session, m.key)
	p.notify(m, out)
}

// Leave takes the session out at once, its key too. CompletedEpoch is the newest epoch decided
// complete with it: a round it still has open is complete if it is of that epoch, else cancelled. A
// repeat is OK. NOT_FOUND: it is no member.
func (p *Process) Leave(at Now, session uint64, out *Out) (completedEpoch uint64, err error) {
	p.fireDeadlines(at, out)
	m := p.member(session)
	if m == nil {
		if f := p.findFormer(session); f != nil && f.removal == 0 {
			return f.completedEpoch, nil
		}
		return 0, notMember(session, "; join first")
	}
	completedEpoch = m.completedEpoch
	p.rememberFormer(at, m, 0)
	p.remove(m, "left", out)
	p.topologyChanged(at, "topology changed: a member left", out)
	return completedEpoch, nil
}

// SessionEnded reports that the session is gone. Its key keeps its place for a while if no round is
// needed. A session that is no member changes nothing.
func (p *Process) SessionEnded(at Now, session uint64, out *Out) {
	p.fireDeadlines(at, out)
	p.forgetFormer(session)
	m := p.member(session)
	if m == nil {
		return
	}
	if m.key != "" && p.options.Return > 0 && p.phase == protocol.PhaseCompleted {
		m.absent, m.until = true, later(at.Log, p.options.Return)
		p.emitChange(out, protocol.ProcessAbsent, p.topology, session, m.key)
		return
	}
	p.remove(m, "session ended", out)
	p.topologyChanged(at, "topology changed: a member's session ended", out)
}

// remove takes a member off the list; changed must follow.
func (p *Process) remove(m *member, why string, out *Out) {
	i := slices.Index(p.members, m)
	p.members = slices.Delete(p.members, i, i+1)
	p.emitChange(out, protocol.ProcessLeft, p.topology+1, m.session, why)
}

// emitChange reports a change of the list of members to watches.
func (p *Process) emitChange(out *Out, kind protocol.ProcessChangeKind, topology, session uint64, text string) {
	out.Changes = append(out.Changes, protocol.ProcessChange{
		Kind: kind, Epoch: p.round.epoch, Topology: topology, Session: session, Text: text,
	})
}

// topologyChanged follows every change of the list of members: the round that is under way is over,
// unless its outcome is decided, and the next is due. Members that are absent leave with it, since
// a round is needed anyway.
func (p *Process) topologyChanged(at Now, why string, out *Out) {
	p.topology++
	p.counters.Changes++
	p.cachedMembers = nil
	p.dropAbsent(out)
	switch p.phase {
	case protocol.PhaseCompleting:
		if !p.pending {
			p.pending, p.start = true, later(at.Log, p.options.Debounce)
		}
		p.attempt = 0
		p.advance(at, out)
		return
	case protocol.PhasePreparing, protocol.PhaseCoordinating:
		p.abandonRound(at, protocol.RoundCancelled, why, out)
	case protocol.PhaseWaiting:
		if p.attempt == 0 { // the debounce goes on
			p.scheduleRound(at, p.start, out)
			return
		}
	}
	p.attempt = 0
	p.scheduleRound(at, later(at.Log, p.options.Debounce), out)
}

func (p *Process) dropAbsent(out *Out) {
	p.members = slices.DeleteFunc(p.members, func(m *member) bool {
		if m.absent {
			p.emitChange(out, protocol.ProcessLeft, p.topology, m.session, "did not return")
		}
		return m.absent
	})
}

func notMember(session uint64, todo string) error {
	return protocol.Refuse(protocol.RefusalNotMember, "session %d is not a member of the process%s", session, todo)
}

// Evict takes a member out, its key too; its session, if it lives, is notified, and continues.
// NOT_FOUND: it is no member.
func (p *Process) Evict(at Now, session uint64, text string, out *Out) error {
	p.fireDeadlines(at, out)
	for _, m := range p.members {
		if m.session != session {
			continue
		}
		if !m.absent {
			p.rememberFormer(at, m, protocol.RemovedByOperator)
			p.notifyRemoved(p.findFormer(m.session), out)
		}
		p.remove(m, truncate("evicted by an operator: "+text), out)
		p.topologyChanged(at, "topology changed: a member was evicted", out)
		return nil
	}
	return notMember(session, "")
}
