package governor

import "time"

// Health is the last heartbeat of an instance. It is soft state: a governor without heartbeats
// changes nothing that depends on them.
type Heartbeat struct {
	Heard time.Duration // when it came, on the governor's clock
	// Incarnation is the incarnation of the target state that the process got at its start; 0
	// before. It keeps the heartbeats of an ended process from counting for its successor.
	Incarnation uint64
	Shards      map[uint64]ShardReport // of the replicas that run there, the meta shard's included
	Refusals    []string               // sentences about new connections to it that fail by its own doing
}

// ShardReport is an instance's report of its replica of a shard.
type ShardReport struct {
	Replica uint64
	Leader  uint64 // replica id as far as this one knows, itself once it has applied its own epoch; 0: unknown
	Term    uint64 // of that leadership
	Applied uint64 // log index
	Members uint64 // the last applied change of members, as Membership.ConfigChange
	// Sizes are the shard's sizes, as its leader counted them some seconds ago; nil from other
	// replicas.
	Sizes *ShardSizes
}

// ShardSizes are the sizes of a shard's contents.
type ShardSizes struct {
	Sessions, RemoteSessions, Semaphores uint64
	Bytes                                uint64 // as quotas of bytes count them
}

// Membership is a raft group's membership, by its log.
type Membership struct {
	ConfigChange uint64            // id of this membership: a change must name the present one
	Voters       map[uint64]string // replica id -> raft address
	NonVotings   map[uint64]string
	Removed      []uint64 // replica ids that never come back
}
