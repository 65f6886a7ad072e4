package governor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// execute does one step, once.
func (g *Governor) execute(ctx context.Context, s *Step) (Answer, error) {
	switch s.Kind {
	case ActivateBuckets, PutNode:
		return Answer{}, g.shards.Propose(ctx, s.Shard, shardCommand(s))
	case DropNode:
		if err := g.shards.Propose(ctx, s.Shard, shardCommand(s)); err != nil {
			return Answer{}, err
		}
		at, err := g.shards.Registers(ctx, s.Shard, s.Node)
		return Answer{Token: at.Token}, err
	case FreezeMove, ActivateMove, DiscardMove:
		return Answer{}, g.proposeUntilDone(ctx, s.Shard, shardCommand(s))
	case ReadLeaderEpoch:
		at, err := g.shards.Registers(ctx, s.Shard, 0)
		return Answer{Epoch: at.Epoch}, err
	case SyncNodes:
		path, err := g.syncNodes(ctx, s)
		return Answer{Path: path}, err
	case JoinReplica, PromoteReplica, RemoveReplica:
		return Answer{}, g.changeMembership(ctx, s)
	case TransferLeader, TransferGovernor:
		return Answer{}, g.transferLeadership(ctx, s)
	case CopyMove:
		return Answer{}, g.copyBuckets(ctx, s)
	}
	c := g.metaCommand(s)
	if c == nil {
		return Answer{}, protocol.Errorf(protocol.StatusInternal, "unknown step %d", s.Kind)
	}
	return Answer{}, g.proposeMeta(ctx, c)
}

// shardCommand is the command of a step that is one proposal to a data shard.
func shardCommand(s *Step) shard.Command {
	switch s.Kind {
	case PutNode:
		return shard.Command{Kind: shard.CmdNodePut,
			Body: shard.AppendNodePut(nil, shard.NodePutBody{Node: s.Node, Revision: s.Revision, Config: s.Config,
				TokenFloor: s.Token})}
	case DropNode:
		return shard.Command{Kind: shard.CmdNodeDrop, Body: shard.AppendNodeDrop(nil, shard.NodeDropBody{Node: s.Node})}
	}
	if s.Kind == ActivateBuckets && s.Epoch > meta.FirstEpoch {
		// Restored buckets have been imported, as by a move. CmdBuckets would make them empty where
		// they were not.
		return shard.Command{Kind: shard.CmdActivate, Body: shard.AppendBuckets(nil, s.buckets())}
	}
	kind := map[StepKind]shard.CommandKind{
		ActivateBuckets: shard.CmdBuckets, FreezeMove: shard.CmdFreeze, ActivateMove: shard.CmdActivate,
		DiscardMove: shard.CmdDropBuckets,
	}[s.Kind]
	return shard.Command{Kind: kind, Body: shard.AppendBuckets(nil, s.buckets())}
}

// buckets is the run of buckets that a step is about.
func (s *Step) buckets() shard.BucketsBody {
	return shard.BucketsBody{Tier: s.Tier, Total: s.Total, First: s.First, Count: s.Count, Epoch: s.Epoch}
}

// metaCommand is the command of a step that is one proposal to the meta shard. Each may be
// repeated, and may come late.
func (g *Governor) metaCommand(s *Step) meta.Command {
	move := meta.MoveRef{Tier: s.Tier, First: s.First, Epoch: s.Epoch}
	switch s.Kind {
	case MarkShardReady:
		return &meta.ShardReady{Shard: s.Shard}
	case CommitNodes:
		return &meta.NodeCommit{Nodes: s.Nodes, Tokens: s.Token}
	case ClearGraceFloor:
		return &meta.GraceFloorClear{NodeRef: meta.NodeRef{Node: s.Node, Revision: s.Revision}}
	case SetCurrentState:
		return &meta.InstanceCurrent{Instance: s.Instance, State: s.State}
	case ExpelAgain:
		return &meta.InstanceUpdate{Instance: s.Instance, Target: meta.Expelled,
			Reason: meta.ReasonReplicasetExpel, Force: true, Wall: g.wall()}
	case RaiseVersion:
		return &meta.ClusterVersion{Version: s.Version}
	case CreateShards:
		return &meta.ShardsCreate{Replicaset: s.Replicaset, Instance: s.Instance}
	case RemoveShards:
		return &meta.ShardsRemove{Replicaset: s.Replicaset}
	case AddShard:
		return &meta.ShardAdd{Replicaset: s.Replicaset, Instance: s.Instance, Shards: s.Count}
	case RemoveShard:
		return &meta.ShardRemove{Shard: s.Shard}
	case ReassignInstance:
		return &meta.InstanceReassign{Instance: s.Instance, Expected: s.Revision, Replicaset: s.Replicaset}
	case MarkReplicasetReady:
		return &meta.ReplicasetIsReady{Replicaset: s.Replicaset}
	case ExpelReplicaset:
		return &meta.ReplicasetExpel{Replicaset: s.Replicaset}
	case FinishReplicasetExpel:
		return &meta.ReplicasetIsExpelled{Replicaset: s.Replicaset, Wall: g.wall()}
	case AssignBuckets:
		return &meta.BucketsAssign{Tier: s.Tier}
	case AddReplica:
		return &meta.ReplicaAdd{Shard: s.Shard, Instance: s.Instance, TargetRole: meta.RoleNonVoting}
	case SetTargetRole:
		return &meta.ReplicaTarget{Shard: s.Shard, Replica: s.Replica, TargetRole: s.Role}
	case SetTargetMaster:
		return &meta.MasterTarget{Shard: s.Shard, Instance: s.Instance}
	case SetMaster:
		return &meta.MasterCurrent{Shard: s.Shard, Instance: s.Instance}
	case BeginMove:
		return &meta.MoveBegin{Tier: s.Tier, First: s.First, Count: s.Count, From: s.Shard, To: s.To}
	case CommitMove:
		return &meta.MoveCommit{MoveRef: move}
	case AbortMove:
		return &meta.MoveAbort{MoveRef: move}
	case EndMove:
		return &meta.MoveEnd{MoveRef: move}
	}
	return nil
}

// proposeMeta proposes a repeatable command to the meta shard, once.
func (g *Governor) proposeMeta(ctx context.Context, c meta.Command) error {
	entry, err := g.State().Entry(meta.OpID{}, c)
	if err != nil {
		return err
	}
	answer, err := g.meta.Propose(ctx, entry)
	if err != nil {
		return fmt.Errorf("propose to the meta shard: %w", err)
	}
	res, err := meta.DecodeResult(answer)
	if err != nil {
		return err
	}
	return res.Err()
}

// proposeUntilDone proposes a step of a move until the shard has done it.
func (g *Governor) proposeUntilDone(ctx context.Context, x uint64, c shard.Command) error {
	return untilDone(ctx, func() (bool, error) {
		err := g.shards.Propose(ctx, x, c)
		return err == nil, err
	})
}

// abortedPause is the pause after ABORTED, which says that a shard has work left over. It is short:
// buckets are frozen meanwhile.
const abortedPause = 10 * time.Millisecond

// untilDone calls try until it is done, or fails with another status than ABORTED.
func untilDone(ctx context.Context, try func() (done bool, err error)) error {
	for {
		done, err := try()
		aborted := errors.Is(err, protocol.StatusAborted)
		if done || err != nil && !aborted || aborted && !sleep(ctx, nil, abortedPause) {
			return err
		}
	}
}

// syncBatch is how many nodes one SyncNodes step sends.
const syncBatch = 64

// syncNodes sends nodes to a new shard, in their present form. A node that is dropped meanwhile is
// refused with NOT_FOUND: the shard has seen the drop.
func (g *Governor) syncNodes(ctx context.Context, s *Step) (next string, err error) {
	state := g.State()
	x, _ := state.Shard(s.Shard)
	next, n := s.Path, 0
	for node := range state.Nodes("", s.Path) {
		next = node.Path
		if n++; n > syncBatch {
			return next, nil
		}
		if !needsSync(&node, x.Tier) {
			continue
		}
		put := putNode(s.Shard, &node, node.GraceFloor == 0)
		if err := g.shards.Propose(ctx, s.Shard, shardCommand(&put)); err != nil &&
			!errors.Is(err, protocol.StatusNotFound) {
			return "", err
		}
	}
	return next + "\x00", nil // past all: nodes created from now on are pending
}

// copyBuckets has the target fetch the frozen copy from the source and import it.
func (g *Governor) copyBuckets(ctx context.Context, s *Step) error {
	return untilDone(ctx, func() (bool, error) { return g.shards.CopyBuckets(ctx, s.Shard, s.To, s.buckets()) })
}
