package server

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
)

// nodeOpTimeout bounds a change of a coordination node. When it ends the change may still come: it is decided in the meta shard.
const nodeOpTimeout = 30 * time.Second

// nodeRequest serves the requests about coordination nodes. Reads come from the map this instance has; changes wait for the meta shard and all data shards,
// on goroutines of their own, bounded in number.
func (c *conn) nodeRequest(p *readCycle, h protocol.Header) {
	g := c.server.governor
	switch h.Kind {
	case protocol.KindNodeDescribe:
		var m protocol.NodeDescribe
		if !p.decode(c, h, &m) {
			return
		}
		bad := c.allowedPath(RightRead, m.Path)
		if bad != nil {
			p.out.failError(c, h.Kind, h.ID, bad)
			return
		}
		info, err := g.DescribeNode(m.Path)
		if err != nil {
			p.out.failError(c, h.Kind, h.ID, err)
			return
		}
		p.out.reply(c, h.Kind, h.ID, &info)
	case protocol.KindNodeList:
		m := new(protocol.NodeList)
		if !p.decode(c, h, m) {
			return
		}
		m.Cursor = append([]byte(nil), m.Cursor...)
		// A page may look at many thousand nodes: that is not done on an event loop.
		c.runOffLoop(p, h, c.server.nodeLists, func(context.Context) (protocol.Message, error) {
			reply, err := g.ListNodes(m, func(path string) bool { return c.allowedPath(RightRead, path) == nil })
			return &reply, err
		})
	case protocol.KindNodeCreate:
		m := new(protocol.NodeCreate)
		if !p.decode(c, h, m) || !c.checkNodeChange(p, h, m.Path) {
			return
		}
		c.runOffLoop(p, h, c.server.nodeOps, func(ctx context.Context) (protocol.Message, error) {
			info, err := g.CreateNode(ctx, m)
			return &info, err
		})
	case protocol.KindNodeAlter:
		m := new(protocol.NodeAlter)
		if !p.decode(c, h, m) || !c.checkNodeChange(p, h, m.Path) {
			return
		}
		c.runOffLoop(p, h, c.server.nodeOps, func(ctx context.Context) (protocol.Message, error) {
			info, err := g.AlterNode(ctx, m)
			return &info, err
		})
	case protocol.KindNodeDrop:
		m := new(protocol.NodeDrop)
		if !p.decode(c, h, m) || !c.checkNodeChange(p, h, m.Path) {
			return
		}
		c.runOffLoop(p, h, c.server.nodeOps, func(ctx context.Context) (protocol.Message, error) {
			return &protocol.Empty{}, g.DropNode(ctx, m)
		})
	}
}

func (c *conn) checkNodeChange(p *readCycle, h protocol.Header, path string) bool {
	if bad := c.allowedPath(RightAdmin, path); bad != nil {
		p.out.failError(c, h.Kind, h.ID, bad)
		return false
	}
	c.server.log.Info("node change asked", "kind", h.Kind.String(), "path", path, "identity", c.identity, "remote", c.remote)
	c.server.audit.write(audit.Event{Title: "ask_" + h.Kind.String(), Message: "a change of a node is asked for", Severity: audit.Medium, Initiator: c.identity,
		Fields: []audit.Field{{Key: "node", Value: path}, {Key: "remote", Value: c.remote}}})
	return true
}

// Bounds of what is under way off the loops, beside Limits.NodeOps.
const (
	maxNodeLists = 8 // each looks at up to 20,000 nodes
	maxMethods   = 64
)

// runOffLoop runs op on a goroutine of its own, in one of the slots, and replies with what it answers. Lists, which need no right, changes of nodes, which tenants may be allowed on their own, and
// operators' methods have slots of their own, so that none of them keeps the next from being served.
func (c *conn) runOffLoop(p *readCycle, h protocol.Header, slots chan struct{}, op func(ctx context.Context) (protocol.Message, error)) {
	s := c.server
	select {
	case slots <- struct{}{}:
	default:
		p.out.fail(c, h.Kind, h.ID, protocol.StatusOverloaded, fmt.Sprintf("%d requests of this kind are under way, the limit on each instance; retry later", cap(slots)))
		return
	}
	kind, id := h.Kind, h.ID
	s.running.Go(func() {
		defer func() { <-slots }()
		ctx, cancel := context.WithTimeout(s.ctx, nodeOpTimeout)
		defer cancel()
		o := s.borrowOutbox()
		defer s.returnOutbox(o)
		defer s.guard("node", func() { c.close(closeImmediate, protocol.StatusInternal, "the server met a defect; reconnect") })
		reply, err := op(ctx)
		switch {
		case err == nil:
			o.reply(c, kind, id, reply)
		case ctx.Err() != nil:
			o.fail(c, kind, id, protocol.StatusUnavailable, "the change is not done yet and may still come; look before trying again")
		default:
			o.failError(c, kind, id, err)
		}
	})
}
