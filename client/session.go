package client

import (
	"context"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/client/internal/sessionstate"
)

// State is the state of a session.
type State = sessionstate.State

const (
	// Attached: the session has a connection to its home shard.
	Attached State = sessionstate.Attached
	// Detached: the connection is lost, or the home shard does not renew the session. What it holds
	// is held until the deadline, and calls wait.
	Detached State = sessionstate.Detached
	// Expired: the session is over for good.
	Expired State = sessionstate.Expired
)

// Session is a client's identity at the server. What it acquires belongs to it and is released when
// the session ends. Any number of goroutines may use a session, and a connection carries hundreds
// of thousands of them. Give independent parts of a program sessions of their own.
//
// When its connection is lost, a session is attached again by itself. Waiting calls are sent again
// and take effect once. A session that is not renewed for 0.85 of its timeout is Expired for good,
// before the server can grant what it held to another session. It never comes back under the same
// handle.
type Session struct {
	c          *Client
	node       Node
	d          *driver.Session
	generation uint32 // how often it was restored
}

// Session starts a session on a coordination node. ctx bounds the start only. Errors: ErrBadRequest
// for an option that is out of range, ErrNotFound for the node, ErrForbidden.
func (c *Client) Session(ctx context.Context, nodePath string, opts ...SessionOption) (*Session, error) {
	o, err := sessionOptionsOf(opts)
	if err != nil {
		return nil, err
	}
	s := c.newSession(nodePath, o)
	if r := s.d.Start(ctx); r.Err != nil {
		err := withOp("start session on", nodePath, driver.Err(r))
		s.d.Drop(err)
		return nil, err
	}
	s.started()
	return s, nil
}

// started takes over the properties of the node from the server's answer.
func (s *Session) started() {
	h := &s.node.h
	h.ID, h.Tier, h.Relaxed, h.Grace = s.d.Session.Node, s.d.Tier, s.d.Relaxed, s.d.Grace
}

// newSession is a session with a key of its own, which is not started yet.
func (c *Client) newSession(nodePath string, o sessionOptions) *Session {
	s := &Session{c: c, node: Node{c, handle.Node{Driver: c.d, Path: nodePath}}, d: c.d.NewSession()}
	s.d.Path, s.d.Timeout, s.d.KeepAlive, s.d.Description, s.d.Parent = nodePath, o.timeout, o.keepAlive, o.description,
		c.cfg.Parent
	s.d.OnState, s.d.OnStopped = o.onState, o.onStopped
	return s
}

// newSessionOn is newSession on a node that is known.
func (c *Client) newSessionOn(n *Node, o sessionOptions) *Session {
	s := c.newSession(n.h.Path, o)
	s.node = *n
	s.d.Session.Node, s.d.Tier, s.d.Relaxed, s.d.Grace = n.h.ID, n.h.Tier, n.h.Relaxed, n.h.Grace
	return s
}

// Supervise runs a service that outlives its sessions. It starts a session on a node and calls
// serve with it; when the session expires, it starts another session and calls serve again. Each
// time, serve acquires and registers what the service needs, works until its context ends, and
// returns.
//
//	err := c.Supervise(ctx, "/billing", func(ctx context.Context, s *client.Session) error {
//		if _, err := s.Service("api").Register(ctx, address); err != nil {
//			return err
//		}
//		<-ctx.Done()
//		return nil
//	})
//
// The context of serve ends with ctx, and with the session, whose end is then its cause. Its Err reads
// the clock, as Held does; Done, and contexts derived from it, end with a timer. Only serve
// acquires anything, and the next session starts after serve has returned, so no work under a lost
// lease goes on. Each expiry is logged as a warning and reported to OnStopped, which may be among
// the options. The pause before the next session is random, up to 100 ms; the bound doubles up to
// 10 s while sessions expire before their timeout has passed.
//
// When serve has returned, Supervise closes the session. It waits up to 2 s for that, even if ctx
// has ended, so that what the service held is free. Then it returns
//   - serve's result if the session lives: nil ends the work, an error is not retried;
//   - ctx's error;
//   - ErrTakenOver, ErrClientClosed, or the refusal of a session, such as ErrNotFound.
func (c *Client) Supervise(
	ctx context.Context, node string, serve func(ctx context.Context, s *Session) error, opts ...SessionOption,
) error {
	return supervise(ctx, c, node, serve, opts)
}

// ID is unique in the cluster and never reused.
func (s *Session) ID() uint64 { return s.d.ID }

// Client is the session's client.
func (s *Session) Client() *Client { return s.c }

// Node is the coordination node of the session.
func (s *Session) Node() *Node { return &s.node }

// Timeout is the session timeout in force.
func (s *Session) Timeout() time.Duration { return s.d.InForce() }

// Save returns what Client.Restore needs. It is the same as long as this Session lives, and good for
// one restore: the process that restored the session saves again. See Restore for when.
func (s *Session) Save() Saved {
	return Saved{Node: s.node.h.Path, Session: s.d.ID, Key: slices.Clone(s.d.Key[:]), Generation: s.generation,
		Version: SavedVersion}
}

// State is the present state, by the clock.
func (s *Session) State() State { return s.d.State() }

// Held reports whether what the session holds may be relied on now. It reads the clock, so late
// timers do not make it wrong.
func (s *Session) Held() bool { return s.d.Held() }

// Remaining is how long the session may be relied on if it is not renewed again; 0 if it may not.
func (s *Session) Remaining() time.Duration { return s.d.Remaining() }

// Context ends when the session is over for good. Its cause is Err. Err of the context reads the
// clock; Done, and contexts derived from it, end with a timer.
func (s *Session) Context() context.Context { return s.d.Context() }

// Err is nil while the session lives. After that it is ErrSessionExpired, ErrNotRenewed,
// ErrTakenOver, ErrSessionClosed or ErrClientClosed, by errors.Is. One that the holder did not ask
// for is a *Loss.
func (s *Session) Err() error {
	if s.d == nil {
		return nil // the zero Session has not begun
	}
	return s.d.Err()
}

// Close ends the session. Its leases end at once, and the server releases what they held. Close
// waits for the server's answer, for the end of ctx, or for the session's deadline
// (ErrUnreachable). It then keeps sending the stop in the background while the client is open;
// otherwise the server ends the session when its timeout passes. Closing a session that is already
// over succeeds, unless the client is closed and the stop was never answered: ErrClientClosed.
func (s *Session) Close(ctx context.Context) error {
	return closeError(s.d.Close(ctx, ErrSessionClosed))
}
