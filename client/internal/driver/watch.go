package driver

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
)

// bell wakes a consumer, which looks for everything there is.
type bell chan struct{}

// Done implements core.Waiter.
func (b bell) Done() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// subscription is a watch or a stream of the engine.
type subscription[T any] struct {
	d     *Driver
	open  func(*core.Engine, time.Duration)
	close func(*core.Engine, time.Duration)
	next  func(*T) (ok bool, err error) // mu is held
	last  func() error                  // why it does not work; mu is held
}

// take is the next event, if there is one, or why there will be none.
func (x *subscription[T]) take(ev *T) (ok bool, err error) {
	now := x.d.beginStep()
	defer x.d.endStep(now) // what was taken may make room
	return x.next(ev)
}

// begin subscribes; false if the driver is closed.
func (x *subscription[T]) begin() bool {
	now := x.d.beginStep()
	if x.d.closed {
		x.d.mu.Unlock()
		return false
	}
	x.open(x.d.engine, now)
	x.d.endStep(now)
	return true
}

// end unsubscribes.
func (x *subscription[T]) end() {
	now := x.d.beginStep()
	if !x.d.closed {
		x.close(x.d.engine, now)
	}
	x.d.endStep(now)
}

// interrupted is the error of a subscription whose context ended, with what keeps it from working.
func (x *subscription[T]) interrupted(ctx context.Context) error {
	err := Interrupted(ctx) // which may be a context of ours: it takes the mutex
	x.d.mu.Lock()
	defer x.d.mu.Unlock()
	return because(err, x.last())
}

// all yields what comes until ctx ends. The last pair carries the error that ended it.
func (x *subscription[T]) all(ctx context.Context, wake bell) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var ev, none T
		if !x.begin() {
			yield(none, Undecided(core.ErrClosed))
			return
		}
		defer x.end()
		for {
			ok, err := x.take(&ev)
			switch {
			case err != nil:
				yield(none, err)
				return
			case ok && !yield(ev, nil):
				return
			case !ok:
				select {
				case <-wake:
				case <-ctx.Done():
					yield(none, x.interrupted(ctx))
					return
				}
			}
		}
	}
}

// Watch yields the events of a watch until ctx ends. The last pair carries the error that ended it.
func (d *Driver) Watch(ctx context.Context, w *core.Watch) iter.Seq2[core.WatchEvent, error] {
	return func(yield func(core.WatchEvent, error) bool) {
		wake := newBell()
		w.Waiter = wake
		x := d.watch(w)
		x.all(ctx, wake)(yield)
	}
}

func (d *Driver) watch(w *core.Watch) subscription[core.WatchEvent] {
	return subscription[core.WatchEvent]{
		d:     d,
		open:  func(e *core.Engine, now time.Duration) { e.Watch(now, w) },
		close: func(e *core.Engine, now time.Duration) { e.CloseWatch(now, w) },
		next:  w.Next,
		last:  w.Last,
	}
}

// WatchFunc calls a function with each event of a watch, until ctx ends; the last call carries the
// error that ended it. It returns at once.
func (d *Driver) WatchFunc(ctx context.Context, w *core.Watch, step func(core.WatchEvent, error)) {
	x := &watchFunc{subscription: d.watch(w), ctx: ctx, step: step}
	w.Waiter = x
	if !x.begin() {
		go step(core.WatchEvent{}, Undecided(core.ErrClosed)) // the caller may hold what its function wants
		return
	}
	d.mu.Lock()
	x.stop = context.AfterFunc(ctx, x.Done)
	d.mu.Unlock()
	x.Done()
}

// Stream yields the events of a stream until ctx ends. The last pair carries the error that ended it.
// make makes the stream, each time that the sequence is used.
func (d *Driver) Stream(ctx context.Context, make func() *core.Stream) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		wake := newBell()
		s := make()
		s.Waiter = wake
		x := subscription[any]{
			d:     d,
			open:  func(e *core.Engine, now time.Duration) { e.Stream(now, s) },
			close: func(e *core.Engine, now time.Duration) { e.CloseStream(now, s) },
			next: func(ev *any) (ok bool, err error) {
				*ev, ok, err = s.Next()
				return ok, err
			},
			last: s.Last,
		}
		x.all(ctx, wake)(yield)
	}
}

func newBell() bell { return make(bell, 1) }

// because is an error with what kept the caller from success, if that is known.
func because(err, last error) error {
	if last != nil {
		err = fmt.Errorf("%w (last: %w)", err, last)
	}
	return Undecided(err)
}
