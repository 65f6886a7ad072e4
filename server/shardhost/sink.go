package shardhost

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Applied implements replica.Sink: it routes the events of an entry and has the hubs send what the
// entry changed. It appends each frame to what waits for its connection, and
// wakes the transports at the end; with many connections they wake earlier. It runs on the shard's
// apply goroutine while the log waits, so it allocates next to nothing and never blocks.
func (s *Shard) Applied(rep *replica.Shard, index uint64, origins []replica.Origin, ev *shard.Events) {
	defer s.flushReplies(len(origins))
	defer s.serving.Requests.Guard("deliver", func() { s.deliveryFailed(origins) })
	now := rep.AppliedAt()
	if len(origins) > 0 {
		s.events.appliedAt = now
		began := time.Duration(origins[0].Tag &^ request.UnloggedNote)
		s.serving.Metrics.Batch(len(origins), began, now)
		if began != 0 {
			s.serving.Rates.Changes.Add(now-began, len(origins))
		}
	}
	for i := range ev.List {
		s.events.route(index, origins, &ev.List[i])
	}
	s.hubs.Changed(rep, index, ev)
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
		s.events.out.FlushDirect(commands)
	} else {
		s.events.out.Flush()
	}
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

// LogTime implements delivery.Leader.
func (s *Shard) LogTime() uint64 { return s.Replica().LogTime() }

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
