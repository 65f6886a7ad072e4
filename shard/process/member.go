package process

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// member is a session that joined, or the place that a member's key keeps for a session to come.
//
// Invariant: orders rise in Process.members, and so does no other field.
// Invariant: sessions of members that are not absent differ, and so do keys that are not empty.
// Invariant: an absent member has a key and a deadline; no round is under way.
type member struct {
	session        uint64 // that of the last holder while absent
	order          uint64 // of joining, never given twice
	token          uint64 // fencing token: the epoch of the round, or higher when it returned to it
	weight         uint32
	key            string
	identity       string
	data           []byte // never changed in place
	joined         uint64 // wall clock
	absent         bool
	until          uint64 // log time up to which it stays while absent
	status         protocol.ProcessMemberStatus
	completedEpoch uint64 // the newest epoch decided complete with it among the members
}

func (m *member) view() protocol.ProcessMember {
	return protocol.ProcessMember{Session: m.session, Order: m.order, Key: m.key, Identity: m.identity, Data: m.data, Weight: m.weight}
}

// memberOverhead is what a member counts in Bytes beside its texts.
const memberOverhead = 256

// JoinBytes is by how much a join with texts of these lengths makes Bytes larger, at most.
func JoinBytes(key, identity, data int) uint64 { return memberOverhead + uint64(key+identity+data) }

// Bytes is what the process has of its members and of the last result, for quotas. It looks at each
// member.
func (p *Process) Bytes() uint64 {
	sum := uint64(len(p.round.result))
	for _, m := range p.members {
		sum += JoinBytes(len(m.key), len(m.identity), len(m.data))
	}
	return sum
}

// BytesOf is what the member with the key counts in Bytes, 0 if there is none.
func (p *Process) BytesOf(key string) uint64 {
	if m := p.memberByKey(key); m != nil {
		return JoinBytes(len(m.key), len(m.identity), len(m.data))
	}
	return 0
}

func (m *member) inRound() bool { return m.status != protocol.MemberOutside }

// member is the one with the session, unless it is absent.
func (p *Process) member(session uint64) *member {
	for _, m := range p.members {
		if m.session == session && !m.absent {
			return m
		}
	}
	return nil
}

func (p *Process) memberByKey(key string) *member {
	if key == "" {
		return nil
	}
	for _, m := range p.members {
		if m.key == key {
			return m
		}
	}
	return nil
}

// formerMember is a session that was a member and lives on: the answer to a leave may be lost, and
// so may the event of a removal.
type formerMember struct {
	session        uint64
	completedEpoch uint64
	until          uint64                  // log time
	removal        protocol.ProcessRemoval // 0: it left
}

func (p *Process) findFormer(session uint64) *formerMember {
	for i := range p.formerMembers {
		if p.formerMembers[i].session == session {
			return &p.formerMembers[i]
		}
	}
	return nil
}

// forgetFormer drops what is known of a former member, because its session is gone or a member
// again.
func (p *Process) forgetFormer(session uint64) {
	p.formerMembers = slices.DeleteFunc(p.formerMembers, func(f formerMember) bool { return f.session == session })
}

// rememberFormer keeps what a member that went is to know. The oldest go for it, if there are many.
func (p *Process) rememberFormer(at Now, m *member, removal protocol.ProcessRemoval) {
	p.formerMembers = slices.DeleteFunc(p.formerMembers, func(f formerMember) bool { return at.Log > f.until || f.session == m.session })
	if len(p.formerMembers) >= MaxFormer {
		p.formerMembers = slices.Delete(p.formerMembers, 0, 1)
	}
	p.formerMembers = append(p.formerMembers, formerMember{session: m.session, completedEpoch: m.completedEpoch, until: later(at.Log, Retention), removal: removal})
}

// roundMembers is the list of the members of the round, or of all where there is none, for events.
// It is made once a round.
func (p *Process) roundMembers() []protocol.ProcessMember {
	if p.cachedMembers != nil {
		return p.cachedMembers
	}
	list := make([]protocol.ProcessMember, 0, len(p.members))
	for _, m := range p.members {
		if m.inRound() {
			list = append(list, m.view())
		}
	}
	p.cachedMembers = list
	return list
}
