package driver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/contexts"
	"github.com/signalbox-dev/signalbox/client/internal/core"
)

// Lease is a lease with what its program sees of it. Its maker hands it in with the acquire.
type Lease struct {
	core.Lease

	// Guarded by the driver's mu.
	ctx       context.Context // made when it is asked for
	cancel    context.CancelCauseFunc
	ended     func(error)   // is called once, with why the lease ended; nil: it is over, or nobody observes it
	preempted chan struct{} // closed when a waiter preempts the lease; made when it is asked for
	ending    chan struct{} // closed when the lease ends by itself soon; made when it is asked for
}

func (l *Lease) session() *Session { return l.Session.Owner.(*Session) }

// Context ends with the lease, whose end is its cause. Its Err looks at the clocks.
func (l *Lease) Context() context.Context {
	return &contexts.Checked{Context: l.context(), Check: func() {
		if lost := l.Lost(); lost != nil {
			l.cancel(lost)
		}
	}}
}

func (l *Lease) context() context.Context {
	s := l.session()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(s.ctx)
		if over := l.Over(); over != nil {
			l.cancel(over)
		}
	}
	return l.ctx
}

// Preempted is closed once a waiter preempts the lease.
func (l *Lease) Preempted() <-chan struct{} {
	s := l.session()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if l.preempted == nil {
		l.preempted = make(chan struct{})
		if notified, _ := l.Lease.Preempted(); notified {
			close(l.preempted)
		}
	}
	return l.preempted
}

// PreemptedBy is the session that preempts the lease, 0 if none does or it is not known.
func (l *Lease) PreemptedBy() uint64 {
	s := l.session()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	_, by := l.Lease.Preempted()
	return by
}

// Ending is closed when the lease ends by itself soon. Once it is closed and the lease has another
// bound, there is another one.
func (l *Lease) Ending() <-chan struct{} {
	s := l.session()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	ending := l.Lease.Ending()
	if l.ending == nil || !ending && isClosed(l.ending) {
		l.ending = make(chan struct{})
		if ending {
			close(l.ending)
		}
	}
	return l.ending
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Ends is how long it takes until the lease ends by itself, and how long after that work that depends
// on it may take to stop; false: it does not end by itself.
func (l *Lease) Ends() (in, toStop time.Duration, ok bool) {
	s := l.session()
	now := s.d.beginStep()
	defer s.d.mu.Unlock()
	return l.EndsAt(s.d.engine, now)
}

// Held reports whether the lease may be relied on now, by the clocks.
func (l *Lease) Held() bool {
	s := l.session()
	now := s.d.beginStep()
	defer s.d.endStep(now)
	s.d.readClocks(now)
	return l.HeldAt(s.d.engine, now)
}

// Lost is why the lease was lost, by the clocks; nil if it is held, or was released.
func (l *Lease) Lost() error {
	s := l.session()
	now := s.d.beginStep()
	defer s.d.endStep(now)
	s.d.readClocks(now)
	if over := l.OverAt(s.d.engine, now); !errors.Is(over, core.ErrReleased) {
		return over
	}
	return nil
}

// Units is how many units are held.
func (l *Lease) Units() uint64 {
	s := l.session()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return l.Count()
}

// SlotNames are the names of the slots that are held.
func (l *Lease) SlotNames() []string {
	s := l.session()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return slices.Clone(l.Slots)
}

// Observe has f called with why the lease ends, or has ended. It is called before Release and
// Session.Close return, and else on a goroutine of the session's.
func (l *Lease) Observe(f func(error)) {
	s := l.session()
	s.d.mu.Lock()
	over := l.Over()
	if over == nil {
		l.ended = f
		if s.observed == nil {
			s.observed = make(map[*Lease]struct{})
		}
		s.observed[l] = struct{}{}
	}
	s.d.mu.Unlock()
	if over != nil {
		f(over)
	}
}

// takeEnded is whom the lease's end is reported to, nil if that was done. mu is held.
func (l *Lease) takeEnded(s *Session) func(error) {
	f := l.ended
	if f != nil {
		l.ended = nil
		delete(s.observed, l)
	}
	return f
}

// Lease returns the session's lease on a semaphore, or nil.
func (s *Session) Lease(name string) *Lease {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if l := s.Session.Lease(name); l != nil {
		return l.Owner.(*Lease)
	}
	return nil
}

// AwaitName waits until the session's operations on a semaphore that came before are over.
func (s *Session) AwaitName(ctx context.Context, name string) core.Result {
	x := new(core.NameWait)
	return s.d.send(ctx, &x.Request, func(now time.Duration) { s.d.engine.AwaitName(now, &s.Session, name, x) })
}

type releaseCall struct {
	core.Release
	waiter waiter
}

var releases = sync.Pool{New: func() any { return &releaseCall{waiter: newWaiter()} }}

// Release gives the lease back. When ctx ends first, the release goes on in the background.
func (l *Lease) Release(ctx context.Context) core.Result {
	_, result := l.TransferTo(ctx, 0)
	return result
}

// TransferTo is Release to a waiting session, before which the lease's context ends; 0 is nobody.
func (l *Lease) TransferTo(ctx context.Context, session uint64) (transferred bool, result core.Result) {
	s := l.session()
	d := s.d
	r := releases.Get().(*releaseCall)
	r.Waiter, r.Msg.To, r.Transferred = r.waiter, session, false
	if session != 0 {
		l.endContext(s)
	}
	var gone error
	if ctx.Err() != nil { // its error, however soon the answer would come
		gone = Interrupted(ctx)
	}
	now := d.beginStep()
	l.CheckAt(d.engine, now)
	var ended func(error)
	var cancel context.CancelCauseFunc
	if l.Over() == nil {
		ended, cancel = l.takeEnded(s), l.cancel
	}
	d.engine.Release(now, &l.Lease, &r.Release)
	if gone != nil {
		d.engine.GiveUp(now, &r.Request, gone)
	}
	d.endStep(now)
	if cancel != nil {
		cancel(core.ErrReleased)
	}
	if ended != nil {
		ended(core.ErrReleased)
	}
	result = d.wait(ctx, &r.Request, r.waiter)
	if !result.InBackground {
		transferred = r.Transferred
		releases.Put(r)
	}
	return transferred, result
}

// endContext ends the context of a lease that is held.
func (l *Lease) endContext(s *Session) {
	s.d.mu.Lock()
	cancel := l.cancel
	over := l.Over()
	s.d.mu.Unlock()
	if over == nil && cancel != nil {
		cancel(core.ErrReleased)
	}
}

// ReleaseName releases the session's lease or place at a semaphore. to is the waiting session that
// gets the units next; 0: the queue decides.
func (s *Session) ReleaseName(
	ctx context.Context, name string, to uint64,
) (released, transferred bool, result core.Result) {
	if l := s.Lease(name); l != nil && to != 0 {
		l.endContext(s)
	}
	w := newWaiter()
	r := &core.Release{Request: core.Request{Waiter: w}}
	r.Msg.To = to
	now := s.d.beginStep()
	s.d.engine.ReleaseName(now, &s.Session, name, r)
	s.d.endStep(now)
	result = s.d.wait(ctx, &r.Request, w)
	if result.Err != nil {
		return false, false, result
	}
	return r.Released, r.Transferred, result
}

// Change changes the lease, as x says.
func (l *Lease) Change(ctx context.Context, x *core.Change) core.Result {
	d := l.session().d
	w := newWaiter()
	x.Waiter = w
	now := d.beginStep()
	d.engine.Change(now, &l.Lease, x)
	d.endStep(now)
	return d.wait(ctx, &x.Request, w)
}
