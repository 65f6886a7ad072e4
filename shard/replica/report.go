package replica

import (
	"cmp"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/shard/replica/engine"
)

// Role of a replica in its raft group.
type Role uint8

const (
	RoleNone      Role = iota // not in the group, as far as the replica has applied its log
	RoleNonVoting             // gets the log but does not vote
	RoleVoter
)

func (r Role) String() string {
	switch r {
	case RoleNonVoting:
		return "non-voting"
	case RoleVoter:
		return "voter"
	}
	return "none"
}

// GroupReport is a replica's knowledge of itself and its group without communication. Only a
// barrier or a read proves any of it.
type GroupReport struct {
	Shard, Replica uint64
	Running        bool
	Removed        bool // it has applied its own removal; the fields below are unknown
	Role           Role
	ConfigChange   uint64 // the last change of members applied here
	Leader         uint64 // replica id, 0 for none
	Term           uint64
	Leading        bool   // it leads; for a data shard its own epoch is applied
	Applied        uint64 // log index
}

// report is [Host.Report].
func report(t *groupTable, e *engine.Engine) []GroupReport {
	infos := e.Infos()
	groups := t.running()
	t.mu.Lock()
	gone := make(map[[2]uint64]bool, len(t.removed))
	maps.Copy(gone, t.removed)
	list := make([]GroupReport, 0, len(groups)+len(gone))
	for _, g := range groups {
		list = append(list, GroupReport{Shard: g.shard, Replica: g.id, Running: true, Leader: g.leader, Term: g.term})
	}
	t.mu.Unlock()
	for i, g := range groups {
		r := &list[i]
		if key := [2]uint64{g.shard, g.id}; gone[key] {
			delete(gone, key)
			r.Removed = true
			continue
		}
		if e, ok := infos[g.shard]; ok && e.Replica == g.id {
			r.ConfigChange = e.ConfigChange
			switch {
			case e.NonVoting:
				r.Role = RoleNonVoting
			case e.Voters[g.id] != "":
				r.Role = RoleVoter
			}
		}
		g.replica.report(r)
	}
	for key := range gone {
		list = append(list, GroupReport{Shard: key[0], Replica: key[1], Removed: true})
	}
	slices.SortFunc(list, func(a, b GroupReport) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Replica, b.Replica))
	})
	return list
}

func (m *Meta) report(r *GroupReport) {
	r.Leading = m.Leading()
	m.mu.RLock()
	defer m.mu.RUnlock()
	r.Applied = m.machine.AppliedIndex()
}
