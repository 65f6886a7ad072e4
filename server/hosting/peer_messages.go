package hosting

import "context"

// inboxSize bounds the messages that wait for one shard's leader. More are dropped: their senders
// ask again.
const inboxSize = 1024

// peerMessages carries messages between the leaders of shards. It implements replica.MessageSender.
// A message for a shard that is led here goes to its inbox. Any other goes to the instance that
// leads the shard, if there is another instance.
//
// Each shard here has an inbox and a goroutine that empties it: a busy receiver delays no other.
type peerMessages struct{ h *Hosting }

type peerMessage struct {
	from  uint64
	bytes []byte
}

// Send implements replica.MessageSender.
func (m peerMessages) Send(to, from uint64, msg []byte) {
	d := m.h.Shards.Get(to)
	if d == nil || d.LedElsewhere() {
		m.h.service.Send(to, from, msg)
		return
	}
	m.receive(d, from, msg)
}

// receive puts a message for the leader of a shard here into its inbox. A replica that does not
// lead drops it.
func (m peerMessages) receive(d *Shard, from uint64, msg []byte) {
	if d == nil {
		m.h.dropped.Add(1)
		return
	}
	select {
	case d.inbox <- peerMessage{from, msg}:
	default:
		m.h.dropped.Add(1)
	}
}

// receiveMessages hands the replica its messages until ctx ends.
func (d *Shard) receiveMessages(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-d.inbox:
			d.raft.ReceiveMessage(m.from, m.bytes)
		}
	}
}
