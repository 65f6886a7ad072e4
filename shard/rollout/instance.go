package rollout

import (
	"cmp"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// instance of a location, while its session lives. It is registered by a session, under an
// incarnation that no other has.
type instance struct {
	id          string
	session     uint64
	incarnation uint64
	loc         *location
	role        protocol.TrackInstanceRole
	demoted     bool // counts as a follower: it stalled
	inShare     bool // of the location's share
	meta        string
	registered  uint64
	roleAt      uint64 // log time since when it has its role
	sent        uint64 // the version that was sent to it last, 0 none
	sentGen     uint64 // the location's generation then
	sentAt      uint64 // log time when it was sent first
	seq         uint64 // of the report
	report      protocol.UpdateReport
	reportGen   uint64 // the location's generation when it came
	reportAt    uint64

	contribution contribution // derived: what it adds to its location's counts
}

// contribution is what an instance adds to the counts of its location.
type contribution struct {
	leader, counted, unreached, explicit bool
	suspect                              int8 // 0 no, 1 as a leader, 2 as a follower
	suspectAt                            uint64
}

func (p *instance) leads() bool { return p.role == protocol.InstanceLeader && !p.demoted }

func (p *instance) reached(l *location) bool {
	return p.report.Current == l.target || p.report.Current > l.target && !l.rollback
}

func (t *Track) contributionOf(p *instance) (x contribution) {
	l := p.loc
	x.leader = p.leads()
	if l.target == 0 {
		return x
	}
	x.counted = x.leader && (!l.shareOnly || p.inShare)
	x.unreached = x.counted && !p.reached(l)
	if p.report.Target != l.target || p.reportGen != l.generation {
		return x
	}
	x.explicit = isExplicit(&t.config, p.report.Code)
	if p.report.Code == CodeSourceError && p.report.Attempts > t.config.ImplicitAttempts && p.sent == l.target && p.sentGen == l.generation {
		x.suspect = 2
		if x.leader {
			x.suspect = 1
		}
		x.suspectAt = p.sentAt + t.config.ImplicitAfter + 1 // strictly later than
	}
	return x
}

// add puts a tally into the counts of a location, or takes it out. False: the suspects' time must
// be found again.
func (l *location) add(x contribution, by int) bool {
	count := func(n *int, yes bool) {
		if yes {
			*n += by
		}
	}
	count(&l.leaders, x.leader)
	count(&l.counted, x.counted)
	count(&l.unreached, x.unreached)
	count(&l.explicit, x.explicit)
	if x.suspect == 0 {
		return true
	}
	s := &l.suspects[x.suspect-1]
	s.n += by
	if by > 0 {
		if s.n == 1 || x.suspectAt < s.at {
			s.at = x.suspectAt
		}
		return true
	}
	return s.n > 0 && x.suspectAt > s.at
}

// updateCounts brings the counts up to date after p changed.
func (t *Track) updateCounts(p *instance) {
	x := t.contributionOf(p)
	if x == p.contribution {
		return
	}
	ok := p.loc.add(p.contribution, -1)
	p.contribution = x
	if p.loc.add(x, 1); !ok {
		p.loc.findSuspects()
	}
}

func (l *location) findSuspects() {
	l.suspects = [2]suspects{}
	for _, p := range l.members {
		if p.contribution.suspect > 0 {
			s := &l.suspects[p.contribution.suspect-1]
			s.n++
			if s.n == 1 || p.contribution.suspectAt < s.at {
				s.at = p.contribution.suspectAt
			}
		}
	}
}

// recount counts all members of l again.
func (t *Track) recount(l *location) {
	l.leaders, l.counted, l.unreached, l.explicit = 0, 0, 0, 0
	for _, p := range l.members {
		p.contribution = t.contributionOf(p)
		l.add(p.contribution, 1)
	}
	l.findSuspects()
}

// pickShare chooses the instances that get a target first: so many percent of the leaders, rounded
// up, in order of their ids.
func (t *Track) pickShare(l *location) {
	var leaders []*instance
	for _, p := range l.members {
		p.inShare = false
		if p.leads() {
			leaders = append(leaders, p)
		}
	}
	slices.SortFunc(leaders, byID)
	n := (len(leaders)*int(orDefault(uint64(t.locationConfig(l).Share), 100)) + 99) / 100 // the config may have lost the share meanwhile: all
	for _, p := range leaders[:min(n, len(leaders))] {
		p.inShare = true
	}
}

func byID(a, b *instance) int { return cmp.Compare(a.id, b.id) }

// Registration of an instance.
type Registration struct {
	Session  uint64
	ID       string
	Location string
	Role     protocol.TrackInstanceRole
	Meta     string
	// Takeover evicts a live session that has the id. The shard sets it too when
	// that session is detached.
	Takeover bool
}

// Register makes an instance, and gives its incarnation, which its calls carry. The same
// registration again by the same session gives the same incarnation. Errors: BAD_REQUEST,
// ErrUnknownLocation, ErrAlreadyRegistered, ErrTooManyInstances.
func (t *Track) Register(now Now, r Registration, out *Events) (incarnation uint64, err error) {
	if !validName(r.ID, protocol.MaxTrackInstance) || !validText(r.Meta, protocol.MaxTrackMeta) || r.Role < protocol.InstanceFollower || r.Role > protocol.InstanceLeader || r.Session == 0 {
		return 0, badRequest(
			"register: an instance has an id of 1 to 255 bytes, a role, a session, and meta of at most 1024 printable bytes")
	}
	l, err := t.find(r.Location)
	if err != nil {
		return 0, err
	}
	old := t.instances[r.ID]
	switch {
	case old == nil:
		if len(t.instances) >= MaxInstances {
			return 0, ErrTooManyInstances
		}
	case old.session == r.Session:
		if old.loc == l && old.role == r.Role && old.meta == r.Meta {
			return old.incarnation, nil
		}
	case !r.Takeover:
		return 0, ErrAlreadyRegistered
	}
	t.clock = t.clockAt(now)
	if old != nil {
		text := "registered again by its session"
		if old.session != r.Session {
			text = "its id is taken over by another session"
		}
		t.remove(now, old, text, out)
	}
	t.incarnations++
	p := &instance{
		id: r.ID, session: r.Session, incarnation: t.incarnations, loc: l, role: r.Role, meta: r.Meta, registered: t.clock, roleAt: t.clock,
	}
	t.insert(p)
	t.updateCounts(p)
	t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventJoined, Location: l.name, Instance: p.id,
		Generation: p.incarnation, Text: "joins as " + p.role.String()})
	t.updateStates(now, out)
	return p.incarnation, nil
}

func (t *Track) insert(p *instance) {
	t.instances[p.id] = p
	t.bytes += InstanceBytes(len(p.id), len(p.meta))
	t.sessions[p.session] = append(t.sessions[p.session], p)
	p.loc.members = append(p.loc.members, p)
}

func (t *Track) remove(now Now, p *instance, text string, out *Events) {
	l := p.loc
	delete(t.instances, p.id)
	t.bytes -= InstanceBytes(len(p.id), len(p.meta))
	t.sessions[p.session] = slices.DeleteFunc(t.sessions[p.session], func(o *instance) bool { return o == p })
	if len(t.sessions[p.session]) == 0 {
		delete(t.sessions, p.session)
	}
	l.members = slices.DeleteFunc(l.members, func(o *instance) bool { return o == p })
	ok := l.add(p.contribution, -1)
	if !ok {
		l.findSuspects()
	}
	if len(l.members) == 0 {
		l.emptySince = t.clock
	}
	t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventLeft, Location: l.name, Instance: p.id,
		Generation: p.incarnation, Text: text})
}

// Caller says who makes a call: the session, and the incarnation that Register gave.
type Caller struct {
	Session     uint64
	ID          string
	Incarnation uint64
}

func (t *Track) checkCaller(c Caller) (*instance, error) {
	p := t.instances[c.ID]
	if p == nil {
		return nil, ErrUnknownInstance
	}
	if p.session != c.Session || p.incarnation != c.Incarnation {
		return nil, ErrFenced
	}
	return p, nil
}

// Unregister ends an instance at its own wish. Errors: ErrUnknownInstance, ErrFenced.
func (t *Track) Unregister(now Now, c Caller, out *Events) error {
	p, err := t.checkCaller(c)
	if err != nil {
		return err
	}
	t.clock = t.clockAt(now)
	t.remove(now, p, "leaves", out)
	t.updateStates(now, out)
	return nil
}

// SessionEnded removes the instances of a session that expired, was stopped or killed, in order of
// their ids. A detached session has not ended.
func (t *Track) SessionEnded(now Now, session uint64, out *Events) {
	list := slices.Clone(t.sessions[session])
	if len(list) == 0 {
		return
	}
	t.clock = t.clockAt(now)
	slices.SortFunc(list, byID)
	for _, p := range list {
		t.remove(now, p, "its session ended", out)
	}
	t.updateStates(now, out)
}

// HasSession says that the session has an instance here: it holds something, as an owner of a
// semaphore does.
func (t *Track) HasSession(session uint64) bool { return len(t.sessions[session]) > 0 }

// InstancesOf is how many instances the session has here, and the least of their ids.
func (t *Track) InstancesOf(session uint64) (first string, n int) {
	list := t.sessions[session]
	if len(list) > 0 {
		first = slices.MinFunc(list, byID).id
	}
	return first, len(list)
}

// Sessions lists the sessions that have instances here, in order.
func (t *Track) Sessions() []uint64 { return slices.Sorted(maps.Keys(t.sessions)) }

// SessionOf is the session that has registered the id, 0 none.
func (t *Track) SessionOf(id string) uint64 {
	if p := t.instances[id]; p != nil {
		return p.session
	}
	return 0
}

// Drop removes an instance at an operator's wish; its later calls get ErrUnknownInstance.
func (t *Track) Drop(now Now, id string, out *Events) error {
	p := t.instances[id]
	if p == nil {
		return ErrUnknownInstance
	}
	t.clock = t.clockAt(now)
	t.remove(now, p, "dropped by an operator", out)
	t.updateStates(now, out)
	return nil
}

// SetRole changes the role. A leader holds its location up until it has the target.
func (t *Track) SetRole(now Now, c Caller, role protocol.TrackInstanceRole, out *Events) error {
	p, err := t.checkCaller(c)
	if err != nil {
		return err
	}
	if role < protocol.InstanceFollower || role > protocol.InstanceLeader {
		return badRequest("set role: follower or leader")
	}
	if p.role == role && !p.demoted {
		return nil
	}
	t.clock = t.clockAt(now)
	p.role, p.roleAt, p.demoted = role, t.clock, false
	t.updateCounts(p)
	t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventRole, Location: p.loc.name, Instance: p.id,
		Text: "is " + role.String() + " now"})
	t.updateStates(now, out)
	return nil
}
