package client

import (
	"context"
	"errors"

	"github.com/signalbox-dev/signalbox/protocol"
)

// ForceRelease takes leases of a semaphore away for an operator while the sessions that hold them
// live: from the owners whose fencing tokens are first to last, both included. released is 0 when
// there is no such owner, or not any more, so it may be called again. reason, 1 to 1,024 bytes, is
// sent to the owners, whose leases end with ErrLeaseLost, and is kept in the audit log. It needs
// the right admin.
//
// Besides [Node.KillSession] and a forced delete this is the only way in which units are granted
// that a client still relies on. A client that is disconnected learns of it when it reconnects, or
// when its session's timeout is over. Until then only resources that check fencing tokens are safe:
// those of later grants are higher.
//
// Errors: NotFound without such a semaphore; BadRequest without a reason or for illegal tokens;
// Forbidden; ErrOutcomeUnknown.
func (n *Node) ForceRelease(ctx context.Context, name string, first, last uint64, reason string) (released uint64, err error) {
	bucket, err := n.bucket(ctx, name)
	if err != nil {
		return 0, withOp("force release", name, err)
	}
	m := &protocol.ForceRelease{Node: n.id, Name: []byte(name), First: first, Last: last, Reason: reason}
	var reply protocol.ForceReleaseReply
	repeated, err := n.c.request(ctx, n.c.atBucket(n.tier, bucket), protocol.KindForceRelease, m, &reply)
	if repeated && errors.Is(err, NotFound) {
		return 0, nil // a first sending may have taken it from the last owner of an ephemeral one
	}
	return reply.Released, withOp("force release", name, outcomeUnknown(repeated && !answered(err), err))
}
