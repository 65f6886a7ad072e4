package meta

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// Surplus reports whether a replicaset has more shards than its tier says, and that this one of
// them is to go. The oldest stay: the surplus shards are those with the highest ids.
func (x *Shard) Surplus(s *State) bool {
	if x.ID == MetaShardID {
		return false
	}
	t, _ := s.Tier(x.Tier)
	older := uint32(0)
	for i := range s.shards {
		if s.shards[i].Replicaset == x.Replicaset && s.shards[i].ID < x.ID {
			older++
		}
	}
	return older >= t.ShardsPerReplicaset
}

// TierShards changes how many data shards each replicaset of a tier is to have. Nothing else
// changes at once: ShardAdd makes the missing shards, ShardRemove removes surplus ones when their
// buckets have moved.
//
// NOT_FOUND: no such tier. BAD_REQUEST: no such number. PRECONDITION_FAILED: the tier has fewer
// buckets or is to be restored, or the cluster has no room for as many shards.
type TierShards struct {
	Tier   uint8
	Shards uint32 // 1 to MaxShards, and to the number of the tier's buckets
}

func (*TierShards) kind() Kind { return KindTierShards }

func (c *TierShards) fields(f *varint.Fields) {
	varint.Byte(f, &c.Tier)
	f.Uint32(&c.Shards)
}

func (c *TierShards) apply(s *State) Result {
	t, ok := s.Tier(c.Tier)
	switch {
	case !ok:
		return refuse(protocol.StatusNotFound, "there is no tier %d", c.Tier)
	case t.ShardsPerReplicaset == c.Shards:
		return Result{Revision: unchanged}
	}
	if res := t.mayHaveShards(s, c.Shards); res.Status != protocol.StatusOK {
		return res
	}
	t.ShardsPerReplicaset = c.Shards
	s.putTier(t)
	return Result{}
}

// CheckShards reports whether TierShards would accept this number for a tier.
func (t *Tier) CheckShards(s *State, shards uint32) error {
	res := t.mayHaveShards(s, shards)
	return res.Err()
}

// mayHaveShards refuses a number of shards that the replicasets of a tier cannot have.
func (t *Tier) mayHaveShards(s *State, shards uint32) Result {
	room, sets := MaxShards, 0
	for i := range s.replicasets {
		switch set := &s.replicasets[i]; {
		case set.Tier == t.ID && set.Phase < ToBeExpelled:
			sets++
		default:
			room -= len(s.ShardsOf(set.ID))
		}
	}
	most := max(0, room/max(1, sets))
	switch {
	case shards == 0 || shards > MaxShards:
		return refuse(protocol.StatusBadRequest, "%d shards per replicaset; choose 1 to %d", shards, MaxShards)
	case t.ToBeRestored():
		return t.refuseUnrestored()
	case t.Buckets < shards:
		return refuse(protocol.StatusPreconditionFailed,
			"tier %s has %d buckets, fewer than %d shards; choose fewer shards", t.Name, t.Buckets, shards)
	case shards > t.ShardsPerReplicaset && int(shards) > most:
		return refuse(protocol.StatusPreconditionFailed,
			"the cluster may have %d data shards in all, so a replicaset of tier %s may have %d; choose fewer", MaxShards,
			t.Name, most)
	}
	return Result{}
}

// ShardAdd gives a replicaset one more shard, if it has fewer than its tier says. The shard has one
// replica on the given instance, whose process starts the group. Its id was never used before.
//
// ABORTED: the replicaset does not have the stated number of shards, or is not ready.
// PRECONDITION_FAILED: the instance is no member, or the cluster has no room.
type ShardAdd struct {
	Replicaset uint64
	Instance   uint64
	Shards     uint32 // the expected number of shards, at least 1: ShardsCreate makes the first ones
}

func (*ShardAdd) kind() Kind { return KindShardAdd }

func (c *ShardAdd) fields(f *varint.Fields) {
	f.Uint(&c.Replicaset, &c.Instance)
	f.Uint32(&c.Shards)
}

func (c *ShardAdd) apply(s *State) Result {
	set, res := s.requireReplicaset(c.Replicaset)
	if res.Status != protocol.StatusOK {
		return res
	}
	t, _ := s.Tier(set.Tier)
	i, ok := s.Instance(c.Instance)
	switch has := len(s.ShardsOf(set.ID)); {
	case set.Phase != ReplicasetReady:
		return refuse(protocol.StatusAborted, "replicaset %s is %s", set.Name, set.Phase)
	case has == 0 || uint32(has) != c.Shards:
		return refuse(protocol.StatusAborted, "replicaset %s has %d shards, not %d; look again and retry",
			set.Name, has, c.Shards)
	case c.Shards >= t.ShardsPerReplicaset:
		return Result{Revision: unchanged}
	case !ok || i.Replicaset != set.ID || i.Expelled():
		return notMember(c.Instance, &set)
	}
	return set.addShards(s, i.ID, 1)
}

// ShardRemove removes a surplus shard: its group ends, and its replicas' data are removed. Nothing
// is lost, since its buckets have moved. It may be repeated.
//
// ABORTED: the shard is not surplus, has buckets, or is in a move. NOT_FOUND: its id was never
// given out.
type ShardRemove struct {
	Shard uint64
}

func (*ShardRemove) kind() Kind { return KindShardRemove }

func (c *ShardRemove) fields(f *varint.Fields) { f.Uint(&c.Shard) }

func (c *ShardRemove) apply(s *State) Result {
	at, ok := findShard(s.shards, c.Shard)
	switch {
	case !ok && (c.Shard == 0 || c.Shard > s.nextShard):
		return refuse(protocol.StatusNotFound, "there is no data shard %d", c.Shard)
	case !ok:
		return Result{Revision: unchanged}
	case !s.shards[at].Surplus(s):
		return refuse(protocol.StatusAborted, "shard %d is to stay", c.Shard)
	}
	t, _ := s.Tier(s.shards[at].Tier)
	if slices.ContainsFunc(t.Runs, func(r Run) bool { return r.Shard == c.Shard }) {
		return refuse(protocol.StatusAborted, "shard %d still has buckets", c.Shard)
	}
	if slices.ContainsFunc(s.moves, func(m Move) bool { return m.From == c.Shard || m.To == c.Shard }) {
		return refuse(protocol.StatusAborted, "shard %d is in a move of buckets", c.Shard)
	}
	s.shards = slices.Delete(slices.Clone(s.shards), at, at+1)
	s.mapVersion = s.revision
	return Result{}
}
