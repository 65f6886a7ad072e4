package request

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

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
