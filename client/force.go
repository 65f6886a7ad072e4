package client

import (
	"context"
	"errors"

	"github.com/signalbox-dev/signalbox/protocol"
)

// ForceRelease takes leases of a semaphore away as an operator does, while the sessions that hold them live: from the owners whose order ids, the fencing tokens, are first
// to last, both included. It says how many it took; 0 when there is no such owner, or not any more, so it may be called again. Reason (1 to 1,024 bytes) is told to the
// owners, whose leases end with ErrLeaseLost, and kept in the audit log. It needs the right admin.
//
// This is the one way besides [Node.KillSession] and a forced delete in which somebody else is granted what a client still believes to have: one whose connection is away
// learns of it when it is back, or stops believing when its session's timeout is over. Until then only what checks fencing tokens is safe: those of later grants are higher.
//
// Errors: NotFound without such a semaphore; BadRequest without a reason or with order ids that are none; Forbidden; ErrOutcomeUnknown.
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
