package rollout

import "slices"

// instanceTable has the instances, by id and by session.
type instanceTable struct {
	byID         map[string]*instance
	incarnations uint64                 // counter. Invariant: not below any instance's
	sessions     map[uint64][]*instance // derived; each in no order
	bytes        uint64                 // derived: bytes that instances count
}

func newInstanceTable() instanceTable {
	return instanceTable{byID: map[string]*instance{}, sessions: map[uint64][]*instance{}}
}

// Caller identifies the maker of a call: the session, and the incarnation that Register gave.
type Caller struct {
	Session     uint64
	ID          string
	Incarnation uint64
}

// of is the instance that makes a call.
func (t *instanceTable) of(c Caller) (*instance, error) {
	p := t.byID[c.ID]
	if p == nil {
		return nil, unknownInstance(c.ID)
	}
	if p.session != c.Session || p.incarnation != c.Incarnation {
		return nil, fenced(p, c)
	}
	return p, nil
}

func (t *instanceTable) insert(p *instance) {
	t.byID[p.id] = p
	t.bytes += InstanceBytes(len(p.id), len(p.meta))
	list := t.sessions[p.session]
	p.atSession, p.atLocation = len(list), len(p.loc.members)
	t.sessions[p.session] = append(list, p)
	p.loc.members = append(p.loc.members, p)
}

// remove takes an instance out of the table and of its location's counts. The last of each list
// takes its place there: thousands may go at once.
func (t *instanceTable) remove(p *instance) {
	l := p.loc
	delete(t.byID, p.id)
	t.bytes -= InstanceBytes(len(p.id), len(p.meta))
	list := t.sessions[p.session]
	last := list[len(list)-1]
	list[p.atSession], last.atSession = last, p.atSession
	list[len(list)-1] = nil
	if t.sessions[p.session] = list[:len(list)-1]; len(list) == 1 {
		delete(t.sessions, p.session)
	}
	last = l.members[len(l.members)-1]
	l.members[p.atLocation], last.atLocation = last, p.atLocation
	l.members[len(l.members)-1] = nil
	l.members = l.members[:len(l.members)-1]
	if !l.add(p.contribution, -1) {
		l.findSuspects()
	}
}

// after returns the first ids above id, in order; most bounds the list.
func (t *instanceTable) after(id string, most int) (list []string) {
	for have := range t.byID {
		if have > id {
			list = append(list, have)
		}
	}
	slices.Sort(list)
	return list[:min(most, len(list))]
}
