package governor

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// ShardCounts returns a tier's shards, and the changes that give each replicaset perReplicaset
// shards. It is pure.
func ShardCounts(v View, t *meta.Tier, perReplicaset uint32) protocol.ClusterShards {
	out := protocol.ClusterShards{
		Tier: t.Name, ShardsPerReplicaset: perReplicaset, Revision: v.State.Revision(),
		Replicasets: []protocol.ClusterReplicasetShards{}, Shards: []protocol.ClusterShardLoad{},
	}
	counts := make(map[uint64]uint32)
	for _, run := range t.Runs {
		counts[run.Shard] += run.Count
	}
	moving := slices.ContainsFunc(v.State.Moves(), func(m meta.Move) bool { return m.Tier == t.ID })
	out.Done = !moving
	var loads []replicasetLoad
	v.Progress = NewProgress()
	for _, set := range v.State.Replicasets() {
		if set.Tier != t.ID || set.Phase == meta.ReplicasetExpelled {
			continue
		}
		shards := v.State.ShardsOf(set.ID)
		row := protocol.ClusterReplicasetShards{Replicaset: set.Name, Shards: len(shards), Remove: []uint64{}}
		load := replicasetLoad{replicaset: set.ID}
		if set.Phase == meta.ReplicasetReady {
			load.weight = uint64(set.Weight)
		}
		changes := set.Phase == meta.ReplicasetReady && len(shards) > 0
		switch {
		case set.Phase == meta.ToBeExpelled:
			row.Waits = "it is to be expelled"
		case set.Phase == meta.NotReady:
			row.Waits = "it gets its shards when it has enough members"
			if len(shards) > 0 {
				row.Waits = "it waits for more members"
			}
		}
		for n := range shards {
			x := &shards[n]
			surplus := changes && uint32(n) >= perReplicaset
			if surplus {
				row.Remove = append(row.Remove, x.ID)
			}
			load.shards = append(load.shards, shardLoad{x.ID, counts[x.ID], surplus})
			out.Shards = append(out.Shards, v.shardLoad(x, &set, counts[x.ID]))
			out.Done = out.Done && x.Ready
		}
		for n := uint32(len(shards)); changes && n < perReplicaset; n++ {
			row.Missing++
			load.shards = append(load.shards, shardLoad{shard: newShardKey(len(out.Replicasets), n)})
		}
		out.Done = out.Done && row.Missing == 0 && len(row.Remove) == 0
		out.Replicasets = append(out.Replicasets, row)
		loads = append(loads, load)
	}
	targets := bucketTargets(t.Buckets, loads)
	for i := range out.Shards {
		x := &out.Shards[i]
		if x.BucketsTarget = x.Buckets; targets != nil && t.Bootstrapped {
			x.BucketsTarget = targets[x.ID]
		}
		if x.Buckets > x.BucketsTarget {
			out.BucketsLeft += x.Buckets - x.BucketsTarget
		}
	}
	out.Done = out.Done && out.BucketsLeft == 0
	return out
}

// newShardKey stands for the id of a shard that does not exist yet.
func newShardKey(replicaset int, n uint32) uint64 {
	return meta.MetaShardID + 1 + uint64(replicaset)<<32 + uint64(n)
}

// shardLoad is a shard with the sizes that its leader reports.
func (v *View) shardLoad(x *meta.Shard, set *meta.Replicaset, buckets uint32) protocol.ClusterShardLoad {
	out := protocol.ClusterShardLoad{ID: x.ID, Replicaset: set.Name, Ready: x.Ready, Buckets: buckets}
	if i, ok := v.State.Instance(x.Master); ok {
		out.Master = i.Name
	}
	if leader, ok := v.leader(x); ok {
		if h, _ := v.replicaHealth(&leader, x.ID); h.Sizes != nil {
			z := *h.Sizes
			out.Sessions, out.RemoteSessions, out.Semaphores, out.Bytes = &z.Sessions, &z.RemoteSessions, &z.Semaphores,
				&z.Bytes
		}
	}
	return out
}
