package replica

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// Submit queues a command for the next batch and wakes the proposer. It copies the body and never
// blocks. StatusOK: the outcome will come through the sink. StatusUnavailable: this replica does
// not lead. StatusOverloaded: too many bytes wait already.
func (s *Shard) Submit(c shard.Command, o Origin) protocol.Status {
	status, wake := s.submit(c, o)
	if wake {
		s.proposals.Wake()
	}
	return status
}

// Submitter submits many commands, to any shards, from one goroutine: an event loop submits the
// commands it has read, and then calls Flush. The commands of a shard share a batch, and an idle
// shard proposes without a switch of goroutines. The zero value is ready. It is not safe for
// concurrent use.
type Submitter struct {
	unproposed []*Shard // shards whose proposer this goroutine must start
}

// Submit is [Shard.Submit], except that the command may wait for the next Flush.
func (b *Submitter) Submit(s *Shard, c shard.Command, o Origin) protocol.Status {
	status, wake := s.submit(c, o)
	if wake {
		b.unproposed = append(b.unproposed, s)
	}
	return status
}

// Flush proposes the submitted commands, as far as their shards have room. It does not block. The
// batches count as proposed at now, a time of the host's clock that is a moment old at most.
func (b *Submitter) Flush(now time.Duration) {
	for i, s := range b.unproposed {
		b.unproposed[i] = nil
		s.proposer.proposeNow(now)
	}
	b.unproposed = b.unproposed[:0]
}

// submit is [proposal.Queue.Submit], counted.
func (s *Shard) submit(c shard.Command, o Origin) (status protocol.Status, wake bool) {
	status, wake = s.proposals.Submit(c, o)
	if status == protocol.StatusOverloaded {
		s.counters.overloaded.Add(1)
	}
	return status, wake
}

// SubmitMember queues a member's message. StatusOK: [MemberSink.MemberReply], or [Sink.Failed],
// will answer it. Any other status is the answer.
func (s *Shard) SubmitMember(m MemberMessage) protocol.Status {
	if s.cfg.Relay == nil {
		return protocol.StatusUnavailable
	}
	return s.members.Submit(m)
}

// Ping asks for a [Sink.Pong] behind a barrier that begins after this call. A newer ping of the
// connection replaces a waiting one.
func (s *Shard) Ping(conn, ping uint64) {
	s.tasks.Ping(conn, ping)
}

// ConnClosed reports a closed connection, its last receive by the host's clock, and who closed it.
// [ShardConfig.Heard] must not know the connection any more.
func (s *Shard) ConnClosed(conn uint64, lastHeard time.Duration, link protocol.Link) {
	s.tasks.ConnClosed(conn, lastHeard, link)
}

// RouteChanged must be called when [ShardConfig.Route] may answer differently.
func (s *Shard) RouteChanged() { s.tasks.RouteChanged() }

// ReceiveMessage takes a message of another shard's leader, keeps the slice, and does not wait. It
// drops the message if too many wait or this replica does not lead. Over says that it was dropped
// over a limit.
func (s *Shard) ReceiveMessage(from uint64, msg []byte) (over bool) {
	added, over := s.tasks.Receive(from, msg)
	if !added {
		s.counters.messagesDropped.Add(1)
	}
	return over
}
