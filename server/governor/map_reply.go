package governor

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// MapReply is the cluster map for clients. Master, if given, is the leader of a shard as far as
// this instance knows, 0 for unknown, and its raft term. Without it, the map names the leader that
// the governor recorded. Expelled instances, replicas outside their groups and tiers without bucket
// owners are left out. A client that knows this version gets the version alone.
func MapReply(s *meta.State, known uint64, master func(shard uint64) (instance, term uint64)) protocol.MapReply {
	reply := protocol.MapReply{Version: s.MapVersion(), Cluster: s.ClientCluster()}
	if known != 0 && known == reply.Version {
		return reply
	}
	for _, i := range s.Instances() {
		if i.Expelled() {
			continue
		}
		reply.Instances = append(reply.Instances, protocol.MapInstance{ID: i.ID, Name: i.Name, Address: i.Address})
	}
	for _, x := range s.Shards() {
		entry := protocol.MapShard{ID: x.ID, Master: x.Master}
		if master != nil {
			if leader, term := master(x.ID); leader != 0 {
				entry.Master, entry.Term = leader, term
			}
		}
		for _, r := range x.Replicas {
			if i, _ := s.Instance(r.Instance); r.Role != meta.RoleNone && !i.Expelled() {
				entry.Replicas = append(entry.Replicas, r.Instance)
			}
		}
		reply.Shards = append(reply.Shards, entry)
	}
	for _, t := range s.Tiers() {
		if !t.Bootstrapped {
			continue // its buckets have no owner yet, or it has none
		}
		entry := protocol.MapTier{ID: t.ID, Name: t.Name, Buckets: t.Buckets}
		for _, run := range t.Runs {
			if n := len(entry.Runs); n > 0 && entry.Runs[n-1].Shard == run.Shard {
				entry.Runs[n-1].Count += run.Count // of another epoch: clients do not care
				continue
			}
			entry.Runs = append(entry.Runs, protocol.MapRun{Count: run.Count, Shard: run.Shard})
		}
		reply.Tiers = append(reply.Tiers, entry)
	}
	return reply
}
