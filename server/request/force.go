package request

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
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
	auditRequest(c, "ask_kill_session", "the end of a session is asked for", m.Node,
		audit.Field{Key: "session", Value: m.Session}, audit.Field{Key: "reason", Value: m.Reason})
	c.submit(p, h, protocol.SessionTier(m.Session), t.command())
}

// forceRelease takes leases away. Its owners learn in the log's words who did it.
func forceRelease(c *Client, p *cycle, h protocol.Header, t target) {
	m := t.message.(*protocol.ForceRelease)
	auditRequest(c, "ask_force_release", "the end of leases is asked for", m.Node, audit.Field{Key: "semaphore", Value: string(m.Name)},
		audit.Field{Key: "token", Value: m.First}, audit.Field{Key: "last_token", Value: m.Last},
		audit.Field{Key: "reason", Value: m.Reason})
	c.submit(p, h, c.server.Routes().tierOf(m.Node), shard.Command{Node: m.Node, Client: c.identity})
}

// auditRequest notes what an operator asked for on this connection.
func auditRequest(c *Client, title, message string, node uint64, fields ...audit.Field) {
	path, _ := c.server.Routes().NodePath(node)
	attrs := []any{"node", path, "identity", c.identity, "remote", c.Remote()}
	for _, f := range fields {
		attrs = append(attrs, f.Key, f.Value)
	}
	c.server.cfg.Log.Info(message, attrs...)
	fields = append([]audit.Field{{Key: "node", Value: path}}, fields...)
	fields = append(append(fields, audit.Field{Key: "remote", Value: c.Remote()}), via(c)...)
	c.server.cfg.Audit(audit.Event{Title: title, Message: message, Severity: audit.High, Initiator: c.identity, Fields: fields})
}

// via is how an operator's request came, for its audit line: nothing to say, unless by a console.
func via(c *Client) []audit.Field {
	if !c.console {
		return nil
	}
	return []audit.Field{{Key: "via", Value: "console"}}
}
