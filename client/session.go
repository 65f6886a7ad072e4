package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/client/internal/rpc"
	"github.com/signalbox-dev/signalbox/client/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
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
	c                *Client
	node             Node
	id               uint64
	key              [protocol.KeyLen]byte
	opts             sessionOptions
	requestedTimeout time.Duration // the timeout that is asked for
	generation       uint32        // how often it was restored
	nonce            uint64        // of this holder of the session

	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc
	// stopped is closed when nothing is left to do: the server knows that the session is over, or
	// it said so itself.
	stopped chan struct{}

	ended atomic.Bool // err is set: nothing is sent any more

	mu              sync.Mutex
	m               *sessionstate.Machine
	jumped          time.Duration // clockJumps, as far as m knows
	startedAhead    time.Duration // wallAhead when the start was sent
	err             error         // why it is over
	attachment      *attachment   // nil: not attached to any connection
	attached        chan struct{} // closed when attachment is set
	epoch           uint64        // highest attach epoch asked for
	attachErr       error         // why the last attach failed
	closeBy         time.Duration // until when a Close waits: the deadline when the first one began; 0: none did
	timer           *time.Timer
	seqs            core.Numbers
	nameLocks       nameLockSet
	processHandlers map[string]rpc.ProcessHandler // by process
	waitingAcquires map[uint64]*acquireOp         // by number: those that wait in a queue at the server
	notices         []func()                      // callbacks still to be called
	noticing        bool
	confirms        map[uint64]*confirmQueue // by shard: leases to be confirmed

	lowPriority  bool          // the next attach may wait a little: see delayAttach
	attachWanted chan struct{} // capacity 1: a call waits for the session to be attached
}

// attachment binds the session to one connection. It is never changed.
type attachment struct {
	cn      *conn
	shard   uint64 // home
	epoch   uint64
	ticket  []byte
	renewal *renewal
	pinged  uint64        // id of the last ping on cn before it
	gone    chan struct{} // closed when it is not the session's any more; guarded by session.mu for closing
	over    atomic.Bool   // gone is closed
}

// Session starts a session on a coordination node. ctx bounds the start only. Errors: BadRequest
// for an option that is out of range, NotFound for the node, Forbidden.
func (c *Client) Session(ctx context.Context, nodePath string, opts ...SessionOption) (*Session, error) {
	o, err := sessionOptionsOf(opts)
	if err != nil {
		return nil, err
	}
	s := c.newSessionAt(nodePath, o)
	if err := s.startAtPath(ctx, nil); err != nil {
		s.cancel(err)
		return nil, withOp("start session on", nodePath, err)
	}
	return s, nil
}

// newSessionAt is a session with a key of its own, on a node that is not known but for its path.
func (c *Client) newSessionAt(nodePath string, o sessionOptions) *Session {
	s := newSession(&Node{c: c, path: nodePath}, o)
	randomKey(s.key[:])
	return s
}

func startSession(ctx context.Context, n *Node, key []byte, o sessionOptions) (*Session, error) {
	s := newSession(n, o)
	copy(s.key[:], key)
	if err := s.start(ctx, nil); err != nil {
		s.cancel(err)
		return nil, withOp("start session on", n.path, err)
	}
	return s, nil
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
// The context of serve ends with ctx, and with the session, whose end is then its cause. Only serve
// acquires anything, and the next session starts after serve has returned, so no work under a lost
// lease goes on. Each expiry is logged as a warning and reported to OnStopped, which may be among
// the options. The pause before the next session is random, up to 100 ms; the bound doubles up to
// 10 s while sessions expire before their timeout has passed.
//
// When serve has returned, Supervise closes the session. It waits up to 2 s for that, even if ctx
// has ended, so that what the service held is free. Then it returns
//   - serve's result if the session lives: nil ends the work, an error is not retried;
//   - ctx's error;
//   - ErrTakenOver, ErrClientClosed, or the refusal of a session, such as NotFound.
func (c *Client) Supervise(
	ctx context.Context, node string, serve func(ctx context.Context, s *Session) error, opts ...SessionOption,
) error {
	return supervise(ctx, c, node, serve, opts)
}

// Slots is the slots with this name on a coordination node, with the options of their sessions.
// Acquire them with CreateLimit, or create the semaphore before.
func (c *Client) Slots(nodePath, name string, opts ...SessionOption) *Slots {
	return &Slots{c: c, node: nodePath, name: name, opts: opts}
}

func newSession(n *Node, o sessionOptions) *Session {
	s := &Session{
		c: n.c, node: *n, opts: o, nonce: randomNonce(),
		requestedTimeout: sessionstate.Enlarge(o.timeout, n.grace), stopped: make(chan struct{}),
		attached: make(chan struct{}), attachWanted: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.seqs.Reset(1)
	return s
}

// ID is unique in the cluster and never reused.
func (s *Session) ID() uint64 { return s.id }

// Client is the session's client.
func (s *Session) Client() *Client { return s.c }

// Node is the coordination node of the session.
func (s *Session) Node() *Node { return &s.node }

// Timeout is the session timeout in force.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.Timeout()
}

// Save returns what Client.Restore needs. It is the same as long as this Session lives, and good
// for one restore: the process that restored the session saves again. See Restore for when.
func (s *Session) Save() Saved {
	return Saved{Node: s.node.path, Session: s.id, Key: slices.Clone(s.key[:]), Generation: s.generation}
}

// State is the present state, by the clock.
func (s *Session) State() State {
	s.c.checkClocks()
	s.step((*sessionstate.Machine).Tick)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.State()
}

// Held says whether what the session holds may be relied on now. It reads the clock, so late timers
// do not make it wrong.
func (s *Session) Held() bool {
	s.c.checkClocks()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heldLocked()
}

func (s *Session) heldLocked() bool {
	return s.heldAt(s.c.clock.now())
}

func (s *Session) heldAt(now time.Duration) bool {
	s.catchUp()
	return s.m.Held(now)
}

// Remaining is how long the session may be relied on if it is not renewed again; 0 if it may not.
func (s *Session) Remaining() time.Duration {
	s.c.checkClocks()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.c.clock.now()
	s.catchUp()
	if !s.m.Held(now) {
		return 0
	}
	return s.m.Deadline() - now
}

// Done is closed when the session is over for good.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Context ends with the session. Its cause is Err.
func (s *Session) Context() context.Context { return s.ctx }

// Err is nil while the session lives. After that it is ErrSessionExpired, ErrNotRenewed,
// ErrTakenOver, ErrSessionClosed or ErrClientClosed, by errors.Is. One that is ErrNotRenewed says
// why the session could not be attached again.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session. Its leases end at once, and the server releases what they held. Close
// waits for the server's answer, for the end of ctx, or for the session's deadline
// (ErrUnreachable). It then keeps sending the stop in the background while the client is open;
// otherwise the server ends the session when its timeout passes. Closing a session that is already
// over succeeds.
func (s *Session) Close(ctx context.Context) error { return s.closeAs(ctx, ErrSessionClosed) }

// closeAs is Close. cause, an ErrSessionClosed, is what the session and its leases end with.
func (s *Session) closeAs(ctx context.Context, cause error) error {
	remaining := s.Remaining()
	s.mu.Lock()
	if s.closeBy == 0 && s.err == nil {
		s.closeBy = s.c.clock.now() + remaining
	}
	s.mu.Unlock()
	defer closeHolds(s, cause)()
	releaseAll(ctx, s, cause)
	s.step(func(m *sessionstate.Machine, _ time.Duration) { s.end(sessionstate.Closed, cause) })
	if err := s.awaitStop(ctx); err != nil {
		return fmt.Errorf("close session: %w", err)
	}
	return nil
}

// awaitStop waits until the server knows that the session was closed, until ctx ends, or until the
// deadline that the session had when it was closed. It returns nil if the session was over before.
func (s *Session) awaitStop(ctx context.Context) error {
	s.mu.Lock()
	late := time.NewTimer(max(0, s.closeBy-s.c.clock.now()))
	s.mu.Unlock()
	defer late.Stop()
	var err error
	select {
	case <-s.stopped:
	case <-ctx.Done():
		err = interrupted(ctx, errors.New("stop not answered yet"))
	case <-late.C:
		if errors.Is(s.Err(), ErrSessionClosed) { // else it was over before
			err = fmt.Errorf("%w: the stop was not answered before the session's deadline; the server ends it by itself", ErrUnreachable)
		}
	}
	if s.isStopped() {
		return nil
	}
	return err
}

func (s *Session) isStopped() bool {
	select {
	case <-s.stopped:
		return true
	default:
		return false
	}
}

func (s *Session) step(input func(m *sessionstate.Machine, now time.Duration)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stepLocked(input)
}

func (s *Session) stepLocked(input func(m *sessionstate.Machine, now time.Duration)) {
	if s.m == nil {
		return // not started
	}
	now := s.c.clock.now()
	s.catchUp()
	input(s.m, now)
	s.act(now)
}

// catchUp processes what others note for the session without its lock: the home shard's latest
// answer on the connection, and jumps of the wall clock. What a jump asks for is done by the next
// act, which the watchdog sees to. mu is held.
func (s *Session) catchUp() {
	if s.attachment != nil {
		s.m.Renewed(time.Duration(s.attachment.renewal.at.Load()))
	}
	jumped, noticed := s.c.clockJumps()
	if jumped-s.jumped > s.m.Timeout()/2 {
		after := s.c.clock.now() // read after the jump: what was sent before it proves nothing
		if att := s.attachment; att != nil {
			after = cmp.Or(att.cn.pingedFor(att, noticed), after)
		}
		s.m.ClockJumped(after)
	}
	s.jumped = jumped
}

// end is the input that the session is over. mu is held.
func (s *Session) end(cause sessionstate.Cause, err error) {
	if s.m.State() != Expired {
		s.err = err
	}
	s.m.Ended(cause)
}

// act does what the machine asks for. mu is held.
func (s *Session) act(now time.Duration) {
	r := s.m.Take()
	if r.Changed {
		s.changed(r)
	}
	if r.Ping && s.attachment != nil {
		s.attachment.cn.pingFor(s.attachment, r.PingSince)
	}
	if r.Attach {
		s.c.run(s.reattach)
	}
	if r.Stop {
		last := s.attachment
		s.detach()
		if !s.c.run(func() { s.stopAtServer(last) }) {
			s.markStopped()
		}
	} else if r.Changed && r.State == Expired {
		s.detach()
		s.markStopped()
	}
	if at, ok := s.m.Next(); ok {
		s.timer.Reset(max(at-now, 0))
	} else {
		s.timer.Stop()
	}
}

// changed notifies the user, and ends what ends with the session. mu is held.
func (s *Session) changed(r sessionstate.Ready) {
	s.c.cfg.Logger.Debug("session state", "session", s.id, "state", r.State, "cause", r.Cause)
	if f := s.opts.onState; f != nil {
		s.notify(func() { f(r.State) })
	}
	if r.State != Expired {
		return
	}
	if s.err == nil {
		s.err = s.notRenewed()
	}
	// A take-over is its owner's doing: only who has the key can do it. The line above has it.
	if !errors.Is(s.err, ErrSessionClosed) && !errors.Is(s.err, ErrClientClosed) && !errors.Is(s.err, ErrTakenOver) {
		s.c.cfg.Logger.Warn("session ended", "session", s.id, "node", s.node.path, "cause", s.err)
	}
	s.cancel(s.err)
	s.ended.Store(true)
	reportHolds(s, s.err)
	s.c.failSessionCalls(s)
	if f := s.opts.onStopped; f != nil {
		err := s.err
		s.notify(func() { f(err) })
	}
}

// notRenewed is ErrNotRenewed, with why the session could not be attached. mu is held.
func (s *Session) notRenewed() error {
	why := cmp.Or(s.c.state.lastRefusal(), s.attachErr)
	if why == nil {
		return ErrNotRenewed
	}
	return &notRenewed{why}
}

// notify calls f in order with the others, from a goroutine that lives as long as there is
// something to call. mu is held.
func (s *Session) notify(f func()) {
	s.notices = append(s.notices, f)
	if s.noticing {
		return
	}
	s.noticing = true
	go func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for len(s.notices) > 0 {
			f := s.notices[0]
			s.notices = s.notices[1:]
			s.mu.Unlock()
			f()
			s.mu.Lock()
		}
		s.notices, s.noticing = nil, false
	}()
}

// markStopped is called once, when nothing is left to do for a session that is over. mu is held.
func (s *Session) markStopped() {
	if !s.isStopped() {
		close(s.stopped)
		s.c.forget(s)
	}
}

// closeWithoutRelease ends the session without notifying the server.
func (s *Session) closeWithoutRelease() {
	s.step(func(m *sessionstate.Machine, _ time.Duration) {
		s.end(sessionstate.EndedByServer, ErrClientClosed)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.markStopped()
}
