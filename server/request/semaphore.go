package request

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/shard"
)

// semaphoreRequests are the requests that change semaphores. They are decoded and checked here, so
// that every command in the log is worth its sync.
func semaphoreRequests() map[protocol.Kind]requestKind {
	return map[protocol.Kind]requestKind{
		protocol.KindCreate: onSession(func(m *protocol.Create) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, grows: true, handle: create,
				data: func(m request) (string, []byte) { return "data", m.(*protocol.Create).Data }}),
		protocol.KindUpdate: onSession(func(m *protocol.Update) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, grows: true, handle: update,
				data: func(m request) (string, []byte) { return "data", m.(*protocol.Update).Data }}),
		protocol.KindResize: onSession(func(m *protocol.Resize) *uint64 { return &m.Session },
			requestKind{right: auth.RightAdmin, charge: chargeAsk, handle: resize}),
		protocol.KindAlter: onSession(func(m *protocol.Alter) *uint64 { return &m.Session },
			requestKind{right: auth.RightAdmin, charge: chargeAsk, handle: alter}),
		protocol.KindDelete: onSession(func(m *protocol.Delete) *uint64 { return &m.Session },
			requestKind{right: auth.RightAdmin, charge: chargeAsk, handle: deleteSemaphore}),
		protocol.KindAcquire: onSession(func(m *protocol.Acquire) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, grows: true, handle: acquire,
				data: func(m request) (string, []byte) { return "data", m.(*protocol.Acquire).Data }}),
		// An identity that has lost the right use may still release the session's earlier leases.
		protocol.KindRelease: onSession(func(m *protocol.Release) *uint64 { return &m.Session },
			requestKind{right: auth.RightRead, charge: chargeAlways, handle: submitTarget}),
		protocol.KindForceRelease: onNode(func(m *protocol.ForceRelease) *uint64 { return &m.Node },
			requestKind{right: auth.RightAdmin, handle: forceRelease}),
	}
}

// acquire adds the session's description for a shard that may not know it.
func acquire(c *Client, p *cycle, h protocol.Header, t target) {
	cmd := t.command()
	cmd.Sender = t.binding.DescriptionFor(t.shard, p.now)
	if c.submitToShard(t.shard, p, h, cmd) && cmd.Sender != "" {
		t.binding.MarkDescribed(t.shard, p.now)
	}
}

// audited reports whether the audit log has a line of a change of a semaphore that programs make
// all the time: the name is a configuration's, or the request has a reason.
func audited(name []byte, reason string) bool {
	return reason != "" || bytes.HasPrefix(name, []byte(protocol.ConfigPrefix))
}

func create(c *Client, p *cycle, h protocol.Header, t target) {
	if m := t.message.(*protocol.Create); audited(m.Name, m.Reason) {
		auditRequest(c, "ask_create", "semaphore creation requested", t.node,
			withReason(m.Reason, "semaphore", string(m.Name), "limit", m.Limit, "bytes", len(m.Data))...)
	}
	submitTarget(c, p, h, t)
}

func update(c *Client, p *cycle, h protocol.Header, t target) {
	if m := t.message.(*protocol.Update); audited(m.Name, m.Reason) {
		auditRequest(c, "ask_update", "semaphore data change requested", t.node,
			withReason(m.Reason, "semaphore", string(m.Name), "if_version", m.Expected, "bytes", len(m.Data))...)
	}
	submitTarget(c, p, h, t)
}

func resize(c *Client, p *cycle, h protocol.Header, t target) {
	m := t.message.(*protocol.Resize)
	auditRequest(c, "ask_resize", "semaphore resize requested", t.node,
		withReason(m.Reason, "semaphore", string(m.Name), "limit", m.Limit, "if_version", m.Expected)...)
	submitTarget(c, p, h, t)
}

// alter is audited whole: each of its fields may change the order of waiters.
func alter(c *Client, p *cycle, h protocol.Header, t target) {
	m := t.message.(*protocol.Alter)
	auditRequest(c, "ask_alter", "semaphore options change requested", t.node,
		"semaphore", string(m.Name), "fields", m.Fields, "drain", m.Drain, "undrain", m.Undrain, "reason", m.Reason)
	submitTarget(c, p, h, t)
}

func deleteSemaphore(c *Client, p *cycle, h protocol.Header, t target) {
	m := t.message.(*protocol.Delete)
	fields := withReason(m.Reason, "semaphore", string(m.Name), "session", m.Session, "if_version", m.Expected)
	switch {
	case m.Force:
		auditRequest(c, "ask_force_delete", "forced semaphore deletion requested", t.node, fields...)
	case audited(m.Name, m.Reason):
		auditRequest(c, "ask_delete", "semaphore deletion requested", t.node, fields...)
	}
	submitTarget(c, p, h, t)
}

// What operators take from clients that work: sessions, and leases of sessions that live. Each has
// a line of the audit log for the asking, with who and why, and one for each session or lease that
// it ended, from the instance that leads the shard.

// sessionKill ends a session as an operator.
func sessionKill(c *Client, p *cycle, h protocol.Header, t target) {
	m := t.message.(*protocol.SessionKill)
	if rejectWithoutHome(c, p.out, h.Kind, h.ID, m.Session) {
		return
	}
	auditRequest(c, "ask_kill_session", "session kill requested", m.Node, "session", m.Session, "reason",
		m.Reason)
	c.submit(p, h, protocol.SessionTier(m.Session), t.command())
}

// forceRelease takes leases away. Its owners learn in the log's words who did it.
func forceRelease(c *Client, p *cycle, h protocol.Header, t target) {
	m := t.message.(*protocol.ForceRelease)
	auditRequest(c, "ask_force_release", "forced release requested", m.Node,
		"semaphore", string(m.Name), "token", m.First, "last_token", m.Last, "reason", m.Reason)
	c.submit(p, h, c.server.Routes().tierOf(m.Node), shard.Command{Node: m.Node, Sender: c.identity})
}
