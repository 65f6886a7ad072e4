package governor

import (
	"cmp"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// View is the input of a plan.
type View struct {
	State        *meta.State
	Progress     *Progress
	Now          time.Duration
	Health       map[uint64]Heartbeat // by instance
	OfflineAfter time.Duration        // see Config.OfflineAfter; 0 means DefaultOfflineAfter
	Unreached    map[uint64]Unreached // instances that are not reached at their raft address
	Applicants   []Applicant          // processes that are not admitted
}

const (
	// DefaultOfflineAfter is the age of the last heartbeat above which an instance does not count
	// as alive, unless Config.OfflineAfter says otherwise.
	DefaultOfflineAfter = 5 * time.Second
	// quorumLimit is how old the last heartbeat of a voter may be for its vote to count, however
	// long OfflineAfter is. A vote that is counted without being there can cost a group its
	// majority.
	quorumLimit = 5 * time.Second
	// FreshLimit is how old the last heartbeat may be when a replica gets its vote. A vote given to
	// a dead instance can cost a small group its majority.
	FreshLimit = 1500 * time.Millisecond
)

// alive reports whether the instance's last heartbeat is younger than OfflineAfter. A heartbeat
// that is younger than FreshLimit may just be the last one before the next.
func (v *View) alive(instance uint64) bool {
	return v.heardWithin(instance, max(cmp.Or(v.OfflineAfter, DefaultOfflineAfter), FreshLimit))
}

func (v *View) heardWithin(instance uint64, limit time.Duration) bool {
	h, ok := v.Health[instance]
	return ok && v.Now-h.Heard <= limit
}

// fresh reports whether the instance's last heartbeat is younger than FreshLimit.
func (v *View) fresh(instance uint64) bool {
	return v.heardWithin(instance, FreshLimit)
}

// replicaHealth returns a live instance's report about a replica.
func (v *View) replicaHealth(r *meta.Replica, shard uint64) (ShardReport, bool) {
	if !v.alive(r.Instance) {
		return ShardReport{}, false
	}
	h, ok := v.Health[r.Instance].Shards[shard]
	return h, ok && h.Replica == r.Replica
}

// leader is the replica that leads a shard: of those that report leadership, the one with the
// highest term. A leadership that this governor has transferred is over, even if the old leader's
// next heartbeat is still to come. Otherwise the old heartbeat would look like an election, and the
// shard would go back and forth.
func (v *View) leader(x *meta.Shard) (leader meta.Replica, ok bool) {
	term := uint64(0)
	over, known := transferred{}, false
	if v.Progress != nil {
		over, known = v.Progress.transfers[x.ID]
	}
	for i := range x.Replicas {
		r := &x.Replicas[i]
		if h, is := v.replicaHealth(r, x.ID); is && h.Leader == r.Replica && (!ok || h.Term > term) &&
			(!known || h.Term > over.term) {
			leader, term, ok = *r, h.Term, true
		}
	}
	return leader, ok
}

// caughtUp reports whether a replica has all that the shard's leader had a moment ago.
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

// takesPart reports whether a replica runs on a live instance, and that its vote counts.
func (v *View) takesPart(r *meta.Replica, shard uint64) bool {
	_, ok := v.replicaHealth(r, shard)
	return ok && v.heardWithin(r.Instance, quorumLimit)
}

// knowMembership reports whether all voters of a shard that take part have applied this membership.
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

// isQuorum reports whether this many live voters are a majority.
func isQuorum(voters, live int) bool { return voters > 0 && live > voters/2 }

// online reports whether an instance is Online, as it is wanted.
func online(i *meta.Instance) bool { return i.Current == i.Target && i.Target.Variant == meta.Online }

// stays reports whether an instance keeps its leaderships and votes.
func stays(i *meta.Instance) bool { return i.Target.Variant == meta.Online && !i.Drained }

// departure is whether, and how, an instance leaves.
func departure(i *meta.Instance) Departure {
	switch {
	case i.Target.Variant == meta.Expelled:
		return BeingExpelled
	case !stays(i):
		return Pausing
	}
	return Staying
}
