package shardhost

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Applied implements replica.Sink: it appends each frame to what waits for its connection, and
// wakes the transports at the end; with many connections they wake earlier. It runs on the shard's
// apply goroutine while the log waits, so it allocates next to nothing and never blocks.
func (s *Shard) Applied(rep *replica.Shard, index uint64, origins []replica.Origin, ev *shard.Events) {
	defer s.flushReplies(len(origins))
	defer s.serving.Requests.Guard("deliver", func() { s.deliveryFailed(origins) })
	now := rep.AppliedAt()
	if len(origins) > 0 {
		s.appliedAt = now
		began := time.Duration(origins[0].Tag &^ request.UnloggedNote)
		s.serving.Metrics.Batch(len(origins), began, now)
		if began != 0 {
			s.serving.Rates.Changes.Add(now-began, len(origins))
		}
	}
	s.delivery.Applied(rep, index, origins, ev)
	s.memberSink.count(rep, ev.ProcessChanges)
	if s.Leading() {
		s.grants.Count(now, ev.SemaphoreChanges)
		for i := range ev.TrackChanges {
			s.tracks.recordDecision(index, &ev.TrackChanges[i])
		}
		if len(ev.SlowWaits) > 0 {
			s.slowWaits.write(s.serving.Log, ev, s.ID(), s.serving.Requests.Routes(), now)
		}
	}
}

// flushReplies writes what was appended for an entry. The replies of a few commands are written
// here, and with one event loop replies that each have a connection: the switch to a loop would
// take most of the time, or spare no write.
func (s *Shard) flushReplies(commands int) {
	if commands > 0 {
		s.out.FlushDirect(commands)
	} else {
		s.out.Flush()
	}
}

// LogTime implements delivery.Host.
func (s *Shard) LogTime() uint64 { return s.Raft().LogTime() }

// Reply implements delivery.Host.
func (s *Shard) Reply(og *replica.Origin, e *shard.Event) {
	if og.Conn == 0 {
		return
	}
	c := s.serving.Requests.Client(og.Conn)
	if og.Tag&request.UnloggedNote == 0 {
		s.out.Took(og.Kind, s.appliedAt-time.Duration(og.Tag))
	}
	switch {
	case c == nil:
		s.serving.Metrics.RepliesDropped.Inc()
	case og.Tag&request.UnloggedNote != 0:
		if e.Status != protocol.StatusOK {
			s.unloggedAttachFailed(c, og.Request, e.Status, e.Text)
		}
	case e.Status != protocol.StatusOK:
		s.out.RejectByShard(c, s, og.Kind, og.Request, e.Status, e.Text)
	case og.Kind == protocol.KindSessionStart || og.Kind == protocol.KindSessionAttach:
		current, _ := s.serving.Requests.Routes().Keys()
		s.ticket = s.ticketSigner.Append(s.ticket[:0], current, e.Session, e.Node, e.Epoch, c.Identity())
		s.out.Reply(c, og.Kind, og.Request, s.replies.Session(s.ID(), e, s.ticket))
	default:
		s.out.Reply(c, og.Kind, og.Request, s.replies.Body(og.Kind, e))
	}
}

// unloggedAttachFailed takes back a RELAXED attach that the log did not take, and notifies the
// client: the session is not attached.
func (s *Shard) unloggedAttachFailed(c *request.Client, session uint64, st protocol.Status, text string) {
	c.Unbind(session, st == protocol.StatusSessionExpired)
	switch st {
	case protocol.StatusSessionExpired:
		c.Append(protocol.KindSessionEnded, 0, s.ID(),
			&protocol.SessionEnded{Session: session, Reason: protocol.EndExpired, Message: text})
	default:
		// The client attaches again with a higher epoch when it is back.
		c.Close(transport.Graceful, protocol.StatusUnavailable,
			"the shard could not log an attach of this connection; reconnect and attach again")
	}
}

// Notify implements delivery.Host. A client that does not know an event does not get it.
func (s *Shard) Notify(session uint64, kind protocol.Kind, m protocol.Message) {
	if c := s.serving.Bindings.Conn(session); c != nil && c.Understands(kind) {
		c.Append(kind, 0, s.ID(), m)
	}
}

// AcquireResult implements delivery.Host. A shard that is not the session's home does not learn why
// the session ended. The bindings keep the reason that the home's log gave.
func (s *Shard) AcquireResult(m *protocol.AcquireResult) {
	if c := s.serving.Bindings.Conn(m.Session); c != nil {
		c.Append(protocol.KindAcquireResult, 0, s.ID(), m)
	} else if m.Status == protocol.StatusSessionExpired {
		conn, reason := s.serving.Bindings.Ended(m.Session)
		if c := s.serving.Requests.Client(conn); c != nil {
			m.Message = reason
			c.Append(protocol.KindAcquireResult, 0, s.ID(), m)
		}
	}
}

// NotifyMember implements delivery.Host.
func (s *Shard) NotifyMember(e *shard.Event) { s.memberSink.notify(&s.round, e) }

// SessionAttached implements delivery.Host. Without a connection the session was attached through
// another instance, or a connection that is closed; the shard's leader knows the latter by itself.
func (s *Shard) SessionAttached(conn uint64, e *shard.Event) {
	c := s.serving.Requests.Client(conn)
	if c == nil || !c.NewBinding(e.Session, e.Epoch, e.Node, s, e.Text).Bind(time.Duration(e.Timeout)*time.Millisecond) {
		s.serving.Bindings.Elsewhere(e.Session, e.Epoch, s)
	}
	if c == nil || !s.serving.Log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	what := "session attached"
	path, _ := s.serving.Requests.Routes().NodePath(e.Node)
	if e.Epoch == 1 {
		what = "session started"
	}
	s.serving.Log.Debug(what, "session", e.Session, "node", path, "shard", s.ID(), "epoch", e.Epoch, "timeout_ms",
		e.Timeout, "client", c.Remote())
}

// SessionEnded implements delivery.Host.
func (s *Shard) SessionEnded(e *shard.Event) {
	if s.Leading() {
		s.serving.Metrics.SessionEnded(e.Reason)
		if e.Reason == protocol.EndExpired {
			s.serving.expired.add(e.Node, e.Session)
		}
	}
	client := ""
	for _, b := range s.serving.Bindings.End(e.Session, e.Text, s.serving.Clock.Now()) {
		client = b.Conn.Remote()
		s.ended = protocol.SessionEnded{Session: e.Session, Reason: e.Reason, Message: e.Text}
		b.Conn.Append(protocol.KindSessionEnded, 0, s.ID(), &s.ended)
	}
	if s.Leading() && s.serving.Log.Enabled(context.Background(), slog.LevelDebug) {
		path, _ := s.serving.Requests.Routes().NodePath(e.Node)
		s.serving.Log.Debug("session ended", "session", e.Session, "node", path, "shard", s.ID(), "reason",
			metrics.EndReasons[e.Reason], "text", e.Text, "client", client)
	}
}

// DetachSessions implements delivery.Host. It notifies the clients, which attach the sessions again
// where the map sends them. The rest of what those connections have stays. What the clients hold
// they go on holding until the time of their last renewal is over. The event is in the connection's
// buffer before any later pong, so no such pong renews an old attach.
func (s *Shard) DetachSessions(first, count uint32) {
	s.serving.Requests.EachClient(func(c *request.Client) { c.Detach(s, first, count) })
}

// deliveryFailed handles a defect while delivering: it closes the connections whose requests were
// in the batch, since their replies are lost.
func (s *Shard) deliveryFailed(origins []replica.Origin) {
	for i := range origins {
		if c := s.serving.Requests.Client(origins[i].Conn); c != nil {
			c.Close(transport.Immediate, protocol.StatusInternal,
				"the server met a defect while answering; reconnect and send again")
		}
	}
}

// Forced implements delivery.Host. It writes what was taken from a client by force, and holds that
// ended at their bounds. The leader's instance does; what was applied while nobody led has the line
// of the asking only.
func (s *Shard) Forced(index uint64, e *shard.Event) {
	if !s.Leading() {
		return
	}
	path, _ := s.serving.Requests.Routes().NodePath(e.Node)
	fields := []any{"node", path, "session", e.Session}
	line := audit.Event{Title: "session_killed", Message: "a session was ended by an operator", Severity: audit.High}
	if e.Kind == shard.EventLeaseLost {
		line.Title, line.Message = "lease_taken", "a lease was taken away while its session lives"
		if e.Cause != 0 {
			line = audit.Event{Title: "lease_ended", Message: "a lease ended at its bound while its session lives", Severity: audit.Medium}
		}
		fields = append(fields, "semaphore", string(e.Name), "token", e.OrderID)
	}
	line.Fields = audit.Fields(append(fields, "why", e.Text, "shard", strconv.FormatUint(s.ID(), 10), "index", index)...)
	s.serving.Audit(line)
}

// Send implements delivery.Sender.
func (s *Shard) Send(id uint64, frame []byte, droppable bool) bool {
	c := s.serving.Requests.Client(id)
	return c == nil || c.AppendShared(frame, droppable)
}

// SendPage implements delivery.Sender.
func (s *Shard) SendPage(id uint64, head, shared []byte) {
	if c := s.serving.Requests.Client(id); c != nil {
		c.AppendPage(head, shared)
	}
}

// PagesDue implements delivery.Sender.
func (s *Shard) PagesDue(_, id uint64) {
	if c := s.serving.Requests.Client(id); c != nil {
		s.requests.SendPages(c)
	}
}
