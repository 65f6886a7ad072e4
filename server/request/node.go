package request

import (
	"context"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/auth"
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
		protocol.KindNodeDelete:   {handle: nodeDelete},
	}
}

func nodeDescribe(c *Client, p *cycle, h protocol.Header, _ target) {
	var m protocol.NodeDescribe
	if !p.decode(c, h, &m) {
		return
	}
	if bad := c.allowedAt(auth.RightRead, m.Path); bad != nil {
		p.reject(c, h, bad)
		return
	}
	info, err := c.server.cfg.Cluster.Governor().DescribeNode(m.Path)
	if protocol.StatusOf(err) == protocol.StatusNotFound { // it may have been made a moment ago
		p.reject(c, h, c.mapBehind(unconfirmed{right: auth.RightRead, path: m.Path}))
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
		done := outcomeOf(c, h.Kind.String(), "node", m.Path)
		runChange(c, p, h, c.server.NodeOps, true, func(ctx context.Context) (protocol.Message, error) {
			info, err := c.server.cfg.Cluster.Governor().CreateNode(ctx, m)
			done(err, "revision", info.Revision)
			return &info, err
		})
	}
}

func nodeAlter(c *Client, p *cycle, h protocol.Header, _ target) {
	m := new(protocol.NodeAlter)
	if p.decode(c, h, m) && checkNodeChange(c, p, h, m.Path) {
		done := outcomeOf(c, h.Kind.String(), "node", m.Path)
		runChange(c, p, h, c.server.NodeOps, true, func(ctx context.Context) (protocol.Message, error) {
			info, err := c.server.cfg.Cluster.Governor().AlterNode(ctx, m)
			done(err, "revision", info.Revision)
			return &info, err
		})
	}
}

func nodeDelete(c *Client, p *cycle, h protocol.Header, _ target) {
	m := new(protocol.NodeDelete)
	if !p.decode(c, h, m) {
		return
	}
	del := func(ctx context.Context) (protocol.Message, error) {
		contents, err := c.server.cfg.Cluster.Governor().DeleteNode(ctx, m)
		return &contents, err
	}
	if m.DryRun {
		if bad := c.allowedAt(auth.RightAdmin, m.Path); bad != nil {
			p.reject(c, h, bad)
			return
		}
		runChange(c, p, h, c.server.NodeOps, true, del)
		return
	}
	if !checkNodeChange(c, p, h, m.Path, withReason(m.Reason, "force", m.Force)...) {
		return
	}
	done := outcomeOf(c, h.Kind.String(), "node", m.Path)
	runChange(c, p, h, c.server.NodeOps, true, func(ctx context.Context) (protocol.Message, error) {
		reply, err := del(ctx)
		n := reply.(*protocol.NodeContents)
		done(err, withReason(m.Reason, "sessions", n.Sessions, "semaphores", n.Semaphores, "owners", n.Owners, "waiters",
			n.Waiters,
			"processes", n.Processes, "rollouts", n.Tracks, "rate_limits", n.Limits)...)
		return reply, err
	})
}

func checkNodeChange(c *Client, p *cycle, h protocol.Header, path string, fields ...any) bool {
	if bad := c.allowedAt(auth.RightAdmin, path); bad != nil {
		p.reject(c, h, bad)
		return false
	}
	c.server.cfg.Log.Debug("node change asked", "kind", h.Kind.String(), "path", path, "identity", c.identity, "remote",
		c.Remote())
	writeAudit(c, audit.Event{Title: "ask_" + h.Kind.String(),
		Message: "node change requested", Severity: audit.Medium},
		append(append([]any{"node", path}, fields...), "remote", c.Remote())...)
	return true
}

// Bounds of the operations off the loops, beside Limits.NodeOps.
const (
	maxNodeLists = 8 // each looks at up to 20,000 nodes
	maxMethods   = 64
)
