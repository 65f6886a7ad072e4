package request

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
)

// limitRequestKinds are the requests about rate limits. Resources are changed and participants
// join by the log. Leases are the leader's: refreshes and acquires wait for the barrier that all
// reads share, whatever the node's read consistency, because a deposed leader must grant nothing.
func limitRequestKinds() map[protocol.Kind]requestKind {
	return map[protocol.Kind]requestKind{
		protocol.KindLimitCreate: onSession(func(m *protocol.LimitCreate) *uint64 { return &m.Session },
			requestKind{right: auth.RightAdmin, charge: chargeAsk, grows: true, handle: submitLimit}),
		protocol.KindLimitAlter: onSession(func(m *protocol.LimitAlter) *uint64 { return &m.Session },
			requestKind{right: auth.RightAdmin, charge: chargeAsk, grows: true, handle: submitLimit}),
		protocol.KindLimitDelete: onSession(func(m *protocol.LimitDelete) *uint64 { return &m.Session },
			requestKind{right: auth.RightAdmin, charge: chargeAsk, handle: submitLimit}),
		protocol.KindLimitJoin: onSession(func(m *protocol.LimitJoin) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, grows: true, handle: submitTarget}),
		protocol.KindLimitLeave: onSession(func(m *protocol.LimitLeave) *uint64 { return &m.Session },
			requestKind{right: auth.RightRead, charge: chargeAlways, handle: submitTarget}),
		protocol.KindLimitRefresh: onSession(func(m *protocol.LimitRefresh) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, handle: readOfSession,
				read: answered(func(x reading, q *protocol.LimitRefresh, out *protocol.LimitRefreshReply) error {
					return x.leases(func(l *leader.RateLimits) error {
						defer x.admit(l)
						return x.refreshLeases(l, q, out)
					})
				})}),
		protocol.KindLimitAcquire: onSession(func(m *protocol.LimitAcquire) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, handle: readOfSession,
				read: answeredLater(func(x reading, q *protocol.LimitAcquire) error {
					return x.leases(func(l *leader.RateLimits) error {
						defer x.admit(l)
						return x.acquireUnits(l, q)
					})
				})}),
		protocol.KindLimitDescribe: readRow(
			func(q *protocol.LimitDescribe) readScope { return readScope{node: q.Node, want: protocol.Strict} },
			func(x reading, q *protocol.LimitDescribe, out *protocol.LimitStatus) error {
				return x.leases(func(l *leader.RateLimits) error { return l.Describe(x.m, x.logTime, q, out) })
			}),
		protocol.KindLimitList: readRow(
			func(q *protocol.LimitList) readScope { return scopeOf(q.Node, protocol.Strict, 0, q.Shard) },
			func(x reading, q *protocol.LimitList, out *protocol.LimitListReply) error {
				return x.m.RateLimits().List(q, out)
			}),
		protocol.KindLimitWatch: onNode(func(m *protocol.LimitWatch) *uint64 { return &m.Node },
			requestKind{right: auth.RightRead, charge: chargeAsk, grows: true, routed: true, handle: watchLimit}),
	}
}

// submitLimit submits a change of a resource, and notes who asked for it.
func submitLimit(c *Client, p *cycle, h protocol.Header, t target) {
	node, _ := c.server.Routes().NodePath(t.node)
	var path []byte
	var reason string
	var e audit.Event
	fields := []any{"node", node}
	switch m := t.message.(type) {
	case *protocol.LimitCreate:
		path, reason, e = m.Path, m.Reason, audit.Event{Title: "ask_create_rate_limit", Message: "rate limit creation requested"}
		fields = append(fields, "rate", m.Config.Rate, "burst", m.Config.BurstOrDefault(), "min", m.Config.Min)
		if bad := checkCreate(t.shard, t.node, m); bad != nil {
			p.reject(c, h, bad)
			return
		}
	case *protocol.LimitAlter:
		path, reason, e = m.Path, m.Reason, audit.Event{Title: "ask_alter_rate_limit", Message: "rate limit change requested"}
		fields = append(fields, "revision", m.Revision, "rate", m.Config.Rate, "burst", m.Config.BurstOrDefault(), "min", m.Config.Min)
	case *protocol.LimitDelete:
		path, reason, e = m.Path, m.Reason, audit.Event{Title: "ask_delete_rate_limit", Message: "rate limit deletion requested", Severity: audit.Medium}
		if bad := checkDelete(t.shard, t.node, m); bad != nil {
			p.reject(c, h, bad)
			return
		}
	}
	c.server.cfg.Log.Info("rate limit change asked", "kind", h.Kind.String(), "node", node, audit.Name("resource", path),
		"identity", c.identity, "remote", c.Remote())
	writeAudit(c, e, withReason(reason, append(fields, "resource", string(path))...)...)
	submitTarget(c, p, h, t)
}

// watchLimit opens a session's stream over a rate limit, where the shard is led.
func watchLimit(c *Client, p *cycle, h protocol.Header, t target) {
	m, d := t.message.(*protocol.LimitWatch), t.shard
	if !d.Leading() {
		c.RejectSubmit(p.out, d, h.Kind, h.ID, protocol.StatusUnavailable)
		return
	}
	var err error
	most := uint64(0)
	root := protocol.LimitRoot(m.Path)
	d.Replica().View(func(machine *shard.Machine) {
		most = machine.Nodes().MaxWatchers(m.Node)
		_, err = machine.RateLimits().View(m.Node, root, 0)
	})
	p.openStream(c, d, h, err, func() error {
		return d.Hubs().Limits.Open(c.ID(), h.ID, m.Node, root, delivery.LimitFilter{Session: m.Session}, most)
	})
}
