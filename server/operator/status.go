package operator

import (
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Status is the meta state as operators read it, with what of it is so now: names instead of ids,
// and what belongs together summed up.
func Status(o governor.Observation) protocol.ClusterStatus {
	s := o.State
	out := protocol.ClusterStatus{
		Health: governor.Assess(o),
		ID:     s.Cluster(), Name: s.ClusterName(), Version: versionText(s.ClusterVersion()), UpgradeHeld: s.UpgradeHeld(),
		Revision: s.Revision(), MapVersion: s.MapVersion(), AnsweredBy: instanceName(s, o.Self),
		Meta:        protocol.ClusterMeta{Leader: instanceName(s, o.Leader), Voters: []string{}, NonVoting: []string{}},
		Tiers:       []protocol.ClusterTier{},
		Replicasets: []protocol.ClusterReplicaset{},
		Instances:   []protocol.ClusterInstance{},
		Shards:      []protocol.ClusterShard{},
		Moves:       []protocol.ClusterMove{},
	}
	for _, r := range s.MetaShard().Replicas {
		switch r.Role {
		case meta.RoleVoter:
			out.Meta.Voters = append(out.Meta.Voters, instanceName(s, r.Instance))
		case meta.RoleNonVoting:
			out.Meta.NonVoting = append(out.Meta.NonVoting, instanceName(s, r.Instance))
		}
	}
	buckets := bucketsOf(s)
	for _, t := range s.Tiers() {
		out.Tiers = append(out.Tiers, clusterTier(&t))
	}
	for _, set := range s.Replicasets() {
		out.Replicasets = append(out.Replicasets, clusterReplicaset(s, &set, buckets))
	}
	for _, i := range s.Instances() {
		x := clusterInstance(s, &i)
		if !i.Expelled() {
			heard := !slices.ContainsFunc(out.Health.Unreachable, func(u protocol.ClusterUnreachable) bool {
				return u.Instance == i.Name
			})
			x.Reachable = &heard
		}
		out.Instances = append(out.Instances, x)
	}
	for _, x := range s.Shards() {
		out.Shards = append(out.Shards, clusterShard(s, &x, buckets[x.ID]))
	}
	for _, m := range s.Moves() {
		out.Moves = append(out.Moves, protocol.ClusterMove{
			Tier: tierName(s, m.Tier), First: m.First, Count: m.Count, From: m.From, To: m.To, Epoch: m.Epoch,
			Phase: m.Phase.String(),
		})
	}
	return out
}

// bucketsOf counts the buckets of each shard.
func bucketsOf(s *meta.State) map[uint64]uint32 {
	counts := map[uint64]uint32{}
	for _, t := range s.Tiers() {
		for _, run := range t.Runs {
			counts[run.Shard] += run.Count
		}
	}
	return counts
}

func clusterTier(t *meta.Tier) protocol.ClusterTier {
	out := protocol.ClusterTier{
		Name: t.Name, Buckets: t.Buckets, ReplicationFactor: t.ReplicationFactor,
		ShardsPerReplicaset: t.ShardsPerReplicaset, CanVote: t.CanVote, Bootstrapped: t.Bootstrapped,
	}
	if t.ToBeRestored() {
		out.ToBeRestored = fmt.Sprintf("%016x", t.Restore.Backup)
	}
	return out
}

func clusterReplicaset(s *meta.State, set *meta.Replicaset, buckets map[uint64]uint32) protocol.ClusterReplicaset {
	out := protocol.ClusterReplicaset{
		Name: set.Name, UUID: set.UUID, Tier: tierName(s, set.Tier), Phase: set.Phase.String(),
		Weight: float64(set.Weight) / 1000, WeightByUser: set.WeightByUser,
	}
	for _, x := range s.Shards() {
		if x.Replicaset == set.ID {
			out.Buckets += buckets[x.ID]
		}
	}
	return out
}

func clusterInstance(s *meta.State, i *meta.Instance) protocol.ClusterInstance {
	set, _ := s.Replicaset(i.Replicaset)
	out := protocol.ClusterInstance{
		ID: i.ID, Name: i.Name, UUID: i.UUID, Tier: tierName(s, i.Tier), Replicaset: set.Name,
		Version: versionText(i.Version), Address: i.Address, RaftAddress: i.RaftAddress,
		Current: i.Current.Variant.String(), CurrentIncarnation: i.Current.Incarnation,
		Target: i.Target.Variant.String(), TargetIncarnation: i.Target.Incarnation,
		Reason: i.Reason, ChangedAt: i.ChangedAt, Draining: i.Drained, Revision: i.Revision,
	}
	for _, l := range i.Domain {
		if out.Domain == nil {
			out.Domain = map[string]string{}
		}
		out.Domain[l.Key] = l.Value
	}
	for _, x := range s.Shards() {
		if x.Master == i.ID {
			out.Leads = append(out.Leads, x.ID)
		}
	}
	return out
}

func clusterShard(s *meta.State, x *meta.Shard, buckets uint32) protocol.ClusterShard {
	set, _ := s.Replicaset(x.Replicaset)
	out := protocol.ClusterShard{
		ID: x.ID, Tier: tierName(s, x.Tier), Replicaset: set.Name, Master: instanceName(s, x.Master),
		TargetMaster: instanceName(s, x.TargetMaster), Buckets: buckets,
		Ready: x.Ready, Revision: x.Revision, Replicas: []protocol.ClusterReplica{},
	}
	for _, r := range x.Replicas {
		out.Replicas = append(out.Replicas, protocol.ClusterReplica{
			Instance: instanceName(s, r.Instance), Replica: r.Replica, Role: r.Role.String(),
			TargetRole: r.TargetRole.String(),
		})
	}
	return out
}

// instanceName is an instance's name; empty for none.
func instanceName(s *meta.State, id uint64) string {
	i, _ := s.Instance(id)
	return i.Name
}

func tierName(s *meta.State, id uint8) string {
	t, _ := s.Tier(id)
	return t.Name
}

// versionText is a version in words; empty for none.
func versionText(v meta.Version) string {
	if v == (meta.Version{}) {
		return ""
	}
	return v.String()
}
