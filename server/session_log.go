package server

import (
	"context"
	"log/slog"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// endReasonNames are the reasons of a session's end as metrics and the log name them.
var endReasonNames = map[protocol.EndReason]string{
	protocol.EndStopped: "stopped", protocol.EndExpired: "expired", protocol.EndKilled: "killed", protocol.EndNodeDropped: "node_dropped",
}

// logAttached logs at debug that a session was started or attached over a connection here.
func (d *shardHost) logAttached(c *conn, e *shard.Event) {
	if c == nil || !d.server.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	what := "session attached"
	if e.Epoch == 1 {
		what = "session started"
	}
	d.server.log.Debug(what, "session", e.Session, "node", d.nodePath(e.Node), "shard", d.id, "epoch", e.Epoch, "timeout_ms", e.Timeout, "client", c.remote)
}

// logEnded logs at debug that a session has ended, at its home's leader: with the reason, and the client's address if the session was on a connection here.
func (d *shardHost) logEnded(e *shard.Event, client string) {
	if !d.leading.Load() || !d.server.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	d.server.log.Debug("session ended", "session", e.Session, "node", d.nodePath(e.Node), "shard", d.id, "reason", endReasonNames[e.Reason], "text", e.Text, "client", client)
}

// nodePath is the path of a node; empty when it is gone.
func (d *shardHost) nodePath(id uint64) string {
	n, _ := d.server.meta.State().Node(id)
	return n.Path
}
