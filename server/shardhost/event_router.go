package shardhost

import (
	"context"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// eventRouter routes the events of the log: it answers requests, notifies clients of what happens
// to their sessions, and tells the hubs what ends watches. It belongs to the apply goroutine.
type eventRouter struct {
	host *Shard

	out          *request.Outbox
	appliedAt    time.Duration // clock, of the entry
	ticketSigner session.Signer

	// Buffers of one event.
	ticket    []byte
	replies   replies
	result    protocol.AcquireResult
	lost      protocol.LeaseLost
	preempted protocol.LeasePreempted
	end       protocol.SessionEnded
	round     roundWriter
}

// route handles one event of an entry, whose requests of this instance came from origins.
func (r *eventRouter) route(index uint64, origins []replica.Origin, e *shard.Event) {
	s := r.host
	switch e.Kind {
	case shard.EventReply:
		if og := originOf(origins, e); og != nil {
			r.reply(og, e)
		}
	case shard.EventAcquireResult:
		r.acquireResult(e)
	case shard.EventLeaseLost:
		r.forced(index, e)
		r.lost = protocol.LeaseLost{Session: e.Session, Name: e.Name, OrderID: e.OrderID, Message: e.Text,
			Cause: e.Cause}
		r.notify(e.Session, protocol.KindLeaseLost, &r.lost)
	case shard.EventLeasePreempted:
		r.preempted = protocol.LeasePreempted{Session: e.Session, Name: e.Name, OrderID: e.OrderID,
			Preemption: e.Grant.Preemption, Over: e.Flag, Now: e.Grant.Now, Until: e.Grant.Until, By: e.Result}
		r.notify(e.Session, protocol.KindLeasePreempted, &r.preempted)
	case shard.EventSessionAttached:
		r.sessionAttached(originOf(origins, e), e)
	case shard.EventSessionEnded:
		if e.Reason == protocol.EndKilled {
			r.forced(index, e)
		}
		r.sessionEnded(e)
	case shard.EventTookOver:
		// The connections stay: sessions at home in other shards lose nothing.
		if s.hubs.TookOver(e.Epoch) {
			r.detachSessions(0, math.MaxUint32)
		}
	case shard.EventProcess:
		if s.Leading() { // members are connected to the leader's instance, and a new leader notifies them again
			s.memberSink.notify(&r.round, e)
		}
	case shard.EventNodeDropped:
		s.hubs.NodeDropped(e.Node)
	case shard.EventTrackDeleted:
		s.hubs.Tracks.Deleted(e.Node, e.Name)
	case shard.EventLimitDeleted:
		s.hubs.Limits.Deleted(e.Node, e.Name)
	case shard.EventBucketsFrozen:
		r.detachSessions(e.First, e.Count)
		s.hubs.BucketsFrozen(e.First, e.Count, e.Total)
	case shard.EventBucketsActive:
		s.hubs.BucketsActive()
		if s.Leading() {
			signal(s.bucketsActive)
		}
	}
}

// originOf returns where an event's command came from; nil: not from this instance.
func originOf(origins []replica.Origin, e *shard.Event) *replica.Origin {
	if e.Command < 0 || e.Command >= len(origins) {
		return nil
	}
	return &origins[e.Command]
}

// reply answers the request at og with the event of its command.
func (r *eventRouter) reply(og *replica.Origin, e *shard.Event) {
	s := r.host
	if og.Conn == 0 {
		return
	}
	c := s.serving.Requests.Client(og.Conn)
	if og.Tag&request.UnloggedNote == 0 {
		r.out.Took(og.Kind, r.appliedAt-time.Duration(og.Tag))
	}
	switch {
	case c == nil:
		s.serving.Metrics.RepliesDropped.Inc()
	case og.Tag&request.UnloggedNote != 0:
		if e.Status != protocol.StatusOK {
			s.unloggedAttachFailed(c, og.Request, e.Status, e.Text)
		}
	case e.Status != protocol.StatusOK:
		r.out.RejectByShard(c, s, og.Kind, og.Request, e.Status, e.Refusal, e.Text)
	case og.Kind == protocol.KindSessionStart || og.Kind == protocol.KindSessionAttach:
		current, _ := s.serving.Requests.Routes().Keys()
		r.ticket = r.ticketSigner.Append(r.ticket[:0], current, e.Session, e.Node, e.Epoch, c.Identity())
		r.out.Reply(c, og.Kind, og.Request, r.replies.sessionBody(s.ID(), e, r.ticket))
	default:
		r.out.Reply(c, og.Kind, og.Request, r.replies.body(og.Kind, e))
	}
}

// notify sends an event to the connection on which a session was bound last.
func (r *eventRouter) notify(id uint64, kind protocol.Kind, m protocol.Message) {
	if c := r.host.serving.Bindings.Conn(id); c != nil {
		c.Append(kind, 0, r.host.ID(), m)
	}
}

// acquireResult sends a result to its session. If the session ended lately, the result goes to the
// connection that it had then, with the reason that the home's log gave: another shard does not
// learn it.
func (r *eventRouter) acquireResult(e *shard.Event) {
	s := r.host
	m := &r.result
	*m = protocol.AcquireResult{Session: e.Session, Seq: e.Seq, Status: e.Status, State: e.State,
		OrderID: e.OrderID, Message: e.Text, Grant: e.Grant}
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

// sessionAttached binds a session to the connection of its request, and takes it from those that
// had it under an older epoch. Without a connection the session was attached through another
// instance, or a connection that is closed; the shard's leader knows the latter by itself.
func (r *eventRouter) sessionAttached(og *replica.Origin, e *shard.Event) {
	s := r.host
	var c *request.Client
	if og != nil {
		c = s.serving.Requests.Client(og.Conn)
	}
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

// sessionEnded takes a session from all its connections.
func (r *eventRouter) sessionEnded(e *shard.Event) {
	s := r.host
	if s.Leading() {
		s.serving.Metrics.SessionEnded(e.Reason)
		if e.Reason == protocol.EndExpired {
			s.serving.expired.add(e.Node, e.Session, e.Ending)
		}
	}
	client := ""
	for _, b := range s.serving.Bindings.End(e.Session, e.Text, s.serving.Clock.Now()) {
		client = b.Conn.Remote()
		r.end = protocol.SessionEnded{Session: e.Session, Reason: e.Reason, Message: e.Text}
		b.Conn.Append(protocol.KindSessionEnded, 0, s.ID(), &r.end)
	}
	if s.Leading() && s.serving.Log.Enabled(context.Background(), slog.LevelDebug) {
		path, _ := s.serving.Requests.Routes().NodePath(e.Node)
		s.serving.Log.Debug("session ended", "session", e.Session, "node", path, "shard", s.ID(), "reason",
			metrics.EndReasons[e.Reason], "text", e.Text, "client", client)
	}
}

// detachSessions takes the sessions at home in a run of buckets from the connections that attached
// them here. It notifies the clients, which attach the sessions again where the map sends them. The
// rest of what those connections have stays. Clients go on holding until the time of their last
// renewal is over. The event is in the connection's buffer before any later pong, so no such pong
// renews an old attach.
func (r *eventRouter) detachSessions(first, count uint32) {
	r.host.serving.Requests.EachClient(func(c *request.Client) { c.Detach(r.host, first, count) })
}

// forced writes holds to the audit log that were taken from a client by force, and those that ended
// at their bounds. The leader's instance does; of events that were applied while nobody led only
// the operator's request has a line.
func (r *eventRouter) forced(index uint64, e *shard.Event) {
	s := r.host
	if !s.Leading() {
		return
	}
	path, _ := s.serving.Requests.Routes().NodePath(e.Node)
	fields := []any{"node", path, "session", e.Session}
	line := audit.Event{Title: "session_killed", Message: "a session was ended by an operator", Severity: audit.High}
	if e.Kind == shard.EventLeaseLost {
		line.Title, line.Message = "lease_taken", "a lease was taken away while its session lives"
		if e.Cause != 0 {
			line = audit.Event{Title: "lease_ended", Message: "a lease ended at its bound while its session lives",
				Severity: audit.Medium}
		}
		fields = append(fields, "semaphore", string(e.Name), "token", e.OrderID)
	}
	line.Fields = audit.Fields(append(fields, "why", e.Text, "shard", strconv.FormatUint(s.ID(), 10), "index",
		index)...)
	s.serving.Audit(line)
}
