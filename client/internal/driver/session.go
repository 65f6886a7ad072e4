package driver

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/contexts"
	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Session is a session with what its program sees of it.
type Session struct {
	core.Session
	OnState   func(sessionstate.State) // set before the start; nil: nobody is notified
	OnStopped func(error)

	d      *Driver
	ctx    context.Context
	cancel context.CancelCauseFunc

	// Guarded by the driver's mu.
	notices   []func()
	noticing  bool                // a goroutine calls them
	observed  map[*Lease]struct{} // leases whose end somebody is notified of
	processes map[string]ProcessHandler
}

// randomNonce tells this holder of a session from others that have its key.
func randomNonce() uint64 {
	var b [8]byte
	_, _ = crand.Read(b[:])
	return max(1, binary.BigEndian.Uint64(b[:]))
}

// Drop ends the context of a session that was never started.
func (s *Session) Drop(err error) { s.cancel(err) }

// Start starts the session.
func (s *Session) Start(ctx context.Context) core.Result { return s.start(ctx, newStart()) }

// StartAs starts the session by a create id, or attaches again to the session that an earlier start
// with the same id made. A session that has ended is not made again.
func (s *Session) StartAs(ctx context.Context, create [protocol.KeyLen]byte) core.Result {
	return s.start(ctx, &core.Start{Create: create, Again: create})
}

func (s *Session) start(ctx context.Context, x *core.Start) core.Result {
	return s.d.send(ctx, &x.Request, func(now time.Duration) {
		s.d.readClocks(now)
		s.d.engine.StartSession(now, &s.Session, x)
	})
}

func newStart() *core.Start {
	x := new(core.Start)
	_, _ = crand.Read(x.Create[:])
	_, _ = crand.Read(x.Again[:])
	return x
}

// Restore takes a session over from another holder.
func (s *Session) Restore(ctx context.Context, session uint64, x *core.Restore) core.Result {
	return s.d.send(ctx, &x.Request, func(now time.Duration) {
		s.ID = session
		s.d.readClocks(now)
		s.d.engine.RestoreSession(now, &s.Session, x)
	})
}

// Context ends with the session. Its cause is Err. Its own Err looks at the clocks.
func (s *Session) Context() context.Context {
	return &contexts.Checked{Context: s.ctx, Check: func() {
		if err := s.ErrNow(); err != nil {
			s.cancel(err)
		}
	}}
}

// Err is why the session is over, nil while it lives.
func (s *Session) Err() error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return s.Session.Err()
}

// ErrNow is Err by the clocks: a session whose deadline has passed is over, however late the timer.
func (s *Session) ErrNow() error {
	now := s.d.beginStep()
	defer s.d.endStep(now)
	if s.Session.Err() == nil {
		s.d.readClocks(now)
		s.d.engine.State(now, &s.Session)
	}
	return s.Session.Err()
}

// State is the present state, by the clocks.
func (s *Session) State() sessionstate.State {
	now := s.d.beginStep()
	defer s.d.endStep(now)
	s.d.readClocks(now)
	return s.d.engine.State(now, &s.Session)
}

// Held reports whether what the session holds may be relied on now, by the clocks.
func (s *Session) Held() bool {
	now := s.d.beginStep()
	defer s.d.endStep(now)
	s.d.readClocks(now)
	return s.d.engine.Held(now, &s.Session)
}

// Remaining is how long the session may be relied on if it is not renewed again; 0 if it may not.
func (s *Session) Remaining() time.Duration {
	now := s.d.beginStep()
	defer s.d.endStep(now)
	s.d.readClocks(now)
	return s.d.engine.Remaining(now, &s.Session)
}

// InForce is the session timeout in force.
func (s *Session) InForce() time.Duration {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return s.Session.InForce()
}

// Close ends the session, with cause. It waits for the server's answer, until ctx ends, or until the
// session's deadline. Observers of its leases are notified before it returns.
func (s *Session) Close(ctx context.Context, cause error) core.Result {
	w := newWaiter()
	x := &core.Close{Request: core.Request{Waiter: w}}
	now := s.d.beginStep()
	if s.d.closed {
		err := s.Session.Err()
		unknown := errors.Is(err, core.ErrSessionClosed) && !s.Stopped()
		s.d.mu.Unlock()
		if unknown { // it was closed, and the server has not answered that
			return core.Result{Err: core.ErrClosed, Unknown: true}
		}
		return core.Result{}
	}
	var report []func()
	if s.Session.Err() == nil {
		for l := range s.observed {
			ended := l.takeEnded(s)
			report = append(report, func() { ended(cause) })
		}
	}
	s.d.engine.CloseSession(now, &s.Session, cause, x)
	s.d.endStep(now)
	r := s.d.wait(ctx, &x.Request, w)
	callAll(report)
	return r
}

// event is what the engine notifies the session of. after gets what is to be done without the mutex,
// at once; mu is held.
func (s *Session) event(after []func(), v core.Event) []func() {
	d := s.d
	switch v.Kind {
	case core.SessionChanged:
		after = append(after, func() {
			d.cfg.Logger.Debug("session state", "session", v.Session.ID, "state", v.State, "cause", v.Err)
		})
		if f := s.OnState; f != nil {
			s.notify(func() { f(v.State) })
		}
		if v.State == sessionstate.Expired {
			return s.ended(after, v.Err)
		}
	case core.LeaseEnded:
		if l, ok := v.Lease.Owner.(*Lease); ok {
			if f := l.takeEnded(s); f != nil {
				s.notify(func() { f(v.Err) })
			}
			if l.cancel != nil {
				after = append(after, func() { l.cancel(v.Err) })
			}
		}
	case core.LeasePreempted:
		if l, ok := v.Lease.Owner.(*Lease); ok && l.preempted != nil {
			close(l.preempted)
		}
	case core.LeaseEnding:
		if l, ok := v.Lease.Owner.(*Lease); ok && l.ending != nil && !isClosed(l.ending) {
			close(l.ending)
		}
	case core.ReleaseRefused:
		after = append(after, func() {
			d.cfg.Logger.Warn("semaphore stays held until the session ends", "session", v.Session.ID, "error", v.Err)
		})
	}
	return after
}

// ended is the end of the session. mu is held.
func (s *Session) ended(after []func(), err error) []func() {
	for l := range s.observed {
		f := l.takeEnded(s)
		s.notify(func() { f(err) })
	}
	if f := s.OnStopped; f != nil {
		s.notify(func() { f(err) })
	}
	// A take-over is its owner's doing: only who has the key can do it.
	quiet := errors.Is(err, core.ErrSessionClosed) || errors.Is(err, core.ErrClosed) || errors.Is(err, core.ErrTakenOver)
	return append(after, func() {
		if !quiet {
			s.d.cfg.Logger.Warn("session ended", "session", s.ID, "node", s.Path, "cause", err)
		}
		s.cancel(err)
	})
}

// notify calls f in order with the others, from a goroutine that lives as long as there is something
// to call. mu is held.
func (s *Session) notify(f func()) {
	s.notices = append(s.notices, f)
	if !s.noticing && !s.d.waiting {
		s.startNotices()
	}
}

// startNotices starts the goroutine if there is something to call. mu is held.
func (s *Session) startNotices() {
	if s.noticing = len(s.notices) > 0; s.noticing {
		s.d.goroutines.Go(s.callNotices)
	}
}

// callNotices calls the notices. One may end the goroutine, as FailNow of a test does: another
// goroutine goes on then.
func (s *Session) callNotices() {
	defer func() {
		s.d.mu.Lock()
		defer s.d.mu.Unlock()
		s.startNotices()
	}()
	for f := s.nextNotice(); f != nil; f = s.nextNotice() {
		f()
	}
}

// nextNotice takes the next notice, nil if there is none.
func (s *Session) nextNotice() (f func()) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if len(s.notices) == 0 {
		s.notices = nil
		return nil
	}
	f, s.notices = s.notices[0], s.notices[1:]
	return f
}
