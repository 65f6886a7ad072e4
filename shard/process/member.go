package process

import (
	"slices"
	"strings"

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
	return protocol.ProcessMember{Session: m.session, Order: m.order, Key: m.key,
		Identity: m.identity, Data: m.data, Weight: m.weight}
}

// memberOverhead is the bytes that Bytes counts for a member beside its texts.
const memberOverhead = 256

// JoinBytes returns the most by which a join with texts of these lengths increases Bytes.
func JoinBytes(key, identity, data int) uint64 { return memberOverhead + uint64(key+identity+data) }

// Bytes returns the bytes of the members and of the last result, for quotas. It looks at each
// member.
func (p *Process) Bytes() uint64 {
	sum := uint64(len(p.round.result))
	for _, m := range p.members {
		sum += JoinBytes(len(m.key), len(m.identity), len(m.data))
	}
	return sum
}

// BytesOf returns the bytes that Bytes counts for the member with the key, or 0.
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

// forgetFormer drops the record of a former member, because its session is gone or a member again.
func (p *Process) forgetFormer(session uint64) {
	p.formerMembers = slices.DeleteFunc(p.formerMembers, func(f formerMember) bool { return f.session == session })
}

// rememberFormer keeps the events due to a former member, in place of the oldest if there are many.
func (p *Process) rememberFormer(at Now, m *member, removal protocol.ProcessRemoval) {
	p.formerMembers = slices.DeleteFunc(p.formerMembers,
		func(f formerMember) bool { return at.Log > f.until || f.session == m.session })
	if len(p.formerMembers) >= MaxFormer {
		p.formerMembers = slices.Delete(p.formerMembers, 0, 1)
	}
	p.formerMembers = append(p.formerMembers, formerMember{session: m.session, completedEpoch: m.completedEpoch,
		until: later(at.Log, Retention), removal: removal})
}

// roundMembers lists the members of the round, or all of them without a round, for events. The list
// is made once a round.
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

// roundMember finds the member and checks that the request is about the present round. ABORTED: it
// speaks of an older one, or was not in it.
func (p *Process) roundMember(session, epoch uint64) (*member, error) {
	m := p.member(session)
	switch {
	case m == nil:
		return nil, notMember(session, "; join first")
	case epoch > p.counter || epoch == 0:
		return nil, protocol.Errorf(protocol.StatusBadRequest, "epoch %d was never given; the last one is %d",
			epoch, p.counter)
	case epoch != p.round.epoch || !m.inRound():
		p.counters.Stale++
		return nil, protocol.Errorf(protocol.StatusAborted,
			"round of epoch %d is over for this member; the present one is %d", epoch, p.round.epoch)
	}
	return m, nil
}

// Prepared confirms that the member prepared. A repeat is OK. ABORTED: the round is over.
func (p *Process) Prepared(at Now, session, epoch uint64, out *Out) error {
	p.fireDeadlines(at, out)
	m, err := p.roundMember(session, epoch)
	if err != nil {
		return err
	}
	if m.status == protocol.MemberPreparing {
		m.status = protocol.MemberPrepared
		p.advance(at, out)
	}
	return nil
}

// Fail reports that the member could not prepare, or the coordinator not coordinate, or that a
// handler failed too often: the round fails, and is tried again after the back-off.
// PRECONDITION_FAILED: the outcome is decided.
func (p *Process) Fail(at Now, session, epoch uint64, text string, out *Out) error {
	p.fireDeadlines(at, out)
	if _, err := p.roundMember(session, epoch); err != nil {
		return err
	}
	if p.phase != protocol.PhasePreparing && p.phase != protocol.PhaseCoordinating {
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"round of epoch %d is complete; it cannot fail any more", epoch)
	}
	p.failRound(at, truncate("a member failed: "+text), out)
	return nil
}

// Complete, by the coordinator, decides that the round is complete, and leaves a result with it. A
// repeat is OK, and changes neither. PRECONDITION_FAILED: not the coordinator, or not all are
// prepared.
func (p *Process) Complete(at Now, session, epoch uint64, result []byte, out *Out) error {
	p.fireDeadlines(at, out)
	if len(result) > protocol.MaxProcessResult {
		return protocol.Errorf(protocol.StatusBadRequest, "result is %d bytes long; at most %d are allowed",
			len(result), protocol.MaxProcessResult)
	}
	m, err := p.roundMember(session, epoch)
	switch {
	case err != nil:
		return err
	case m.order != p.round.coordinator:
		return protocol.Errorf(protocol.StatusPreconditionFailed, "only the coordinator of the round can complete it")
	case p.phase == protocol.PhasePreparing:
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"not all members are prepared; complete the round from coordinate or later")
	case p.phase == protocol.PhaseCoordinating:
		p.completeRound(at, m, result, out)
	}
	return nil
}

// Completed confirms that the member completed the round. A repeat is OK, and so is one that comes
// when the next round is under way. ABORTED: the round was not completed, or is older.
// PRECONDITION_FAILED: the member was not notified that it is complete.
func (p *Process) Completed(at Now, session, epoch uint64, out *Out) error {
	p.fireDeadlines(at, out)
	if m := p.member(session); m != nil && m.completedEpoch == epoch && epoch > 0 && epoch != p.round.epoch {
		return nil
	}
	m, err := p.roundMember(session, epoch)
	if err != nil {
		return err
	}
	switch m.status {
	case protocol.MemberPreparing, protocol.MemberPrepared:
		return protocol.Errorf(protocol.StatusPreconditionFailed, "round of epoch %d is not complete for this member",
			epoch)
	case protocol.MemberCompleting, protocol.MemberResuming:
		m.status = protocol.MemberCompleted
		p.advance(at, out)
	}
	return nil
}

// truncate makes a reason fit to be kept.
func truncate(text string) string {
	if len(text) > protocol.MaxProcessText {
		text = text[:protocol.MaxProcessText]
	}
	return strings.ToValidUTF8(text, "")
}
