package governor

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// StepKind says what a step does.
type StepKind uint8

const (
	// Coordination nodes, and new shards.
	ActivateBuckets StepKind = iota + 1 // tell Shard that it owns Count buckets from First
	PutNode                             // tell Shard a node's config
	DropNode                            // tell Shard that a node is dropped
	ReadLeaderEpoch                     // ask Shard who leads it
	MarkShardReady                      // the meta shard: Shard has all its buckets, and knows all nodes
	CommitNodes                         // the meta shard: every shard knows the change of Nodes
	ClearGraceFloor                     // the meta shard: no former leader of any shard goes by Node's old grace period
	SyncNodes                           // tell Shard of the nodes that were there before it, some of them, from Path on

	// Instances.
	SetCurrentState  // the meta shard: Instance is in State now
	ReassignInstance // the meta shard: Instance moves to Replicaset
	ExpelAgain       // the meta shard: Instance, the last of a replicaset that is expelled, came back, and is wanted Expelled again
	RaiseVersion     // the meta shard: all instances run Version or a later one

	// Replicasets and tiers.
	CreateShards          // the meta shard: new shards for Replicaset, founded by Instance
	MarkReplicasetReady   // the meta shard: Replicaset has had enough instances
	ExpelReplicaset       // the meta shard: Replicaset is to give its buckets away
	FinishReplicasetExpel // the meta shard: it has, and its shards are gone
	RemoveShards          // the meta shard: Replicaset, which has no buckets, gives its shards up
	AssignBuckets         // the meta shard: the buckets of Tier get their first owners

	// Replicas of a raft group, the meta shard's included.
	AddReplica     // the meta shard: Instance gets a replica of Shard, without a vote
	SetTargetRole  // the meta shard: Replica is to get its vote, or to go
	JoinReplica    // the group: Replica follows without a vote
	PromoteReplica // the group: Replica gets its vote
	RemoveReplica  // the group: Replica is removed

	// Masters.
	SetTargetMaster  // the meta shard: Instance is to lead Shard
	TransferLeader   // the group: Replica, on Instance, leads
	SetMaster        // the meta shard: Instance leads, by an election
	TransferGovernor // the meta shard's group: Replica, on Instance, leads, and with it another governor

	// Moves of Count buckets from First, from Shard to To, under Epoch.
	BeginMove    // the meta shard: the move is decided on
	FreezeMove   // the source serves them no more
	CopyMove     // chunks from the source to the target
	CommitMove   // the meta shard: the target owns them
	AbortMove    // the meta shard: the source keeps them
	ActivateMove // the owner serves them
	DiscardMove  // the other one forgets them; Shard is that one
	EndMove      // the meta shard: forget the move
	numStepKinds
)

var stepKindNames = [numStepKinds]string{
	ActivateBuckets: "activate buckets", PutNode: "put node", DropNode: "drop node", ReadLeaderEpoch: "read leader epoch", MarkShardReady: "mark shard ready",
	CommitNodes: "commit nodes", ClearGraceFloor: "clear grace floor", SyncNodes: "sync nodes",
	SetCurrentState: "set current state", ReassignInstance: "reassign instance", ExpelAgain: "expel again", RaiseVersion: "raise cluster version",
	CreateShards: "create shards", MarkReplicasetReady: "mark replicaset ready", ExpelReplicaset: "expel replicaset", FinishReplicasetExpel: "finish replicaset expel",
	RemoveShards: "remove shards", AssignBuckets: "assign buckets",
	AddReplica: "add replica", SetTargetRole: "set target role", JoinReplica: "join replica", PromoteReplica: "promote replica", RemoveReplica: "remove replica",
	SetTargetMaster: "set target master", TransferLeader: "transfer leader", SetMaster: "set master", TransferGovernor: "transfer governor",
	BeginMove: "begin move", FreezeMove: "freeze buckets", CopyMove: "copy buckets", CommitMove: "commit move", AbortMove: "abort move",
	ActivateMove: "activate moved buckets", DiscardMove: "discard moved buckets", EndMove: "end move",
}

// String is the kind's words.
func (k StepKind) String() string {
	if k == 0 || k >= numStepKinds {
		return "unknown step"
	}
	return stepKindNames[k]
}

// Step is one thing to do next. Any step may be done twice, late, or beside any other: what it finds done already, or overtaken, it leaves as it is.
type Step struct {
	Kind  StepKind
	Shard uint64 // the shard it is about; 0 if it is about none

	// ActivateBuckets, and moves. Total is the tier's.
	Tier                uint8
	Total, First, Count uint32
	To                  uint64 // the target shard of a move
	Epoch               uint64 // of a move; with ActivateMove and DiscardMove the owner's

	// PutNode, DropNode, ClearGraceFloor. Revision is the shard's with PutNode (meta.Node.ShardRevision), the config's with ClearGraceFloor, the record's with
	// ReassignInstance.
	Node     uint64
	Revision uint64
	Config   protocol.NodeConfig
	Path     string // SyncNodes

	Nodes []meta.NodeRef // CommitNodes

	// Instances, replicasets and replicas.
	Instance   uint64
	State      meta.InstanceState // SetCurrentState
	Replicaset uint64
	Replica    uint64
	Role       meta.Role // SetTargetRole
	Version    meta.Version
	Term       uint64 // TransferLeader: of the leadership that is to end

	// At is when it is due on the governor's clock; 0 is at once.
	At time.Duration
}

// stepKey tells whether two steps of two plans are the same. There is one CommitNodes at a time, whatever it commits.
type stepKey struct {
	kind       StepKind
	shard      uint64
	node       uint64
	revision   uint64
	first      uint32
	to         uint64
	epoch      uint64
	path       string
	instance   uint64
	state      meta.InstanceState
	replicaset uint64
	replica    uint64
}

func (s *Step) key() stepKey {
	return stepKey{s.Kind, s.Shard, s.Node, s.Revision, s.First, s.To, s.Epoch, s.Path, s.Instance, s.State, s.Replicaset, s.Replica}
}

// lanes are what only one step at a time may be under way in. A lane saves work; that two governors
// may be at it at once is why each change names the membership it was made for.
//
// One change of a group's membership is under way at a time, and no transfer of its leadership
// beside it: the engine gives up a transfer to a replica that has such a change before it. Of all
// shards one transfer is under way at a time: each sends the sessions of a whole shard away, which
// all attach again at once.
func (s *Step) locks() (list [3]stepKey) {
	switch s.Kind {
	case JoinReplica, PromoteReplica, RemoveReplica:
		list[0] = stepKey{kind: JoinReplica, shard: s.Shard}
	case TransferLeader:
		list[0] = stepKey{kind: JoinReplica, shard: s.Shard}
		list[1] = stepKey{kind: SetTargetMaster, shard: s.Shard}
		list[2] = stepKey{kind: TransferLeader}
	case SetTargetMaster, SetMaster:
		list[0] = stepKey{kind: SetTargetMaster, shard: s.Shard}
	case SetCurrentState:
		list[0] = stepKey{kind: SetCurrentState, instance: s.Instance}
	case BeginMove:
		list[0] = stepKey{kind: BeginMove, shard: uint64(s.Tier) + 1}
	}
	return list
}

// limit bounds one try of a step.
func (s *Step) timeout() time.Duration {
	switch s.Kind {
	case CopyMove:
		return FreezeLimit
	case TransferLeader, TransferGovernor, SyncNodes:
		return 2 * StepTimeout
	}
	return StepTimeout
}
