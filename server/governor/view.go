package governor

import (
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// View is all that a plan depends on.
type View struct {
	State        *meta.State
	Progress     *Progress
	Now          time.Duration
	Health       map[uint64]Health // by instance
	OfflineAfter time.Duration     // see Config.OfflineAfter; 0 means DefaultOfflineAfter
}

const (
	// DefaultOfflineAfter is how old the last heartbeat of an instance may be that counts as alive, unless Config.OfflineAfter says otherwise.
	DefaultOfflineAfter = 5 * time.Second
	// FreshLimit is how old it may be when a replica there gets its vote: a vote that is given to the dead can cost a small group its majority.
	FreshLimit = 1500 * time.Millisecond
)

// alive says that the instance was heard lately.
func (v *View) alive(instance uint64) bool {
	h, ok := v.Health[instance]
	limit := v.OfflineAfter
	if limit == 0 {
		limit = DefaultOfflineAfter
	}
	return ok && v.Now-h.Heard <= limit
}

// fresh says that the instance was heard a moment ago.
func (v *View) fresh(instance uint64) bool {
	return v.alive(instance) && v.Now-v.Health[instance].Heard <= FreshLimit
}

// runs is what an instance that is alive says about a replica.
func (v *View) replicaHealth(r *meta.Replica, shard uint64) (ShardHealth, bool) {
	if !v.alive(r.Instance) {
		return ShardHealth{}, false
	}
	h, ok := v.Health[r.Instance].Shards[shard]
	return h, ok && h.Replica == r.Replica
}

// leader is the replica that leads a shard: of those that say so of themselves the one with the highest term. A leadership that this governor has had handed over is
// over, although the next heartbeat of who had it is still to come; taken for true, it would look like an election, and the shard would go back and forth.
func (v *View) leader(x *meta.Shard) (leader meta.Replica, ok bool) {
	term := uint64(0)
	over, known := transferred{}, false
	if v.Progress != nil {
		over, known = v.Progress.transfers[x.ID]
	}
	for i := range x.Replicas {
		r := &x.Replicas[i]
		if h, is := v.replicaHealth(r, x.ID); is && h.Leader == r.Replica && (!ok || h.Term > term) && (!known || h.Term > over.term) {
			leader, term, ok = *r, h.Term, true
		}
	}
	return leader, ok
}

// caughtUp says that a replica has all that the shard's leader had a moment ago.
func (v *View) caughtUp(r *meta.Replica, shard uint64) bool {
	h, ok := v.replicaHealth(r, shard)
	if !ok {
		return false
	}
	if h.Leader == r.Replica {
		return true
	}
	mark, ok := v.Progress.catchUpMarks[shard]
	return ok && h.Applied >= mark.index
}

// follows says that a voter takes part: its instance is alive, and it runs.
func (v *View) takesPart(r *meta.Replica, shard uint64) bool {
	_, ok := v.replicaHealth(r, shard)
	return ok
}

// knowMembership says that all voters of a shard that take part have applied this membership.
func (v *View) knowMembership(x *meta.Shard, m *Membership) bool {
	for i := range x.Replicas {
		r := &x.Replicas[i]
		if _, votes := m.Voters[r.Replica]; !votes {
			continue
		}
		if h, runs := v.replicaHealth(r, x.ID); runs && h.Members < m.ConfigChange {
			return false
		}
	}
	return true
}

// safe says that a group of so many voters, of which so many take part, can decide.
func isQuorum(voters, live int) bool { return voters > 0 && live > voters/2 }

// online says that an instance is what it is wanted to be, and that is Online.
func online(i *meta.Instance) bool { return i.Current == i.Target && i.Target.Variant == meta.Online }

// stays says that nothing is to be taken from an instance.
func stays(i *meta.Instance) bool { return i.Target.Variant == meta.Online && !i.Drained }

// leaving is where an instance is going.
func departure(i *meta.Instance) Departure {
	switch {
	case i.Target.Variant == meta.Expelled:
		return BeingExpelled
	case !stays(i):
		return Pausing
	}
	return Staying
}
