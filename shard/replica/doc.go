// Package replica puts the state machines of shards behind dragonboat: it proposes batches, applies
// the log and delivers its results, proves leadership, and saves and restores snapshots.
//
// A [Host] is one process's share of all raft groups: its log storage, its transport, its workers.
// A [Shard] is one replica of a data shard on it, a [Meta] the replica of the meta shard. The
// server hands commands to [Shard.Submit]; the results come back from the log through its [Sink],
// in the order of the log.
//
//	h, err := replica.OpenHost(replica.HostConfig{Dir: dir, RaftAddress: "127.0.0.1:7071"})
//	members := map[uint64]string{1: "127.0.0.1:7071"}
//	s, err := h.StartShard(replica.ShardConfig{ID: 1, Replica: 1, Members: members, Sink: sink})
//	status := s.Submit(command, replica.Origin{Conn: 7, Request: 1, Kind: protocol.KindAcquire})
//
// DESIGN.md in this folder has the flow, the table of outcomes and the pitfalls.
package replica
