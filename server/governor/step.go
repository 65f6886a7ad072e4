package governor

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// StepKind is the action of a step.
type StepKind uint8

const (
	// Coordination nodes, and new shards.
	ActivateBuckets StepKind = iota + 1 // Shard owns Count buckets from First
	PutNode                             // Shard gets a node's config
	DropNode                            // Shard drops a node
	ReadLeaderEpoch                     // read Shard's leader epoch
	MarkShardReady                      // the meta shard: Shard has all its buckets and nodes
	CommitNodes                         // the meta shard: every shard has the change of Nodes
	ClearGraceFloor                     // the meta shard: no former leader of any shard goes by Node's old grace period
	SyncNodes                           // Shard gets some of the nodes that were there before it, from Path on

	// Instances.
	SetCurrentState  // the meta shard: Instance is in State now
	ReassignInstance // the meta shard: Instance moves to Replicaset
	ExpelAgain       // the meta shard: Instance came back while its replicaset is expelled; its target is Expelled again
	RaiseVersion     // the meta shard: all instances run Version or a later one

	// Replicasets and tiers.
	CreateShards          // the meta shard: new shards for Replicaset, founded by Instance
	MarkReplicasetReady   // the meta shard: Replicaset has had enough instances
	ExpelReplicaset       // the meta shard: Replicaset is to give its buckets away
	FinishReplicasetExpel // the meta shard: Replicaset and its shards are gone
	RemoveShards          // the meta shard: Replicaset, which has no buckets, loses its shards
	AddShard              // the meta shard: Replicaset, which has Count shards, gets another one, founded by Instance
	RemoveShard           // the meta shard: Shard, which is surplus and has no buckets, is gone
	AssignBuckets         // the meta shard: the buckets of Tier get their first owners

	// Replicas of a raft group, the meta shard's included.
	AddReplica     // the meta shard: Instance gets a replica of Shard, without a vote
	SetTargetRole  // the meta shard: Replica is to get its vote, or to go
	JoinReplica    // the group: Replica is added without a vote
	PromoteReplica // the group: Replica gets its vote
	RemoveReplica  // the group: Replica is removed

	// Masters.
	SetTargetMaster  // the meta shard: Instance is to lead Shard
	TransferLeader   // the group: Replica, on Instance, leads
	SetMaster        // the meta shard: Instance won an election
	TransferGovernor // the meta shard's group: Replica, on Instance, leads and governs

	// Moves of Count buckets from First, from Shard to To, under Epoch.
	BeginMove    // the meta shard: the move is decided on
	FreezeMove   // the source stops serving them
	CopyMove     // chunks from the source to the target
	CommitMove   // the meta shard: the target owns them
	AbortMove    // the meta shard: the source keeps them
	ActivateMove // the owner serves them
	DiscardMove  // the other shard, which is Shard, drops them
	EndMove      // the meta shard: forget the move
	numStepKinds
)

var stepKindNames = [numStepKinds]string{
	ActivateBuckets: "activate buckets", PutNode: "put node", DropNode: "drop node",
	ReadLeaderEpoch: "read leader epoch", MarkShardReady: "mark shard ready",
	CommitNodes: "commit nodes", ClearGraceFloor: "clear grace floor", SyncNodes: "sync nodes",
	SetCurrentState: "set current state", ReassignInstance: "reassign instance", ExpelAgain: "expel again",
	RaiseVersion: "raise cluster version",
	CreateShards: "create shards", MarkReplicasetReady: "mark replicaset ready",
	ExpelReplicaset: "expel replicaset", FinishReplicasetExpel: "finish replicaset expel",
	RemoveShards: "remove shards", AddShard: "add shard", RemoveShard: "remove shard", AssignBuckets: "assign buckets",
	AddReplica: "add replica", SetTargetRole: "set target role", JoinReplica: "join replica",
	PromoteReplica: "promote replica", RemoveReplica: "remove replica",
	SetTargetMaster: "set target master", TransferLeader: "transfer leader",
	SetMaster: "set master", TransferGovernor: "transfer governor",
	BeginMove: "begin move", FreezeMove: "freeze buckets", CopyMove: "copy buckets",
	CommitMove: "commit move", AbortMove: "abort move",
	ActivateMove: "activate moved buckets", DiscardMove: "discard moved buckets", EndMove: "end move",
}

// String is the kind's name.
func (k StepKind) String() string {
	if k == 0 || k >= numStepKinds {
		return "unknown step"
	}
	return stepKindNames[k]
}

// Step is one action to do next. A step may be done twice, late, or beside any other step: it
// leaves a state that is done already, or overtaken, as it is.
type Step struct {
	Kind  StepKind
	Shard uint64 // 0 if the step is about no shard

	// ActivateBuckets, and moves. Total is the tier's. AddShard has Count too.
	Tier                uint8
	Total, First, Count uint32
	To                  uint64 // the target shard of a move
	Epoch               uint64 // of a move; with ActivateMove and DiscardMove the owner's

	// PutNode, DropNode, ClearGraceFloor. Revision is the shard's with PutNode
	// (meta.Node.ShardRevision), the config's with ClearGraceFloor, the record's with
	// ReassignInstance.
	Node     uint64
	Revision uint64
	Config   protocol.NodeConfig
	Path     string // SyncNodes

	Nodes []meta.NodeRef // CommitNodes
	Token uint64         // PutNode: the node's floor; CommitNodes: the highest that a shard gave out

	// Instances, replicasets and replicas.
	Instance   uint64
	State      meta.InstanceState // SetCurrentState
	Replicaset uint64
	Replica    uint64
	Role       meta.Role // SetTargetRole
	Version    meta.Version
	Term       uint64 // TransferLeader: of the leadership that is to end

	// At is when the step is due on the governor's clock; 0: at once.
	At time.Duration
}

// stepKey identifies a step across plans. There is one CommitNodes at a time, whatever it commits.
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
	return stepKey{s.Kind, s.Shard, s.Node, s.Revision, s.First, s.To, s.Epoch, s.Path, s.Instance,
		s.State, s.Replicaset, s.Replica}
}

// locks are held while a step is in flight: two steps with a common lock run one after the other.
// They save work; safety comes from each change naming the membership for which it was planned.
//
// One change of a group's membership runs at a time, and no transfer of its leadership beside it:
// the engine gives up a transfer to a replica that has not applied such a change. One transfer runs
// at a time in the whole cluster: each makes all sessions of a shard attach again.
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

// timeout bounds one try of a step.
func (s *Step) timeout() time.Duration {
	switch s.Kind {
	case CopyMove:
		return FreezeLimit
	case TransferLeader, TransferGovernor, SyncNodes:
		return 2 * StepTimeout
	}
	return StepTimeout
}
