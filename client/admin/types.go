package admin

import "github.com/signalbox-dev/signalbox/protocol"

// What the calls answer. The types are those of the protocol's JSON documents, so that tools can
// print and keep them as they are.
type (
	Status     = protocol.ClusterStatus     // of the cluster
	Health     = protocol.ClusterHealth     // what works, and what may be lost
	Plan       = protocol.ClusterPlan       // steps, and deviations with their reasons
	Wait       = protocol.ClusterWait       // a deviation of a Plan that nothing is done about now
	Instance   = protocol.ClusterInstance   // a server process
	Replicaset = protocol.ClusterReplicaset // instances that host the same shards
	Shard      = protocol.ClusterShard      // a raft group that owns buckets
	Tier       = protocol.ClusterTier       // replicasets that share a key space
	Map        = protocol.MapReply          // the cluster map that clients route by

	Identity  = protocol.AuthIdentity // who the client is
	AuthState = protocol.AuthState    // tokens and rights
	Token     = protocol.AuthToken    // credentials of an identity
	Right     = protocol.AuthRight    // what an identity may do at a path
)
