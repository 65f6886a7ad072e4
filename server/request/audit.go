package request

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
)

// auditRequest records an operator's request on this connection in the log and the audit log.
func auditRequest(c *Client, title, message string, node uint64, fields ...any) {
	path, _ := c.server.Routes().NodePath(node)
	c.server.cfg.Log.Info(message, append([]any{"node", path, "identity", c.identity, "remote", c.Remote()},
		fields...)...)
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

// writeAudit writes a request of this connection to the audit log, with the client's program.
func writeAudit(c *Client, e audit.Event, fields ...any) {
	e.Initiator, e.Fields = c.identity, audit.Fields(append(fields, via(c)...)...)
	c.server.cfg.Audit(e)
}

// faces are programs through which others use the cluster, by the names in their hellos.
var faces = map[string]string{protocol.ConsoleClient: "console", protocol.HTTPClient: "http"}

// via returns the fields that mark a request of such a program, and one of a client with a
// platform's token.
func via(c *Client) (fields []any) {
	if c.via != "" {
		fields = append(fields, "via", c.via)
	}
	if by := c.shown.Load(); by != nil && by.Subject != nil {
		fields = append(fields, "trust", by.Subject.Trust, "subject", by.Subject.Subject)
	}
	return fields
}

// outcomeOf returns a function that records, in the log and the audit log, the outcome of a change
// requested on this connection. It may be called beside the connection, whose identity it does not
// read. An undecided change is recorded as such: it may still happen.
func outcomeOf(c *Client, change string, subject ...any) func(err error, fields ...any) {
	identity := c.identity
	subject = append(append(subject, "remote", c.Remote()), via(c)...)
	return func(err error, fields ...any) {
		title, message := "done_"+change, "change done"
		switch status := protocol.StatusOf(err); {
		case status == protocol.StatusUnavailable:
			title, message, fields = "undecided_"+change, "change undecided", []any{"error", err.Error()}
		case err != nil:
			title, message, fields = "refused_"+change, "change refused", []any{"error", err.Error()}
		}
		fields = append(slices.Clone(subject), fields...)
		c.server.cfg.Log.Info(message, append([]any{"change", change, "identity", identity}, fields...)...)
		c.server.cfg.Audit(audit.Event{Title: title, Message: message, Severity: audit.High, Initiator: identity,
			Fields: audit.Fields(fields...)})
	}
}
