package core

import "github.com/signalbox-dev/signalbox/protocol"

// Notice is what the engine did, or met, to reach the cluster. Nothing follows from it: it is for
// logs and metrics. There is none unless Engine.Noticing.
type Notice struct {
	Kind     NoticeKind
	Instance uint64 // 0: none is known
	Address  string // of a connection that is made
	Session  uint64 // its id; 0: none
	Node     string // path, of the session's node
	Shard    uint64 // 0: none is known
	Request  protocol.Kind
	Err      error // why
}

// NoticeKind is a kind of notice. Each says what else it has.
type NoticeKind uint8

const (
	ConnMade        NoticeKind = iota + 1 // Instance, Address
	ConnFailed                            // Err; Instance, if it was one that was wanted
	ConnLost                              // Instance, Err
	SessionAttached                       // Session, Node, Instance; Shard: its home
	SessionDetached                       // Session, Node
	SessionOver                           // Session, Node, Err
	RequestRetried                        // Request, Err; Instance, Session, Shard: where it was sent
)

// note adds a notice to those of the step.
func (e *Engine) note(n Notice) {
	if e.Noticing {
		e.ready.Notice = append(e.ready.Notice, n)
	}
}

// noteSession adds a notice of a session.
func (e *Engine) noteSession(kind NoticeKind, s *Session) {
	if !e.Noticing {
		return
	}
	n := Notice{Kind: kind, Session: s.ID, Node: s.Path, Err: s.err}
	if a := s.attachment; a != nil && kind == SessionAttached {
		n.Instance, n.Shard = a.conn.instance, a.shard
	}
	e.note(n)
}

// noteRetry: a request is to be sent again, because of err. instance is where it was sent, or was to
// be.
func (e *Engine) noteRetry(r *Request, instance uint64, err error) {
	if !e.Noticing {
		return
	}
	n := Notice{Kind: RequestRetried, Instance: instance, Shard: r.shard, Request: r.kind, Err: err}
	if r.session != nil {
		n.Session, n.Node = r.session.ID, r.session.Path
	}
	e.note(n)
}
