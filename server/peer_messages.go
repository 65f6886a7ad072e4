package server

import (
	"context"
)

// inboxSize bounds what waits for one shard's leader. Messages beyond it are dropped: their senders ask again.
const inboxSize = 1024

// peerMessages carries messages between the leaders of shards, as bytes, and implements replica.MessageSender. What is for a shard that is led here goes to its inbox; the rest goes
// to the instance that leads it, if there is another instance.
//
// Each shard here has a mailbox and a goroutine that empties it: a receiver that is busy delays no other.
type peerMessages struct{ s *Server }

type peerMessage struct {
	from  uint64
	bytes []byte
}

// Send implements replica.MessageSender.
func (m peerMessages) Send(to, from uint64, msg []byte) {
	d := m.s.shards.get(to)
	if d == nil || d.ledElsewhere() {
		m.s.member.Send(to, from, msg)
		return
	}
	m.receive(d, from, msg)
}

// receive puts a message for the leader of a shard here into its mailbox. A replica that does not lead drops it.
func (m peerMessages) receive(d *shardHost, from uint64, msg []byte) {
	if d == nil {
		m.s.droppedMessages.Add(1)
		return
	}
	select {
	case d.inbox <- peerMessage{from, msg}:
	default:
		m.s.droppedMessages.Add(1)
	}
}

// receiveMessages hands the replica its messages until ctx ends.
func (d *shardHost) receiveMessages(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-d.inbox:
			d.raft.ReceiveMessage(m.from, m.bytes)
		}
	}
}
