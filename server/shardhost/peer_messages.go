package shardhost

// peerMessages carries messages between the leaders of shards. It implements replica.MessageSender.
// A message for a shard that is led here goes to its replica, which queues it. Any other goes to
// the instance that leads the shard, if there is another instance.
//
// A message is in the queue of its receiver when Send returns. There is no other place where it
// could wait: a clock that a test moves is held up by what is queued, see replica.ManualClock.
type peerMessages struct{ h *Hosting }

// Send implements replica.MessageSender.
func (m peerMessages) Send(to, from uint64, msg []byte) {
	d := m.h.Shards.Get(to)
	if d == nil || d.LedElsewhere() {
		m.h.service.Send(to, from, msg)
		return
	}
	m.receive(d, from, msg)
}

// receive gives a message to the leader of a shard here. A replica that does not lead drops it.
func (m peerMessages) receive(d *Shard, from uint64, msg []byte) {
	if d == nil || d.replica.ReceiveMessage(from, msg) {
		m.h.dropped.Add(1)
	}
}
