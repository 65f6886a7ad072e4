package admin

import (
	"context"
	"errors"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Node operates a coordination node: its sessions, and the leases of its semaphores.
type Node struct{ h handle.Node }

// OfNode returns a Node that sends its requests through the client of n.
func OfNode(n *client.Node) Node { return Node{access.Node(n)} }

// NodeUsage is a node's use of its quotas, over all shards.
type NodeUsage struct {
	Sessions   uint64
	Semaphores uint64 // processes and rollouts too
	Bytes      uint64 // of names, data, descriptions and payloads
	Waiters    uint64
}

// Usage reads what the node uses of its quotas. The shards are read one after another.
func (n Node) Usage(ctx context.Context) (NodeUsage, error) {
	var sum NodeUsage
	shards, err := n.h.Shards(ctx)
	for _, shard := range shards {
		req := &protocol.List{Shard: shard, Node: n.h.ID, Limit: 1, Consistency: protocol.Relaxed}
		var reply protocol.ListReply
		if _, err = n.h.Call(ctx, n.h.AtShard(shard), protocol.KindList, req, &reply); err != nil {
			break
		}
		sum.Sessions += reply.UsedSessions
		sum.Semaphores += reply.UsedSemaphores
		sum.Bytes += reply.UsedBytes
		sum.Waiters += reply.UsedWaiters
	}
	return sum, driver.WithOp("read the usage of", n.h.Path, err)
}

// ForceRelease takes leases of a semaphore away for an operator while the sessions that hold them
// live: from the owners whose fencing tokens are first to last, both included. released is 0 when
// there is no such owner, or not any more, so it may be called again. When the answer is lost, the
// request is sent again, and released leaves out the leases that the first sending took: 0 does not
// say that the call took none. reason, 1 to 1,024 bytes, is sent to the owners, whose leases end
// with ErrLeaseLost, and is kept in the audit log. It needs the right admin.
//
// Besides [Node.KillSession] and a forced delete this is the only way in which units are granted
// that a client still relies on. A client that is disconnected learns of it when it reconnects, or
// when its session's timeout is over. Until then only resources that check fencing tokens are safe:
// those of later grants are higher.
//
// Errors: ErrNotFound without such a semaphore; ErrBadRequest without a reason or for illegal
// tokens; ErrForbidden; ErrOutcomeUnknown.
func (n Node) ForceRelease(
	ctx context.Context, name string, first, last uint64, reason string,
) (released uint64, err error) {
	if name == "" {
		return 0, driver.WithOp("force release", name, handle.ErrNoSemaphore)
	}
	m := &protocol.ForceRelease{Node: n.h.ID, Name: []byte(name), First: first, Last: last, Reason: reason}
	var reply protocol.ForceReleaseReply
	r := n.h.Driver.Call(ctx, &core.Call{
		Kind: protocol.KindForceRelease, Msg: m, Reply: &reply, To: n.h.At(name), Writes: true,
	})
	repeated, err := r.Repeated || r.Unknown, driver.Err(r)
	if repeated && errors.Is(err, protocol.StatusNotFound) {
		return 0, nil // a first sending may have taken it from the last owner of an ephemeral one
	}
	return reply.Released, driver.WithOp("force release", name,
		driver.OutcomeUnknown(repeated && !driver.Answered(err), err))
}
