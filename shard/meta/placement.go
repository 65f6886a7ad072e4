package meta

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// ShardsCreate creates a replicaset's data shards, as many as its tier says. Each has one replica
// on the given instance, whose process starts the group. A replicaset with shards keeps them.
// PRECONDITION_FAILED if it cannot have any.
type ShardsCreate struct {
	Replicaset uint64
	Instance   uint64
}

func (*ShardsCreate) kind() Kind { return KindShardsCreate }

func (c *ShardsCreate) fields(f *varint.Fields) {
	f.Uint(&c.Replicaset, &c.Instance)
}

func (c *ShardsCreate) apply(s *State) Result {
	set, res := s.requireReplicaset(c.Replicaset)
	if res.Status != protocol.StatusOK {
		return res
	}
	t, _ := s.Tier(set.Tier)
	i, ok := s.Instance(c.Instance)
	switch {
	case slices.ContainsFunc(s.shards, func(x Shard) bool { return x.Replicaset == set.ID }):
		return Result{Revision: unchanged}
	case t.Buckets == 0 || set.Phase >= ToBeExpelled:
		return refuse(protocol.StatusPreconditionFailed,
			"replicaset %s is %s, or of a tier without data; it gets no shards", set.Name, set.Phase)
	case !ok || i.Replicaset != set.ID || i.Expelled():
		return notMember(c.Instance, &set)
	}
	return set.addShards(s, i.ID, t.ShardsPerReplicaset)
}

func notMember(instance uint64, set *Replicaset) Result {
	return refuse(protocol.StatusPreconditionFailed, "instance %d is no member of replicaset %s; choose one that is",
		instance, set.Name)
}

// addShards gives a replicaset new shards that a member founds.
func (r *Replicaset) addShards(s *State, founder uint64, count uint32) Result {
	if len(s.shards)+int(count) > MaxShards || s.nextShard+uint64(count) > MaxShardID {
		return refuse(protocol.StatusPreconditionFailed,
			"the cluster has %d data shards, there is no room for %d more; expel a replicaset first",
			len(s.shards), count)
	}
	s.shards = slices.Clone(s.shards)
	for range count {
		s.nextShard++
		s.shards = append(s.shards, newShard(s.nextShard, r.Tier, r.ID, founder, s.revision))
	}
	s.mapVersion = s.revision
	return Result{}
}

// ReplicaAdd decides that a shard, or the meta shard, gets a replica on an instance; Result.Replica
// is its id. The replica is not in the group yet. An instance that has a replica keeps it, whatever
// TargetRole is. ABORTED if that replica is being removed; PRECONDITION_FAILED if the instance may
// not have this role.
type ReplicaAdd struct {
	Shard      uint64
	Instance   uint64
	TargetRole Role // RoleNonVoting or RoleVoter
}

func (*ReplicaAdd) kind() Kind { return KindReplicaAdd }

func (c *ReplicaAdd) fields(f *varint.Fields) {
	f.Uint(&c.Shard, &c.Instance)
	varint.Byte(f, &c.TargetRole)
}

func (c *ReplicaAdd) apply(s *State) Result {
	x, res := s.requireShard(c.Shard)
	if res.Status != protocol.StatusOK {
		return res
	}
	if c.TargetRole != RoleNonVoting && c.TargetRole != RoleVoter {
		return refuse(protocol.StatusBadRequest, "a replica is added as non-voting or voter")
	}
	if r, ok := x.On(c.Instance); ok {
		if r.TargetRole == RoleNone {
			return refuse(protocol.StatusAborted, "replica %d of %s, on the same instance, is on its way out",
				r.Replica, &x)
		}
		return Result{Revision: unchanged, Replica: r.Replica, Instance: r.Instance}
	}
	if res := x.mayHaveReplica(s, c.Instance, c.TargetRole); res.Status != protocol.StatusOK {
		return res
	}
	x.NextReplica++
	x.Replicas = append(slices.Clip(x.Replicas),
		Replica{Instance: c.Instance, Replica: x.NextReplica, TargetRole: c.TargetRole})
	s.putShard(x, s.revision)
	return Result{Replica: x.NextReplica, Instance: c.Instance}
}

// mayHaveReplica refuses a replica of this role on an instance that may not have one.
func (x *Shard) mayHaveReplica(s *State, instance uint64, want Role) Result {
	i, ok := s.Instance(instance)
	if !ok || i.Expelled() {
		return refuse(protocol.StatusPreconditionFailed, "instance %d is no member of the cluster", instance)
	}
	if x.ID != MetaShardID && i.Replicaset != x.Replicaset {
		return refuse(protocol.StatusPreconditionFailed, "instance %d is not of the replicaset of shard %d",
			instance, x.ID)
	}
	if t, _ := s.Tier(i.Tier); x.ID == MetaShardID && want == RoleVoter && !t.CanVote {
		return refuse(protocol.StatusPreconditionFailed, "instance %d is of tier %s, which may not vote",
			instance, t.Name)
	}
	return Result{}
}

// ReplicaTarget sets the target role of a replica: a higher one, or RoleNone for good. A voter
// cannot become non-voting: it is removed, and its instance gets a new replica. ABORTED if the
// group would lose its last voter.
type ReplicaTarget struct {
	Shard      uint64
	Replica    uint64
	TargetRole Role
}

func (*ReplicaTarget) kind() Kind { return KindReplicaTarget }

func (c *ReplicaTarget) fields(f *varint.Fields) {
	f.Uint(&c.Shard, &c.Replica)
	varint.Byte(f, &c.TargetRole)
}

func (c *ReplicaTarget) apply(s *State) Result {
	x, res := s.requireShard(c.Shard)
	if res.Status != protocol.StatusOK {
		return res
	}
	at := slices.IndexFunc(x.Replicas, func(r Replica) bool { return r.Replica == c.Replica })
	switch {
	case c.TargetRole > RoleVoter:
		return refuse(protocol.StatusBadRequest, "there is no role %d", c.TargetRole)
	case at < 0 && c.TargetRole == RoleNone:
		return Result{Revision: unchanged, Replica: c.Replica}
	case at < 0:
		return refuse(protocol.StatusNotFound, "%s has no replica %d", &x, c.Replica)
	}
	r := x.Replicas[at]
	switch {
	case r.TargetRole == c.TargetRole:
		return Result{Revision: unchanged, Replica: c.Replica}
	case r.TargetRole == RoleNone:
		return refuse(protocol.StatusPreconditionFailed,
			"replica %d of %s is on its way out; add a new one when it is gone", c.Replica, &x)
	case c.TargetRole != RoleNone && c.TargetRole < r.TargetRole:
		return refuse(protocol.StatusPreconditionFailed,
			"replica %d of %s cannot become less than it is to be; remove it and add a new one", c.Replica, &x)
	case c.TargetRole == RoleNone:
		stays := func(o Replica) bool {
			return o.Replica != c.Replica && o.Role == RoleVoter && o.TargetRole == RoleVoter
		}
		if r.Role == RoleVoter && !slices.ContainsFunc(x.Replicas, stays) {
			return refuse(protocol.StatusAborted, "replica %d is the last voter of %s", c.Replica, &x)
		}
	default:
		if res := x.mayHaveReplica(s, r.Instance, c.TargetRole); res.Status != protocol.StatusOK {
			return res
		}
	}
	r.TargetRole = c.TargetRole
	x.Replicas = slices.Clone(x.Replicas)
	x.Replicas[at] = r
	s.putShard(x, s.revision)
	return Result{Replica: c.Replica}
}

// ReplicaRole records a replica's present role in its group; outdated reports are ignored. RoleNone
// removes the record of a replica whose target role is none: it was removed from the group, or
// never got there and cannot any more. PRECONDITION_FAILED for RoleNone of a replica that is to
// stay.
type ReplicaRole struct {
	Shard   uint64
	Replica uint64
	Role    Role
}

func (*ReplicaRole) kind() Kind { return KindReplicaRole }

func (c *ReplicaRole) fields(f *varint.Fields) {
	f.Uint(&c.Shard, &c.Replica)
	varint.Byte(f, &c.Role)
}

func (c *ReplicaRole) apply(s *State) Result {
	x, res := s.requireShard(c.Shard)
	if res.Status != protocol.StatusOK {
		return res
	}
	at := slices.IndexFunc(x.Replicas, func(r Replica) bool { return r.Replica == c.Replica })
	switch {
	case c.Role > RoleVoter:
		return refuse(protocol.StatusBadRequest, "there is no role %d", c.Role)
	case at < 0:
		return Result{Revision: unchanged, Replica: c.Replica} // removed since
	}
	r, master := x.Replicas[at], x.Master
	x.Replicas = slices.Clone(x.Replicas)
	switch {
	case c.Role == RoleNone && r.TargetRole != RoleNone:
		return refuse(protocol.StatusPreconditionFailed, "replica %d of %s is to stay; decide that it goes first",
			c.Replica, &x)
	case c.Role == RoleNone:
		x.Replicas = slices.Delete(x.Replicas, at, at+1)
		if x.Master == r.Instance {
			x.Master = 0
		}
		if x.TargetMaster == r.Instance {
			x.TargetMaster = 0
		}
	case c.Role <= r.Role:
		return Result{Revision: unchanged, Replica: c.Replica}
	default:
		x.Replicas[at].Role = c.Role
		if r.TargetRole != RoleNone {
			x.Replicas[at].TargetRole = max(r.TargetRole, c.Role)
		}
	}
	if x.ID != MetaShardID && ((r.Role == RoleNone) != (c.Role == RoleNone) || x.Master != master) {
		s.mapVersion = s.revision
	}
	s.putShard(x, s.revision)
	return Result{Replica: c.Replica}
}

// MasterTarget decides which instance is to lead a shard. PRECONDITION_FAILED if it has no voter of
// it.
type MasterTarget struct {
	Shard    uint64
	Instance uint64
}

func (*MasterTarget) kind() Kind { return KindMasterTarget }

func (c *MasterTarget) fields(f *varint.Fields) {
	f.Uint(&c.Shard, &c.Instance)
}

func (c *MasterTarget) apply(s *State) Result {
	x, res := s.requireShard(c.Shard)
	r, ok := x.On(c.Instance)
	switch {
	case res.Status != protocol.StatusOK:
		return res
	case x.TargetMaster == c.Instance:
		return Result{Revision: unchanged}
	case !ok || r.Role != RoleVoter || r.TargetRole != RoleVoter:
		return refuse(protocol.StatusPreconditionFailed, "instance %d has no vote in %s; choose one that has",
			c.Instance, &x)
	}
	x.TargetMaster = c.Instance
	s.putShard(x, s.revision)
	return Result{}
}

// MasterCurrent records which instance leads a shard now, wanted or not. PRECONDITION_FAILED if it
// has no replica of it.
type MasterCurrent struct {
	Shard    uint64
	Instance uint64
}

func (*MasterCurrent) kind() Kind { return KindMasterCurrent }

func (c *MasterCurrent) fields(f *varint.Fields) {
	f.Uint(&c.Shard, &c.Instance)
}

func (c *MasterCurrent) apply(s *State) Result {
	x, res := s.requireShard(c.Shard)
	_, ok := x.On(c.Instance)
	switch {
	case res.Status != protocol.StatusOK:
		return res
	case x.Master == c.Instance:
		return Result{Revision: unchanged}
	case !ok:
		return refuse(protocol.StatusPreconditionFailed, "instance %d has no replica of %s", c.Instance, &x)
	}
	x.Master = c.Instance
	s.putShard(x, s.revision)
	if x.ID != MetaShardID {
		s.mapVersion = s.revision
	}
	return Result{}
}
