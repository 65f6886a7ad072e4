package meta

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// MetaShardID is the id of the meta shard. Data shards have lower ids.
const MetaShardID = MaxShardID + 1

// Role is a replica's role in its raft group. Numbers are stable.
type Role uint8

const (
	RoleNone      Role = 0 // not in the group yet, or no longer
	RoleNonVoting Role = 1 // a copy without a vote
	RoleVoter     Role = 2
)

// String is the role's word.
func (r Role) String() string {
	return word(r, "none", "non-voting", "voter")
}

// Replica is one copy of a shard. A removed replica never comes back: its instance gets another one
// with a new id.
type Replica struct {
	Instance   uint64
	Replica    uint64 // raft replica id, never reused within the shard
	Role       Role   // in the group, as last seen by the governor
	TargetRole Role   // it rises, or becomes RoleNone for good
	Founder    bool   // an initial member: its process started the group
}

// Shard is a raft group: a data shard, or the meta shard.
type Shard struct {
	ID           uint64
	Tier         uint8  // 0 for the meta shard
	Replicaset   uint64 // 0 for the meta shard
	Replicas     []Replica
	NextReplica  uint64 // the last replica id given out
	Master       uint64 // the instance that leads, as last seen by the governor; 0 for none
	TargetMaster uint64 // the instance that is to lead; 0 for none. Leadership moves while it differs from Master
	Ready        bool   // it has the nodes and buckets of its tier, and serves
	Revision     uint64 // the machine's revision of the last change to this record
}

// String names the group in messages.
func (x *Shard) String() string {
	if x.ID == MetaShardID {
		return "the meta shard"
	}
	return fmt.Sprintf("shard %d", x.ID)
}

// Replica finds a replica by its id.
func (x *Shard) Replica(id uint64) (Replica, bool) {
	return first(x.Replicas, func(r *Replica) bool { return r.Replica == id })
}

// On finds the replica of an instance.
func (x *Shard) On(instance uint64) (Replica, bool) {
	return first(x.Replicas, func(r *Replica) bool { return r.Instance == instance })
}

type shardTable struct {
	shards    []Shard // data shards, in order of id
	metaShard Shard
	nextShard uint64 // the last id of a data shard given out
}

// Shards are the data shards, in order of id.
func (t *shardTable) Shards() []Shard { return t.shards }

// MetaShard is the record of the meta shard; id 0 before the bootstrap.
func (t *shardTable) MetaShard() Shard { return t.metaShard }

// Shard finds a shard, MetaShardID included.
func (t *shardTable) Shard(id uint64) (Shard, bool) {
	if id == MetaShardID {
		return t.metaShard, t.metaShard.ID == id
	}
	i, ok := findShard(t.shards, id)
	if !ok {
		return Shard{}, false
	}
	return t.shards[i], true
}

func findShard(list []Shard, id uint64) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(x Shard, id uint64) int { return cmp.Compare(x.ID, id) })
}

// requireShard is the shard of a command, or a refusal.
func (t *shardTable) requireShard(id uint64) (Shard, Result) {
	x, ok := t.Shard(id)
	if !ok {
		return x, refuse(protocol.StatusNotFound, "there is no shard %d", id)
	}
	return x, Result{}
}

// putShard replaces a record that exists.
func (t *shardTable) putShard(x Shard, revision uint64) {
	x.Revision = revision
	if x.ID == MetaShardID {
		t.metaShard = x
		return
	}
	if i, ok := findShard(t.shards, x.ID); ok {
		t.shards = slices.Clone(t.shards)
		t.shards[i] = x
	}
}

// ShardsOf are the shards of a replicaset, in order of id.
func (t *shardTable) ShardsOf(replicaset uint64) (list []Shard) {
	for i := range t.shards {
		if t.shards[i].Replicaset == replicaset {
			list = append(list, t.shards[i])
		}
	}
	return list
}

func (t *shardTable) hasShards(replicaset uint64) bool {
	return slices.ContainsFunc(t.shards, func(x Shard) bool { return x.Replicaset == replicaset })
}

// leadsShards reports whether the instance leads a data shard, or is to.
func (t *shardTable) leadsShards(instance uint64) bool {
	return slices.ContainsFunc(t.shards,
		func(x Shard) bool { return x.Master == instance || x.TargetMaster == instance })
}

// hasMetaVote reports whether the instance votes in the meta shard.
func (t *shardTable) hasMetaVote(instance uint64) bool {
	r, ok := t.metaShard.On(instance)
	return ok && r.Role == RoleVoter
}

// hosts reports whether a shard has a replica on the instance.
func (t *shardTable) hosts(instance uint64) bool {
	on := func(x Shard) bool { _, ok := x.On(instance); return ok }
	return on(t.metaShard) || slices.ContainsFunc(t.shards, on)
}

// ShardReady records that a shard has activated its buckets and has the nodes of its tier.
// Repeating it changes nothing. ABORTED before the tier's buckets were assigned, or if Expected is
// not the shard's revision: it may have got buckets since.
type ShardReady struct {
	Shard    uint64
	Expected uint64 // the shard's revision; 0 for any
}

func (*ShardReady) kind() Kind { return KindShardReady }

func (c *ShardReady) fields(f *varint.Fields) {
	f.Uint(&c.Shard, &c.Expected)
}

func (c *ShardReady) apply(s *State) Result {
	i, ok := findShard(s.shards, c.Shard)
	if !ok {
		return refuse(protocol.StatusNotFound, "there is no shard %d", c.Shard)
	}
	x := s.shards[i]
	t, _ := s.Tier(x.Tier)
	switch {
	case x.Ready:
		return Result{Revision: unchanged}
	case !t.Bootstrapped:
		return refuse(protocol.StatusAborted, "the buckets of tier %s are not assigned yet", t.Name)
	case c.Expected != 0 && c.Expected != x.Revision:
		return refuse(protocol.StatusAborted, "shard %d was changed in the meantime; look again and retry", c.Shard)
	}
	x.Ready = true
	s.putShard(x, s.revision)
	return Result{}
}
