package admin

import "github.com/signalbox-dev/signalbox/protocol"

// What the calls answer. The types are those of the protocol's JSON documents, so that tools can
// print and keep them as they are.
type (
	// Status is the cluster: its instances, shards, replicasets and tiers, and the moves of buckets
	// that are under way.
	Status = protocol.ClusterStatus
	// Health says which parts work, and which may be lost.
	Health = protocol.ClusterHealth
	// Plan is what the governor does next, in steps, and the deviations from the configuration that
	// it does not act on.
	Plan = protocol.ClusterPlan
	// Wait is a deviation of a Plan, with the reason why nothing is done about it now.
	Wait = protocol.ClusterWait
	// Instance is a server process.
	Instance = protocol.ClusterInstance
	// Replicaset is a set of instances that host the same shards.
	Replicaset = protocol.ClusterReplicaset
	// Shard is a raft group that owns buckets.
	Shard = protocol.ClusterShard
	// Shards is the data shards of a tier, with their buckets and sizes, and what is left to do
	// until each replicaset has as many as the tier says.
	Shards = protocol.ClusterShards
	// Tier is a set of replicasets that share a key space.
	Tier = protocol.ClusterTier
	// Map is the cluster map that clients route requests by.
	Map = protocol.MapReply

	// Identity is who the client is, by its credentials.
	Identity = protocol.AuthIdentity
	// AuthState is all tokens, without their secrets, and all rights.
	AuthState = protocol.AuthState
	// Token is an identity's credentials.
	Token = protocol.AuthToken
	// Right is what an identity may do at a path and below it: read, use, admin or none.
	Right = protocol.AuthRight
	// Trust says whose signed tokens count as credentials.
	Trust = protocol.AuthTrust
	// TrustRule gives a token's subject an identity.
	TrustRule = protocol.AuthTrustRule
	// TrustCondition is a pattern for a claim of a token.
	TrustCondition = protocol.AuthTrustCondition
)
