package meta

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// InstanceReassign moves an instance to another replicaset of its tier that lacks a copy. The
// instance's own replicaset must have no shards; it is expelled when this was its last member.
//
// NOT_FOUND: no such instance or replicaset. ABORTED: Expected is not the record's revision, the
// instance or a replicaset is being expelled, the replicaset is full, or the old one has shards.
// PRECONDITION_FAILED: the tiers differ, or a member shares a failure domain.
type InstanceReassign struct {
	Instance   uint64
	Expected   uint64 // the instance record's revision
	Replicaset uint64 // the new one
}

func (*InstanceReassign) kind() Kind { return KindInstanceReassign }

func (c *InstanceReassign) fields(f *varint.Fields) {
	f.Uint(&c.Instance, &c.Expected, &c.Replicaset)
}

func (c *InstanceReassign) apply(s *State) Result {
	i, res := s.requireInstance(c.Instance)
	if res.Status != protocol.StatusOK {
		return res
	}
	to, res := s.requireReplicaset(c.Replicaset)
	if res.Status != protocol.StatusOK {
		return res
	}
	from, _ := s.Replicaset(i.Replicaset)
	t, _ := s.Tier(to.Tier)
	switch {
	case i.Replicaset == to.ID:
		return Result{Revision: unchanged, Instance: i.ID}
	case c.Expected != i.Revision:
		return refuse(protocol.StatusAborted, "instance %d was changed in the meantime; look again and retry", i.ID)
	case i.Target.Variant == Expelled:
		return refuse(protocol.StatusAborted, "instance '%s' is expelled", i.Name)
	case to.Tier != i.Tier:
		return refuse(protocol.StatusPreconditionFailed, "instance '%s' is of another tier than replicaset %s",
			i.Name, to.Name)
	case to.Phase >= ToBeExpelled || from.Phase >= ToBeExpelled:
		return refuse(protocol.StatusAborted, "replicaset %s is %s, and %s is %s",
			from.Name, from.Phase, to.Name, to.Phase)
	case s.hasShards(from.ID):
		return refuse(protocol.StatusAborted, "replicaset %s of instance '%s' has shards; remove them first",
			from.Name, i.Name)
	}
	members := s.stayingMembers(to.ID)
	if len(members) >= int(t.ReplicationFactor) {
		return refuse(protocol.StatusAborted, "replicaset %s has %d members, as many as it is filled up to",
			to.Name, len(members))
	}
	for _, m := range members {
		if Intersect(m.Domain, i.Domain) {
			return refuse(protocol.StatusPreconditionFailed,
				"instance '%s' shares a failure domain with '%s' of replicaset %s", i.Name, m.Name, to.Name)
		}
	}
	i.Replicaset = to.ID
	s.putInstance(i, s.revision)
	if !slices.ContainsFunc(s.instances, func(o Instance) bool { return o.Replicaset == from.ID && !o.Expelled() }) {
		from.Phase, from.Weight = ReplicasetExpelled, 0
		s.putReplicaset(from, s.revision)
	}
	return Result{Instance: i.ID}
}

// ShardsRemove removes the shards of a replicaset that has no buckets and fewer members than
// copies, and makes it not ready: its members can then be reassigned. Nothing is lost. ABORTED
// while one of its shards has buckets or is in a move, when the replicaset is full, before the
// tier's buckets were assigned, or once it is to be expelled.
type ShardsRemove struct {
	Replicaset uint64
}

func (*ShardsRemove) kind() Kind { return KindShardsRemove }

func (c *ShardsRemove) fields(f *varint.Fields) { f.Uint(&c.Replicaset) }

func (c *ShardsRemove) apply(s *State) Result {
	set, res := s.requireReplicaset(c.Replicaset)
	if res.Status != protocol.StatusOK {
		return res
	}
	t, _ := s.Tier(set.Tier)
	switch {
	case set.Phase >= ToBeExpelled || !t.Bootstrapped:
		return refuse(protocol.StatusAborted, "replicaset %s is %s, or its tier's buckets are not assigned yet",
			set.Name, set.Phase)
	case !s.hasShards(set.ID):
		return Result{Revision: unchanged}
	case len(s.stayingMembers(set.ID)) >= int(t.ReplicationFactor):
		return refuse(protocol.StatusAborted, "replicaset %s has its members", set.Name)
	case set.ownsBuckets(s):
		return refuse(protocol.StatusAborted, "replicaset %s has buckets", set.Name)
	}
	s.shards = slices.DeleteFunc(slices.Clone(s.shards), func(x Shard) bool { return x.Replicaset == set.ID })
	set.Phase = NotReady
	if !set.WeightByUser {
		set.Weight = 0
	}
	s.putReplicaset(set, s.revision)
	s.mapVersion = s.revision
	return Result{}
}

// ownsBuckets reports whether a replicaset's shards own buckets or are in a move.
func (r *Replicaset) ownsBuckets(s *State) bool {
	t, _ := s.Tier(r.Tier)
	own := func(shard uint64) bool {
		x, ok := s.Shard(shard)
		return ok && shard != MetaShardID && x.Replicaset == r.ID
	}
	return slices.ContainsFunc(t.Runs, func(run Run) bool { return own(run.Shard) }) ||
		slices.ContainsFunc(s.moves, func(m Move) bool { return own(m.From) || own(m.To) })
}
