package core

import (
	"github.com/signalbox-dev/signalbox/client/internal/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Ready is what the steps since the last Take ask for. Frames to send are in Conn.Out.
type Ready struct {
	Flush []*Conn    // Out has frames; each once
	Dial  []*Conn    // connect; then Connected or Lost
	Close []*Conn    // end it, because of Conn.Err; the engine does not know it any more
	Done  []*Request // their callers are to be woken
	Wake  []Waiter   // whose subscriptions have something to take
	Event []Event    // in order

	Process []ProcessEvent // in order
	Notice  []Notice       // in order
}

// Reset empties r, and keeps its memory.
func (r *Ready) Reset() {
	clear(r.Done)
	clear(r.Wake)
	clear(r.Event)
	clear(r.Process)
	clear(r.Notice)
	*r = Ready{
		Flush: r.Flush[:0], Dial: r.Dial[:0], Close: r.Close[:0], Done: r.Done[:0], Wake: r.Wake[:0], Event: r.Event[:0],
		Process: r.Process[:0], Notice: r.Notice[:0],
	}
}

// ProcessEvent is what the server sends a session as a member of a process. One of the two is set. It
// is the receiver's.
type ProcessEvent struct {
	Session *Session
	Round   *protocol.ProcessRound
	Message *protocol.ProcessMessage
}

// Event is something that the program is notified of.
type Event struct {
	Kind    EventKind
	Session *Session
	Lease   *Lease
	State   sessionstate.State // of the session
	Err     error              // why it ended
}

// EventKind is a kind of event.
type EventKind uint8

const (
	SessionChanged EventKind = iota + 1 // its state is another one
	LeaseEnded                          // it was lost
	LeasePreempted                      // a waiter preempts it: once for each lease
	LeaseEnding                         // it ends by itself soon: once for each bound that it gets
	ReleaseRefused                      // a release that nobody waits for: the units stay held until the session ends
)

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
