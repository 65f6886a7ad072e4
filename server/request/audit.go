package request

import (
	"github.com/signalbox-dev/signalbox/server/audit"
)

// auditRequest notes in the log and the audit log what an operator asked for on this connection.
func auditRequest(c *Client, title, message string, node uint64, fields ...any) {
	path, _ := c.server.Routes().NodePath(node)
	c.server.cfg.Log.Info(message, append([]any{"node", path, "identity", c.identity, "remote", c.Remote()}, fields...)...)
	fields = append(append([]any{"node", path}, fields...), "remote", c.Remote())
	writeAudit(c, audit.Event{Title: title, Message: message, Severity: audit.High}, fields...)
}

// withReason adds the reason to a line's fields, if there is one.
func withReason(reason string, fields ...any) []any {
	if reason != "" {
		fields = append(fields, "reason", reason)
	}
	return fields
}

// writeAudit notes in the audit log what was asked for on this connection, and whether by a
// console.
func writeAudit(c *Client, e audit.Event, fields ...any) {
	if c.console {
		fields = append(fields, "via", "console")
	}
	e.Initiator, e.Fields = c.identity, audit.Fields(fields...)
	c.server.cfg.Audit(e)
}
