package process

import (
	"bytes"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Join is what a session asks to become a member.
type Join struct {
	Session  uint64 // alive; not 0
	Key      string // static: survives the session. May be empty
	Identity string // the user that the session belongs to
	Data     []byte // what it shows the others; copied
	Weight   uint32 // for ElectPreferred
}

// Joined answers a join.
type Joined struct {
	Order    uint64
	Topology uint64
	Returned bool // it took the place that its key kept: EventResume follows, and no round
	Again    bool // it was a member already: what it has not confirmed is told again
}

// Validate checks lengths.
func (j *Join) Validate() error {
	switch {
	case j.Session == 0:
		return protocol.Errorf(protocol.StatusBadRequest, "session is 0; a session must be started first")
	case len(j.Key) > MaxKey:
		return protocol.Errorf(protocol.StatusBadRequest, "member key is %d bytes long; at most %d are allowed", len(j.Key), MaxKey)
	case len(j.Identity) > MaxIdentity:
		return protocol.Errorf(protocol.StatusBadRequest, "identity is %d bytes long; at most %d are allowed", len(j.Identity), MaxIdentity)
	case len(j.Data) > MaxData:
		return protocol.Errorf(protocol.StatusBadRequest, "member data is %d bytes long; at most %d are allowed", len(j.Data), MaxData)
	}
	return nil
}

// Join makes the session a member. A session that is one already is answered again if it asks for the same; ALREADY_EXISTS if it does not. A key that
// another member has takes that member's place: the session that had it is told that it was replaced, if it lives. OVERLOADED: MaxMembers are here.
func (p *Process) Join(at Moment, j Join, out *Out) (Joined, error) {
	if err := j.Validate(); err != nil {
		return Joined{}, err
	}
	p.fire(at, out)
	if m := p.member(j.Session); m != nil {
		if m.key != j.Key || m.weight != j.Weight || m.identity != j.Identity || !bytes.Equal(m.data, j.Data) {
			return Joined{}, protocol.Errorf(protocol.StatusAlreadyExists, "session is a member already, with another key, data or weight; leave first")
		}
		p.Resend(j.Session, out)
		return Joined{Order: m.order, Topology: p.topology, Again: true}, nil
	}
	former := p.keyed(j.Key)
	if former == nil && len(p.members) >= MaxMembers {
		return Joined{}, protocol.Errorf(protocol.StatusOverloaded, "process has %d members, which is the most; use several processes", MaxMembers)
	}
	if former != nil {
		if !former.absent {
			p.remember(at, former, RemovedByReplacement)
			p.tellRemoved(p.formerly(former.session), out)
		}
		if p.phase == PhaseCompleted && former.weight == j.Weight && former.identity == j.Identity && bytes.Equal(former.data, j.Data) {
			p.resume(at, former, j, out)
			return Joined{Order: former.order, Topology: p.topology, Returned: true}, nil
		}
		p.remove(former, "replaced", out)
	}
	p.forget(j.Session)
	p.orders++
	m := &member{
		session: j.Session, order: p.orders, key: j.Key, identity: j.Identity, data: bytes.Clone(j.Data), weight: j.Weight, joined: at.Wall,
	}
	p.members = append(p.members, m)
	out.Changes = append(out.Changes, Change{Kind: ChangeJoined, Epoch: p.round.epoch, Topology: p.topology + 1, Session: m.session, Text: m.key})
	p.changed(at, "topology changed: a member joined", out)
	return Joined{Order: m.order, Topology: p.topology}, nil
}

// resume gives a key's place to another session. The round is complete for the others; the token rises above all that the former session had.
func (p *Process) resume(at Moment, m *member, j Join, out *Out) {
	p.forget(j.Session)
	p.counter++
	p.tally.Returned++
	m.session, m.joined, m.absent, m.until = j.Session, at.Wall, false, 0
	m.token, m.standing, m.settled = p.counter, resuming, p.round.epoch
	if m.order == p.round.coordinator {
		p.round.session = m.session
	}
	p.cached = nil
	out.Changes = append(out.Changes, Change{Kind: ChangeReturned, Epoch: p.round.epoch, Topology: p.topology, Session: m.session, Text: m.key})
	p.tell(m, out)
}

// Leave takes the session out at once, its key too. Settled is the newest epoch decided complete with it: a round it still has open is complete if it is that
// one, else cancelled. A repeat is OK. NOT_FOUND: it is no member.
func (p *Process) Leave(at Moment, session uint64, out *Out) (settled uint64, err error) {
	p.fire(at, out)
	m := p.member(session)
	if m == nil {
		if f := p.formerly(session); f != nil && f.removal == 0 {
			return f.settled, nil
		}
		return 0, notMember(session, "; join first")
	}
	settled = m.settled
	p.remember(at, m, 0)
	p.remove(m, "left", out)
	p.changed(at, "topology changed: a member left", out)
	return settled, nil
}

// Ended says that the session is gone. Its key keeps its place for a while if no round is needed. A session that is no member changes nothing.
func (p *Process) Ended(at Moment, session uint64, out *Out) {
	p.fire(at, out)
	p.forget(session)
	m := p.member(session)
	if m == nil {
		return
	}
	if m.key != "" && p.options.Return > 0 && p.phase == PhaseCompleted {
		m.absent, m.until = true, later(at.Time, p.options.Return)
		out.Changes = append(out.Changes, Change{Kind: ChangeAbsent, Epoch: p.round.epoch, Topology: p.topology, Session: session, Text: m.key})
		return
	}
	p.remove(m, "session ended", out)
	p.changed(at, "topology changed: a member's session ended", out)
}

// remove takes a member off the list; changed must follow.
func (p *Process) remove(m *member, why string, out *Out) {
	i := slices.Index(p.members, m)
	p.members = slices.Delete(p.members, i, i+1)
	out.Changes = append(out.Changes, Change{Kind: ChangeLeft, Epoch: p.round.epoch, Topology: p.topology + 1, Session: m.session, Text: why})
}

// changed follows every change of the list of members: the round that is under way is over, unless its outcome is decided, and the next is due. Members that
// are absent leave with it, since a round is needed anyway.
func (p *Process) changed(at Moment, why string, out *Out) {
	p.topology++
	p.tally.Changes++
	p.cached = nil
	p.dropAbsent(out)
	switch p.phase {
	case PhaseCompleting:
		if !p.pending {
			p.pending, p.start = true, later(at.Time, p.options.Debounce)
		}
		p.attempt = 0
		p.progress(at, out)
		return
	case PhasePreparing, PhaseCoordinating:
		p.end(at, OutcomeCancelled, why, out)
	case PhaseWaiting:
		if p.attempt == 0 { // the debounce goes on
			p.await(at, p.start, out)
			return
		}
	}
	p.attempt = 0
	p.await(at, later(at.Time, p.options.Debounce), out)
}

func (p *Process) dropAbsent(out *Out) {
	p.members = slices.DeleteFunc(p.members, func(m *member) bool {
		if m.absent {
			out.Changes = append(out.Changes, Change{Kind: ChangeLeft, Epoch: p.round.epoch, Topology: p.topology, Session: m.session, Text: "did not return"})
		}
		return m.absent
	})
}

func notMember(session uint64, todo string) error {
	return protocol.Errorf(protocol.StatusNotFound, "session %d is not a member of the process%s", session, todo)
}
