package rollout

import "slices"

// instanceTable has the instances, by id and by session.
type instanceTable struct {
	byID         map[string]*instance
	incarnations uint64                 // counter. Invariant: not below any instance's
	sessions     map[uint64][]*instance // derived
	bytes        uint64                 // derived: what instances count
}

func newInstanceTable() instanceTable {
	return instanceTable{byID: map[string]*instance{}, sessions: map[uint64][]*instance{}}
}

// Caller says who makes a call: the session, and the incarnation that Register gave.
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
	t.sessions[p.session] = append(t.sessions[p.session], p)
	p.loc.members = append(p.loc.members, p)
}

// remove takes an instance out of the table and of its location's counts.
func (t *instanceTable) remove(p *instance) {
	l := p.loc
	delete(t.byID, p.id)
	t.bytes -= InstanceBytes(len(p.id), len(p.meta))
	t.sessions[p.session] = slices.DeleteFunc(t.sessions[p.session], func(o *instance) bool { return o == p })
	if len(t.sessions[p.session]) == 0 {
		delete(t.sessions, p.session)
	}
	l.members = slices.DeleteFunc(l.members, func(o *instance) bool { return o == p })
	if !l.add(p.contribution, -1) {
		l.findSuspects()
	}
}

// after lists at most so many ids above one, in order.
func (t *instanceTable) after(id string, most int) (list []string) {
	for have := range t.byID {
		if have > id {
			list = append(list, have)
		}
	}
	slices.Sort(list)
	return list[:min(most, len(list))]
}
