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
	case ActivateBuckets, PutNode, DropNode:
		return Answer{}, g.shards.Propose(ctx, s.Shard, shardCommand(s))
	case FreezeMove, ActivateMove, DiscardMove:
		return Answer{}, g.proposeUntilDone(ctx, s.Shard, shardCommand(s))
	case ReadLeaderEpoch:
		epoch, err := g.shards.LeaderEpoch(ctx, s.Shard)
		return Answer{Epoch: epoch}, err
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
	buckets := shard.BucketsBody{Tier: s.Tier, Total: s.Total, First: s.First, Count: s.Count, Epoch: s.Epoch}
	switch s.Kind {
	case ActivateBuckets:
		return shard.Command{Kind: shard.CmdBuckets, Body: shard.AppendBuckets(nil, buckets)}
	case FreezeMove:
		return shard.Command{Kind: shard.CmdFreeze, Body: shard.AppendBuckets(nil, buckets)}
	case ActivateMove:
		return shard.Command{Kind: shard.CmdActivate, Body: shard.AppendBuckets(nil, buckets)}
	case DiscardMove:
		return shard.Command{Kind: shard.CmdDropBuckets, Body: shard.AppendBuckets(nil, buckets)}
	case PutNode:
		return shard.Command{Kind: shard.CmdNodePut, Body: shard.AppendNodePut(nil, shard.NodePutBody{Node: s.Node, Revision: s.Revision, Config: s.Config})}
	}
	return shard.Command{Kind: shard.CmdNodeDrop, Body: shard.AppendNodeDrop(nil, shard.NodeDropBody{Node: s.Node})}
}

// metaCommand is the command of a step that is one proposal to the meta shard. All of them may be repeated, and come late.
func (g *Governor) metaCommand(s *Step) meta.Command {
	move := meta.MoveRef{Tier: s.Tier, First: s.First, Epoch: s.Epoch}
	switch s.Kind {
	case MarkShardReady:
		return &meta.ShardReady{Shard: s.Shard}
	case CommitNodes:
		return &meta.NodeCommit{Nodes: s.Nodes}
	case ClearGraceFloor:
		return &meta.GraceFloorClear{NodeRef: meta.NodeRef{Node: s.Node, Revision: s.Revision}}
	case SetCurrentState:
		return &meta.InstanceCurrent{Instance: s.Instance, State: s.State}
	case ExpelAgain:
		return &meta.InstanceUpdate{Instance: s.Instance, Target: meta.Expelled, Reason: meta.ReasonReplicasetExpel, Force: true, Wall: g.wall()}
	case RaiseVersion:
		return &meta.ClusterVersion{Version: s.Version}
	case CreateShards:
		return &meta.ShardsCreate{Replicaset: s.Replicaset, Instance: s.Instance}
	case RemoveShards:
		return &meta.ShardsRemove{Replicaset: s.Replicaset}
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

// command tries once to have the meta shard apply a command that may be repeated.
func (g *Governor) proposeMeta(ctx context.Context, c meta.Command) error {
	answer, err := g.meta.Propose(ctx, meta.AppendCommand(nil, meta.OpID{}, c))
	if err != nil {
		return fmt.Errorf("propose to the meta shard: %w", err)
	}
	res, err := meta.DecodeResult(answer)
	if err != nil {
		return err
	}
	return res.Err()
}

// insist proposes a step of a move until it is done: ABORTED says that there is work left over, which is done with the next try. Buckets are frozen meanwhile,
// so there is no long pause between two.
func (g *Governor) proposeUntilDone(ctx context.Context, x uint64, c shard.Command) error {
	for {
		err := g.shards.Propose(ctx, x, c)
		if !errors.Is(err, protocol.StatusAborted) || !sleep(ctx, nil, 10*time.Millisecond) {
			return err
		}
	}
}

// syncBatch is how many nodes one SyncNodes tells.
const syncBatch = 64

// syncNodes tells a new shard of nodes, as they are now. A node that is dropped meanwhile the shard refuses to know: it has been told of the drop.
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
		if err := g.shards.Propose(ctx, s.Shard, shardCommand(&put)); err != nil && !errors.Is(err, protocol.StatusNotFound) {
			return "", err
		}
	}
	return next + "\x00", nil // past all there are: what is made from now on is pending
}

// copyBuckets carries the frozen copy over. It begins at the first chunk each time: the target knows which of them it has.
func (g *Governor) copyBuckets(ctx context.Context, s *Step) error {
	var cursor []byte
	body := shard.ImportBody{BucketsBody: shard.BucketsBody{Tier: s.Tier, Total: s.Total, First: s.First, Count: s.Count, Epoch: s.Epoch}}
	for {
		chunk, next, err := g.shards.Export(ctx, s.Shard, ExportRequest{Tier: s.Tier, First: s.First, Count: s.Count, Epoch: s.Epoch, Cursor: cursor})
		if err != nil {
			return fmt.Errorf("export from shard %d: %w", s.Shard, err)
		}
		body.Chunk = chunk
		if err := g.proposeUntilDone(ctx, s.To, shard.Command{Kind: shard.CmdImport, Body: shard.AppendImport(nil, body)}); err != nil {
			return fmt.Errorf("import into shard %d: %w", s.To, err)
		}
		if len(next) == 0 {
			return nil
		}
		cursor = next
	}
}
