package server

import (
	"context"
)

// mailboxSize bounds what waits for one shard's leader. Messages beyond it are dropped: their senders ask again.
const mailboxSize = 1024

// mail carries messages between the leaders of shards, as bytes, and implements replica.MessageSender. What is for a shard that is led here goes to its mailbox; the rest goes
// to the instance that leads it, if there is another instance.
//
// Each shard here has a mailbox and a goroutine that empties it: a receiver that is busy delays no other.
type mail struct{ s *Server }

type letter struct {
	from  uint64
	bytes []byte
}

// Send implements replica.MessageSender.
func (m mail) Send(to, from uint64, msg []byte) {
	d := m.s.desks.get(to)
	if d == nil || d.ledElsewhere() {
		m.s.member.Send(to, from, msg)
		return
	}
	m.s.receiveMail(d, from, msg)
}

// receiveMail puts a message for the leader of a shard here into its mailbox. A replica that does not lead drops it.
func (s *Server) receiveMail(d *desk, from uint64, msg []byte) {
	if d == nil {
		s.lostMail.Add(1)
		return
	}
	select {
	case d.mailbox <- letter{from, msg}:
	default:
		s.lostMail.Add(1)
	}
}

// readMail hands the replica its messages until ctx ends.
func (d *desk) readMail(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-d.mailbox:
			d.rep.ReceiveMessage(m.from, m.bytes)
		}
	}
}
