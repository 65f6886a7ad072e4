package server

import (
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/shard"
)

// What operators take from clients that work: sessions, and leases of sessions that live. Each has a line of the audit log for the asking, with who and why, and one for each
// session or lease that it ended, from the instance that leads the shard.

// sessionKill ends a session as an operator.
func sessionKill(c *conn, p *readCycle, h protocol.Header, t target) {
	m := &p.requests.kill
	c.auditRequest("ask_kill_session", "the end of a session is asked for", m.Node, audit.Field{Key: "session", Value: m.Session}, audit.Field{Key: "reason", Value: m.Reason})
	c.submit(p, h, protocol.SessionTier(m.Session), t.command())
}

// forceRelease takes leases away. Its owners learn in the log's words who did it.
func forceRelease(c *conn, p *readCycle, h protocol.Header, t target) {
	m := &p.requests.force
	c.auditRequest("ask_force_release", "the end of leases is asked for", m.Node, audit.Field{Key: "semaphore", Value: string(m.Name)},
		audit.Field{Key: "token", Value: m.First}, audit.Field{Key: "last_token", Value: m.Last}, audit.Field{Key: "reason", Value: m.Reason})
	c.submit(p, h, c.server.routing().tierOf(m.Node), shard.Command{Node: m.Node, Client: c.identity})
}

// auditRequest notes what an operator asked for on this connection.
func (c *conn) auditRequest(title, message string, node uint64, fields ...audit.Field) {
	path, _ := c.server.routing().nodePath(node)
	attrs := []any{"node", path, "identity", c.identity, "remote", c.Remote()}
	for _, f := range fields {
		attrs = append(attrs, f.Key, f.Value)
	}
	c.server.log.Info(message, attrs...)
	fields = append([]audit.Field{{Key: "node", Value: path}}, fields...)
	fields = append(fields, audit.Field{Key: "remote", Value: c.Remote()})
	c.server.audit.write(audit.Event{Title: title, Message: message, Severity: audit.High, Initiator: c.identity, Fields: fields})
}

// Forced implements delivery.Host. It writes what was taken from a client by force. The leader's instance does; what was applied while nobody led has the line of the asking only.
func (d *shardHost) Forced(index uint64, e *shard.Event) {
	if d.server.audit.log == nil || !d.Leading() {
		return
	}
	path, _ := d.server.routing().nodePath(e.Node)
	fields := []audit.Field{{Key: "node", Value: path}, {Key: "session", Value: e.Session}}
	line := audit.Event{Title: "session_killed", Message: "a session was ended by an operator", Severity: audit.High}
	if e.Kind == shard.EventLeaseLost {
		line.Title, line.Message = "lease_taken", "a lease was taken away while its session lives"
		fields = append(fields, audit.Field{Key: "semaphore", Value: string(e.Name)}, audit.Field{Key: "token", Value: e.OrderID})
	}
	line.Fields = append(fields, audit.Field{Key: "why", Value: e.Text}, audit.Field{Key: "shard", Value: strconv.FormatUint(d.id, 10)},
		audit.Field{Key: "index", Value: index})
	d.server.audit.write(line)
}
