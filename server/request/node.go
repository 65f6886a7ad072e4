package request

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// nodeOpTimeout bounds a change of a coordination node. When it ends the change may still come: it
// is decided in the meta shard.
const nodeOpTimeout = 30 * time.Second

// nodeRequests are the requests about coordination nodes. Reads come from the map this instance
// has; changes wait for the meta shard and all data shards, on goroutines of their own, bounded in
// number.
func nodeRequests() map[protocol.Kind]requestKind {
	return map[protocol.Kind]requestKind{
		protocol.KindNodeDescribe: {handle: nodeDescribe},
		protocol.KindNodeList:     {handle: nodeList},
		protocol.KindNodeCreate:   {grows: true, handle: nodeCreate},
		protocol.KindNodeAlter:    {handle: nodeAlter},
		protocol.KindNodeDrop:     {handle: nodeDrop},
	}
}

func nodeDescribe(c *Client, p *cycle, h protocol.Header, _ target) {
	var m protocol.NodeDescribe
	if !p.decode(c, h, &m) {
		return
	}
	if bad := c.allowedPath(auth.RightRead, m.Path); bad != nil {
		p.out.FailError(c, h.Kind, h.ID, bad)
		return
	}
	info, err := c.server.cfg.Cluster.Governor().DescribeNode(m.Path)
	if protocol.StatusOf(err) == protocol.StatusNotFound { // it may have been made a moment ago
		late := unknownNode{answer: protocol.Errorf(protocol.StatusUnavailable, "%s", textNodeNotInMap)}
		p.awaitMap(unknownNodeRequest{unknownNode: late, path: m.Path, conn: c, kind: h.Kind, id: h.ID})
		return
	}
	if err != nil {
		p.out.FailError(c, h.Kind, h.ID, err)
		return
	}
	p.out.Reply(c, h.Kind, h.ID, &info)
}

// nodeList may look at many thousand nodes for a page: that is not done on an event loop.
func nodeList(c *Client, p *cycle, h protocol.Header, _ target) {
	m := new(protocol.NodeList)
	if !p.decode(c, h, m) {
		return
	}
	m.Cursor = append([]byte(nil), m.Cursor...)
	runOffLoop(c, p, h, c.server.NodeLists, func(context.Context) (protocol.Message, error) {
		reply, err := c.server.cfg.Cluster.Governor().ListNodes(m, func(path string) bool {
			return c.allowedPath(auth.RightRead, path) == nil
		})
		return &reply, err
	})
}

func nodeCreate(c *Client, p *cycle, h protocol.Header, _ target) {
	m := new(protocol.NodeCreate)
	if p.decode(c, h, m) && checkNodeChange(c, p, h, m.Path) {
		runChange(c, p, h, c.server.NodeOps, true, func(ctx context.Context) (protocol.Message, error) {
			info, err := c.server.cfg.Cluster.Governor().CreateNode(ctx, m)
			return &info, err
		})
	}
}

func nodeAlter(c *Client, p *cycle, h protocol.Header, _ target) {
	m := new(protocol.NodeAlter)
	if p.decode(c, h, m) && checkNodeChange(c, p, h, m.Path) {
		runChange(c, p, h, c.server.NodeOps, true, func(ctx context.Context) (protocol.Message, error) {
			info, err := c.server.cfg.Cluster.Governor().AlterNode(ctx, m)
			return &info, err
		})
	}
}

func nodeDrop(c *Client, p *cycle, h protocol.Header, _ target) {
	m := new(protocol.NodeDrop)
	if p.decode(c, h, m) && checkNodeChange(c, p, h, m.Path) {
		runChange(c, p, h, c.server.NodeOps, true, func(ctx context.Context) (protocol.Message, error) {
			return &protocol.Empty{}, c.server.cfg.Cluster.Governor().DropNode(ctx, m)
		})
	}
}

func checkNodeChange(c *Client, p *cycle, h protocol.Header, path string) bool {
	if bad := c.allowedPath(auth.RightAdmin, path); bad != nil {
		p.out.FailError(c, h.Kind, h.ID, bad)
		return false
	}
	c.server.cfg.Log.Info("node change asked", "kind", h.Kind.String(), "path", path,
		"identity", c.identity, "remote", c.Remote())
	writeAudit(c, audit.Event{Title: "ask_" + h.Kind.String(),
		Message: "a change of a node is asked for", Severity: audit.Medium},
		"node", path, "remote", c.Remote())
	return true
}

// Bounds of what is under way off the loops, beside Limits.NodeOps.
const (
	maxNodeLists = 8 // each looks at up to 20,000 nodes
	maxMethods   = 64
)

// runOffLoop runs op on a goroutine of its own, in one of the slots, and replies with what it
// answers. Lists, which need no right, changes of nodes, which tenants may be allowed on their own,
// and operators' methods have slots of their own, so that none of them keeps the next from being
// served.
func runOffLoop(c *Client, p *cycle, h protocol.Header, slots chan struct{}, op func(ctx context.Context) (protocol.Message, error)) {
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
