package core

import "github.com/signalbox-dev/signalbox/protocol"

// present shows the session's ticket on a connection that it is not attached on, once per attach.
// It does not wait for the answer: later requests on the connection are accepted after it, or
// rejected and sent again.
func (s *Session) present(e *Engine, c *Conn) {
	if c.presented[s] >= s.attachment.epoch {
		return
	}
	put(&c.presented, s, s.attachment.epoch)
	p := &present{msg: protocol.PresentTicket{Ticket: s.attachment.ticket, Description: s.Description}, s: s,
		att: s.attachment}
	p.Request = Request{purpose: purpose{
		kind: protocol.KindPresentTicket, message: &p.msg, op: p, to: toConn(c), once: true,
	}}
	e.send(&p.Request)
}

// present is a ticket that is shown.
type present struct {
	Request
	msg protocol.PresentTicket
	s   *Session
	att *attachment
}

func (p *present) turn(*Engine)                {}
func (p *present) decode([]byte) (bool, error) { return false, nil }
func (p *present) left(*Engine, error)         {}
func (p *present) over(*Engine, error)         {}

// decided: a ticket whose key was replaced is of no use any more. The session is attached again for
// another one. See R5.
func (p *present) decided(e *Engine, err error) {
	if p.state = Over; err == nil {
		return
	}
	delete(p.via.presented, p.s)
	if protocol.StatusOf(err) == protocol.StatusBadSession && !p.att.over {
		p.s.connLost(e)
	}
}

// takeTicketBack tells an instance that is not the session's home, and does not hear of its end
// otherwise, that it need not keep the session and its watches. Nobody waits for the answer.
func (s *Session) takeTicketBack(e *Engine, c *Conn, epoch uint64) {
	sendNotice(e, c, protocol.KindSessionStop, uint64(protocol.SessionBucket(s.ID)),
		&protocol.SessionStop{Session: s.ID, Epoch: epoch})
}

// sendNotice sends what is of use on one connection, and whose answer nobody waits for.
func sendNotice(e *Engine, c *Conn, kind protocol.Kind, arg uint64, m protocol.Message) {
	x := &notice{}
	x.Request = Request{purpose: purpose{kind: kind, message: m, op: x, to: toConn(c), once: true, arg: arg}}
	e.send(&x.Request)
}

// notice is a request that nobody waits for.
type notice struct{ Request }

func (n *notice) turn(*Engine)                {}
func (n *notice) decode([]byte) (bool, error) { return false, nil }
func (n *notice) decided(*Engine, error)      { n.state = Over }
func (n *notice) left(*Engine, error)         { n.state = Over }
func (n *notice) over(*Engine, error)         { n.state = Over }
