package server

// maxDefaultShards is the most data shards that a replicaset gets without being asked for a number:
// one log store and its step worker serve all shards of an instance, and are busy before as many
// shards are. server/deploy/SIZING.md has the figures.
const maxDefaultShards = 8

// DefaultShards returns the number of data shards of each replicaset of a new cluster, for an
// instance with this many cores and a replication factor of copies: cores divided by copies + 1.
// Clients, or other instances, have the rest of the machine.
//
// Two cores: 1. Eight cores: 4 with one copy, 2 with three. From 16 cores with one copy, and from
// 32 with three: 8, which is the most.
func DefaultShards(cores, copies int) int {
	return min(max(cores/(max(copies, 1)+1), 1), maxDefaultShards)
}
