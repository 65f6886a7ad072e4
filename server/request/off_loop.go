package request

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// runOffLoop runs op on a goroutine of its own, in one of the slots, and replies with its result.
// Lists, which need no right, changes of nodes, which tenants may be allowed on their own, and
// operators' methods have slots of their own, so that none of them keeps the next from being
// served.
func runOffLoop(
	c *Client, p *cycle, h protocol.Header, slots chan struct{}, op func(ctx context.Context) (protocol.Message, error),
) {
	s := c.server
	select {
	case slots <- struct{}{}:
	default:
		p.out.Fail(c, h.Kind, h.ID, protocol.StatusOverloaded,
			fmt.Sprintf("%d requests of this kind are under way, the limit on each instance; retry later", cap(slots)))
		return
	}
	kind, id, began := h.Kind, h.ID, p.now
	s.cfg.Go(func() {
		defer func() { <-slots }()
		ctx, cancel := context.WithTimeout(s.cfg.Context, nodeOpTimeout)
		defer cancel()
		o := s.BorrowOutbox()
		defer s.ReturnOutbox(o)
		defer s.Guard("node",
			func() { c.Close(transport.Immediate, protocol.StatusInternal, "the server met a defect; reconnect") })
		reply, err := op(ctx)
		o.Took(kind, s.cfg.Clock.Now()-began)
		var pending *pendingChange
		switch {
		case err == nil:
			o.Reply(c, kind, id, reply)
		case errors.As(err, &pending):
			o.failPending(c, kind, id, pending)
		case ctx.Err() != nil:
			o.Fail(c, kind, id, protocol.StatusUnavailable, "the answer was not ready in time; ask again")
		default:
			o.FailError(c, kind, id, err)
		}
	})
}

// pendingChange is a change that was given to the meta shard and is not done. The shard is the one
// that it waits for. Why may be empty.
type pendingChange struct {
	shard uint64
	why   string
}

func (p *pendingChange) Error() string {
	return cmp.Or(p.why, "the change is not done yet") + "; the change may still happen: look before trying again"
}

// runChange is runOffLoop for a change that the meta shard decides. If it is not done within
// governor.StepTimeout, and a shard that it waits for has no majority, that is the answer. A change
// of nodes waits for data shards too.
func runChange(
	c *Client, p *cycle, h protocol.Header, slots chan struct{}, ofNodes bool,
	op func(ctx context.Context) (protocol.Message, error),
) {
	g := c.server.cfg.Cluster.Governor()
	runOffLoop(c, p, h, slots, func(ctx context.Context) (protocol.Message, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		c.server.cfg.Go(func() {
			look := time.NewTicker(governor.StepTimeout)
			defer look.Stop()
			for {
				select {
				case <-look.C:
				case <-ctx.Done():
					return
				}
				if shard, why := g.NoQuorum(ofNodes); why != "" {
					cancel(&pendingChange{shard, why})
				}
			}
		})
		reply, err := op(ctx)
		if err == nil || ctx.Err() == nil || c.server.cfg.Context.Err() != nil {
			return reply, err
		}
		var pending *pendingChange
		if !errors.As(context.Cause(ctx), &pending) {
			pending = &pendingChange{shard: meta.MetaShardID}
		}
		return nil, pending
	})
}
