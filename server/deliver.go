package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Applied implements replica.Sink: it appends each frame to what waits for its connection, and wakes
// the transports once at the end. It runs on the shard's apply goroutine while the log waits, so it
// allocates nothing and never blocks.
func (d *shardHost) Applied(rep *replica.Shard, index uint64, origins []replica.Origin, ev *shard.Events) {
	defer d.flushReplies(len(origins))
	defer d.server.guard("deliver", func() { d.deliveryFailed(origins) })
	if len(origins) > 0 {
		d.server.metrics.Batch(len(origins), time.Duration(origins[0].Tag&^unloggedNote), d.server.clock.Now())
	}
	d.delivery.Applied(rep, index, origins, ev)
	d.memberSink.count(rep, ev.ProcessChanges)
	if d.Leading() {
		for i := range ev.TrackChanges {
			d.tracks.recordDecision(index, &ev.TrackChanges[i])
		}
	}
}

// flushReplies writes what was appended for an entry. A batch of a few commands comes from a shard
// with little to do. Its replies are written here, since the switch to an event loop would take most
// of the time.
func (d *shardHost) flushReplies(commands int) {
	if commands > 0 && commands <= transport.MaxDirectWrites {
		d.out.flushDirect()
	} else {
		d.out.flush()
	}
}

// LogTime implements delivery.Host.
func (d *shardHost) LogTime() uint64 { return d.raft.LogTime() }

// Reply implements delivery.Host.
func (d *shardHost) Reply(og *replica.Origin, e *shard.Event) {
	if og.Conn == 0 {
		return
	}
	c := d.server.conn(og.Conn)
	switch {
	case c == nil:
		d.server.metrics.RepliesDropped.Inc()
	case og.Tag&unloggedNote != 0:
		if e.Status != protocol.StatusOK {
			d.unloggedAttachFailed(c, og.Request, e.Status, e.Text)
		}
	case e.Status != protocol.StatusOK:
		d.out.rejectByShard(c, d, og.Kind, og.Request, e.Status, e.Text)
	case og.Kind == protocol.KindSessionStart || og.Kind == protocol.KindSessionAttach:
		current, _ := d.server.routing().keys()
		d.ticket = d.ticketSigner.Append(d.ticket[:0], current, e.Session, e.Node, e.Epoch, c.identity)
		d.out.reply(c, og.Kind, og.Request, d.replies.Session(d.id, e, d.ticket))
	default:
		d.out.reply(c, og.Kind, og.Request, d.replies.Body(og.Kind, e))
	}
}

// Notify implements delivery.Host.
func (d *shardHost) Notify(session uint64, ended bool, kind protocol.Kind, m protocol.Message) {
	if c := d.server.bindings.Conn(session); c != nil {
		c.Append(kind, 0, d.id, m)
	} else if ended {
		if c := d.server.transport.Conn(d.server.bindings.Ended(session)); c != nil {
			c.Append(kind, 0, d.id, m)
		}
	}
}

// NotifyMember implements delivery.Host.
func (d *shardHost) NotifyMember(e *shard.Event) { d.notifyMember(&d.round, e) }

// AnnounceLeader implements delivery.Host.
func (d *shardHost) AnnounceLeader() { d.announceLeaderSoon() }

// SessionAttached implements delivery.Host.
func (d *shardHost) SessionAttached(conn uint64, e *shard.Event) {
	c := d.server.conn(conn)
	d.sessionAttached(c, e)
	if c == nil || !d.server.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	what := "session attached"
	path, _ := d.server.routing().nodePath(e.Node)
	if e.Epoch == 1 {
		what = "session started"
	}
	d.server.log.Debug(what, "session", e.Session, "node", path, "shard", d.id, "epoch", e.Epoch, "timeout_ms", e.Timeout, "client", c.Remote())
}

// SessionEnded implements delivery.Host.
func (d *shardHost) SessionEnded(e *shard.Event) {
	d.server.metrics.SessionEnded(e.Reason)
	client := ""
	for _, b := range d.server.bindings.End(e.Session, d.server.clock.Now()) {
		client = b.Conn.Remote()
		d.ended = protocol.SessionEnded{Session: e.Session, Reason: e.Reason, Message: e.Text}
		b.Conn.Append(protocol.KindSessionEnded, 0, d.id, &d.ended)
	}
	if d.Leading() && d.server.log.Enabled(context.Background(), slog.LevelDebug) {
		path, _ := d.server.routing().nodePath(e.Node)
		d.server.log.Debug("session ended", "session", e.Session, "node", path, "shard", d.id, "reason", metrics.EndReasons[e.Reason], "text", e.Text, "client", client)
	}
}

// DetachSessions implements delivery.Host. It notifies the clients, which attach the sessions again
// where the map sends them. The rest of what those connections have stays. What the clients hold
// they go on holding until the time of their last renewal is over. The event is in the connection's
// buffer before any later pong, so no such pong renews an old attach.
func (d *shardHost) DetachSessions(first, count uint32) {
	d.server.eachConn(func(c *conn) { c.Detach(d, first, count) })
}

// deliveryFailed handles a defect while delivering: it closes the connections whose requests were
// in the batch, since their replies are lost.
func (d *shardHost) deliveryFailed(origins []replica.Origin) {
	for i := range origins {
		if c := d.server.conn(origins[i].Conn); c != nil {
			c.Close(transport.Immediate, protocol.StatusInternal, "the server met a defect while answering; reconnect and send again")
		}
	}
}
