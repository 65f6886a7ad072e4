package request

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/transport"
)

// Outbox is how one goroutine answers clients: it counts replies, and holds the buffers of
// encoding. It is used by one goroutine at a time. Its frames are written at the latest after
// Flush.
type Outbox struct {
	server  *Server
	counts  *metrics.Replies
	written int // bytes appended since a caller reset it
	failure protocol.Failure
	direct  transport.DirectWriter
	instant bool // it answers requests as they are read: they take no time worth measuring
}

// NewOutbox makes one for a goroutine that sends much. Close ends it.
func (s *Server) NewOutbox() *Outbox { return &Outbox{server: s, counts: s.cfg.Metrics.NewReplies()} }

// Close ends an outbox of NewOutbox: its counts go on in the sum of all.
func (o *Outbox) Close() { o.server.cfg.Metrics.CloseReplies(o.counts) }

// BorrowOutbox is for goroutines that send now and then. ReturnOutbox flushes it.
func (s *Server) BorrowOutbox() *Outbox { return s.outboxes.Get().(*Outbox) }

// ReturnOutbox gives one back.
func (s *Server) ReturnOutbox(o *Outbox) {
	o.Flush()
	o.failure = protocol.Failure{}
	s.outboxes.Put(o)
}

// Reply answers a request with success.
func (o *Outbox) Reply(c *Client, kind protocol.Kind, id uint64, m protocol.Message) {
	o.counts.Count(kind, protocol.StatusOK)
	if o.instant {
		o.Took(kind, 0)
	}
	c.unanswered.Add(-1)
	o.written += c.Append(kind|protocol.KindReply, id, uint64(protocol.StatusOK), m)
}

// Took measures how long a request took that is answered later than it is read.
func (o *Outbox) Took(kind protocol.Kind, d time.Duration) { o.counts.Took(kind, d) }

// Fail answers a request with a status and a sentence.
func (o *Outbox) Fail(c *Client, kind protocol.Kind, id uint64, status protocol.Status, text string) {
	o.fail(c, kind, id, status, 0, text)
}

func (o *Outbox) fail(c *Client, kind protocol.Kind, id uint64, status protocol.Status, refusal protocol.Refusal,
	text string) {
	o.counts.Count(kind, status)
	if o.instant {
		o.Took(kind, 0)
	}
	c.unanswered.Add(-1)
	if countsAsRejection(status) {
		c.CountRejection()
	}
	if awaitsMap(status) {
		c.awaitsMap.Store(true)
	}
	o.failure.Refusal, o.failure.Message = refusal, text
	o.written += c.Append(kind|protocol.KindReply, id, uint64(status), &o.failure)
}

// countsAsRejection reports whether a rejection counts: a well-behaved client sees few of those.
func countsAsRejection(status protocol.Status) bool {
	switch status {
	case protocol.StatusOverloaded, protocol.StatusBadRequest, protocol.StatusBadSession,
		protocol.StatusSessionExpired, protocol.StatusUnsupported,
		protocol.StatusUnauthenticated, protocol.StatusForbidden:
		return true
	}
	return false
}

// RejectByShard answers a request of a shard with an error. With WRONG_SHARD the reply names the
// shard's leader, as far as it is known here: the client asks there, or, if it is this instance,
// need not look for another leader of it.
func (o *Outbox) RejectByShard(
	c *Client, d Shard, kind protocol.Kind, id uint64, status protocol.Status, refusal protocol.Refusal, text string,
) {
	if status == protocol.StatusWrongShard {
		state := o.server.Routes().State
		master, term := d.LeaderInstance(state)
		o.failure = protocol.Failure{Master: master, Term: term, Shard: d.ID(), MapVersion: state.MapVersion()}
	}
	o.fail(c, kind, id, status, refusal, text)
	o.failure = protocol.Failure{}
}

// rejectElsewhere answers a request for a bucket of another instance's shard, or of another shard
// than the requested one. The reply names the shard that owns the bucket in the map here, and the
// map's version. It names no leader: the client's map does, and Master alone would be taken for the
// leader of the requested shard.
func (o *Outbox) rejectElsewhere(c *Client, h protocol.Header, tier uint8) {
	r := o.server.Routes()
	o.failure = protocol.Failure{Shard: r.owner(tier, h.Arg), MapVersion: r.State.MapVersion()}
	o.Fail(c, h.Kind, h.ID, protocol.StatusWrongShard,
		"the bucket is not served here; ask the shard that owns it, or fetch the map")
	o.failure = protocol.Failure{}
}

// failPending answers that a change is not done yet, and which shard it waits for.
func (o *Outbox) failPending(c *Client, kind protocol.Kind, id uint64, change *pendingChange) {
	o.failure = protocol.Failure{Shard: change.shard}
	o.Fail(c, kind, id, protocol.StatusUnavailable, change.Error())
	o.failure = protocol.Failure{}
}

// FailError answers a request with an error, which carries the status.
func (o *Outbox) FailError(c *Client, kind protocol.Kind, id uint64, err error) {
	e := asError(err)
	o.fail(c, kind, id, e.Status, e.Refusal, e.Message)
}

// Flush has everything written that was sent. It is called once after everything that belongs
// together.
func (o *Outbox) Flush() { o.server.transport.Flush() }

// FlushDirect is Flush for a goroutine that has answered commands requests and may write itself.
func (o *Outbox) FlushDirect(commands int) { o.server.transport.FlushDirect(&o.direct, commands) }
