package governor

import "time"

// Health is what the last heartbeat of an instance said. It is soft: a governor that has heard nobody yet changes nothing that depends on it.
type Health struct {
	Heard time.Duration // when it came, on the governor's clock
	// Incarnation is that of the target state which the process was given when it started: 0 before. It keeps the words of a process that has ended from
	// speaking for the one that follows.
	Incarnation uint64
	Shards      map[uint64]ShardHealth // of the replicas that run there, the meta shard's included
}

// ShardHealth is what an instance says about its replica of a shard.
type ShardHealth struct {
	Replica uint64
	Leader  uint64 // the replica that leads as far as this one knows, itself once it has applied its own epoch; 0 is none
	Term    uint64 // of that leadership
	Applied uint64 // log index: on the leader, what the others must catch up with
	Members uint64 // the last change of members that is applied here, as Membership.ConfigChange
}

// Membership is a raft group as its log has it.
type Membership struct {
	ConfigChange uint64            // names this state of the group: a change is refused unless it names the present one
	Voters       map[uint64]string // replica id -> raft address
	NonVotings   map[uint64]string
	Removed      []uint64 // replica ids that never come back
}
