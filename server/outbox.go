package server

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/transport"
)

// outbox is how one goroutine answers clients: it counts replies, and holds the buffers of encoding. It is used by one goroutine at a time. What it sends is
// written at the latest after flush.
type outbox struct {
	server  *Server
	counts  *metrics.Replies
	written int // bytes appended, by whoever cares to reset it
	failure protocol.Failure
	direct  transport.DirectWriter
}

func (s *Server) newOutbox() *outbox { return &outbox{server: s, counts: s.metrics.NewReplies()} }

// borrowOutbox and returnOutbox are for goroutines that send now and then. Returning flushes.
func (s *Server) borrowOutbox() *outbox { return s.outboxes.Get().(*outbox) }

func (s *Server) returnOutbox(o *outbox) {
	o.flush()
	o.failure = protocol.Failure{}
	s.outboxes.Put(o)
}

// reply answers a request with success.
func (o *outbox) reply(c *conn, kind protocol.Kind, id uint64, m protocol.Message) {
	o.counts.Count(kind, protocol.StatusOK)
	c.unanswered.Add(-1)
	o.written += c.Append(kind|protocol.KindReply, id, uint64(protocol.StatusOK), m)
}

// fail answers a request with a status and a sentence.
func (o *outbox) fail(c *conn, kind protocol.Kind, id uint64, status protocol.Status, text string) {
	o.counts.Count(kind, status)
	c.unanswered.Add(-1)
	if countsAsRejection(status) {
		c.CountRejection()
	}
	o.failure.Message = text
	o.written += c.Append(kind|protocol.KindReply, id, uint64(status), &o.failure)
}

// countsAsRejection says which rejections count: those that a well-behaved client sees few of.
func countsAsRejection(status protocol.Status) bool {
	switch status {
	case protocol.StatusOverloaded, protocol.StatusBadRequest, protocol.StatusBadSession, protocol.StatusSessionExpired, protocol.StatusUnsupported,
		protocol.StatusUnauthenticated, protocol.StatusForbidden:
		return true
	}
	return false
}

// rejectByShard answers a request of a shard with an error. With WRONG_SHARD the client is told who leads
// the shard, as far as is known here: that is where to ask, or, if it is this instance, there is no
// use in looking for another leader of it.
func (o *outbox) rejectByShard(c *conn, d *shardHost, kind protocol.Kind, id uint64, status protocol.Status, text string) {
	if status == protocol.StatusWrongShard {
		o.failure.Master, o.failure.Term = d.LeaderInstance()
		defer func() { o.failure.Master, o.failure.Term = 0, 0 }()
	}
	o.fail(c, kind, id, status, text)
}

// failError answers a request with an error, which carries the status.
func (o *outbox) failError(c *conn, kind protocol.Kind, id uint64, err error) {
	status, text := statusText(err)
	o.fail(c, kind, id, status, text)
}

// event sends something nobody asked for.
func (o *outbox) event(c *transport.Conn, kind protocol.Kind, id, arg uint64, m protocol.Message) {
	o.written += c.Append(kind, id, arg, m)
}

// flush has everything written that was sent. It is called once after everything that belongs together.
func (o *outbox) flush() { o.server.transport.Flush() }

// flushDirect is flush for a goroutine that may spend the time of a few writes itself.
func (o *outbox) flushDirect() { o.server.transport.FlushDirect(&o.direct) }
