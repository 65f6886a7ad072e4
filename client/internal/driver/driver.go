package driver

import (
	"context"
	crand "crypto/rand"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
)

// Driver is the engine of one client at work.
type Driver struct {
	cfg Config

	// mu is the only mutex of the SDK's engine. Nothing is waited for while it is held.
	mu      sync.Mutex
	engine  *core.Engine
	ready   core.Ready // scratch
	timer   *time.Timer
	armed   time.Duration // when the timer fires; 0: it is not armed
	shown   credentialState
	closed  bool // no goroutine is started any more
	stopped bool // the log has said that the engine stopped itself
	waiting bool // for goroutines: none is started any more by who has none
	deliver delivery
	first   *func(context.Context) // gets the connection that the present step wants; nil: a goroutine makes it

	otherCluster atomic.Int64 // when the log has said last that another cluster answers; 0: never

	ctx        context.Context // ends when the driver is closed
	stop       context.CancelCauseFunc
	goroutines sync.WaitGroup
}

// New is a driver without a connection.
func New(cfg Config) *Driver {
	cfg.setDefaults()
	d := &Driver{cfg: cfg, engine: core.New(cfg.Endpoints, rand.Uint64())}
	d.engine.Noticing = cfg.Notice != nil
	d.shown.d, d.deliver.d = d, d
	d.ctx, d.stop = context.WithCancelCause(context.Background())
	d.timer = time.AfterFunc(time.Hour, d.tick)
	d.timer.Stop()
	return d
}

// beginStep takes the mutex, and returns the time of the step.
func (d *Driver) beginStep() time.Duration {
	d.mu.Lock()
	now := d.cfg.now()
	if d.engine.Late(now) { // the process did not run, or the machine slept
		d.readClocks(now)
	}
	return now
}

// endStep releases the mutex, and does what the step asks for.
func (d *Driver) endStep(now time.Duration) {
	d.engine.Take(&d.ready)
	r := &d.ready
	var writes *link
	var out []byte
	for _, c := range r.Flush {
		switch l := c.Owner.(*link); {
		case l.writing: // it looks again when it has written
		case writes == nil && l.mayWrite():
			writes, out = l, l.take()
		default:
			l.wakeWriter()
		}
	}
	for _, c := range r.Dial {
		behind := c.TakeOut(nil)
		switch {
		case d.first != nil:
			*d.first = func(ctx context.Context) { d.connect(ctx, c, behind) }
			d.first = nil
		case !d.closed:
			d.goroutines.Go(func() { d.connect(d.ctx, c, behind) })
		}
	}
	r.Dial = r.Dial[:0]
	var after []func() // without the mutex, at once, in order
	if len(r.Event) > 0 {
		for _, v := range r.Event {
			after = v.Session.Owner.(*Session).event(after, v)
		}
		clear(r.Event)
		r.Event = r.Event[:0]
	}
	if len(r.Process) > 0 {
		after = processEvents(after, r.Process)
		clear(r.Process)
		r.Process = r.Process[:0]
	}
	if len(r.Notice) > 0 {
		notices := slices.Clone(r.Notice)
		after = append(after, func() {
			for _, n := range notices {
				d.cfg.Notice(n)
			}
		})
		clear(r.Notice)
		r.Notice = r.Notice[:0]
	}
	if err := d.engine.Bug(); err != nil && !d.stopped {
		d.stopped = true
		after = append(after, func() { d.cfg.Logger.Error("client stopped itself", "error", err) })
	}
	r.Wake = d.deliver.wake(r.Wake)
	if at, ok := d.engine.Next(); ok && (d.armed == 0 || at < d.armed) && !d.closed {
		d.armed = at
		d.timer.Reset(max(at-now, 0))
	}
	var mine *core.Ready
	if len(r.Done)+len(r.Wake)+len(r.Close) == 0 {
		r.Flush = r.Flush[:0]
	} else {
		mine = readyPool.Get().(*core.Ready)
		*mine, d.ready = d.ready, *mine
	}
	d.mu.Unlock()
	if len(after) == 0 {
		act(mine, writes, out)
		return
	}
	defer act(mine, writes, out)
	callAll(after)
}

// callAll calls functions in order. A program's own may panic, or end the goroutine, as FailNow of a
// test does: the others are called all the same.
func callAll(list []func()) {
	defer func() {
		if len(list) > 0 {
			callAll(list)
		}
	}()
	for len(list) > 0 {
		f := list[0]
		list = list[1:]
		f()
	}
}

var readyPool = sync.Pool{New: func() any { return new(core.Ready) }}

// act does what does not need the mutex. r may be nil, and so may writes, which writes out.
func act(r *core.Ready, writes *link, out []byte) {
	if r != nil {
		wakeAndClose(r)
		r.Reset()
		readyPool.Put(r)
	}
	if writes != nil {
		writes.write(out)
	}
}

// wakeAndClose wakes who waits, and closes connections.
func wakeAndClose(r *core.Ready) {
	for _, w := range r.Wake { // first: what a call waits for before its outcome is among them
		w.Done()
	}
	for _, x := range r.Done {
		x.Waiter.Done()
	}
	for _, c := range r.Close {
		if l, ok := c.Owner.(*link); ok {
			l.wire.Close()
		}
	}
}

// tick is called by the timer.
func (d *Driver) tick() {
	now := d.beginStep()
	d.armed = 0
	if !d.closed {
		d.readClocks(now)
		d.engine.Tick(now)
	}
	d.endStep(now)
}

// readClocks has the engine compare its clock with the time of day. mu is held.
func (d *Driver) readClocks(now time.Duration) { d.engine.Clocks(now, d.cfg.wall(), d.cfg.asleep()) }

// wall is the time of day. A jump of it forward against the other clock is a hint that the machine
// slept in a way that that cannot see. It is used for nothing else.
func wall() time.Duration { return time.Duration(time.Now().UnixNano()) }

// NewSession is a session that is not started yet, with a key and a nonce.
func (d *Driver) NewSession() *Session {
	s := &Session{d: d}
	s.Owner = s
	s.Nonce = randomNonce()
	_, _ = crand.Read(s.Key[:]) // it never fails: the process dies first
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Sessions are those that live, or whose end the server has yet to learn.
func (d *Driver) Sessions() (list []*Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	for _, s := range d.engine.Sessions() {
		list = append(list, s.Owner.(*Session))
	}
	return list
}

// Run starts a goroutine that Close waits for, and that must end with Context. It is false, and
// nothing is started, when the driver is closed.
func (d *Driver) Run(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.goroutines.Go(f)
	return true
}

// Context ends when the driver is closed, with core.ErrClosed.
func (d *Driver) Context() context.Context { return d.ctx }

// Close ends the connections. Sessions are left to their timeouts, calls end with core.ErrClosed.
func (d *Driver) Close() {
	now := d.beginStep()
	if d.closed {
		d.mu.Unlock()
		return
	}
	d.closed = true
	d.timer.Stop()
	d.engine.Close(now, core.ErrClosed)
	d.endStep(now) // watches by function are woken for their last call
	d.mu.Lock()
	d.waiting = true
	d.mu.Unlock()
	d.stop(core.ErrClosed)
	d.goroutines.Wait()
}

// IsClosed reports whether Close was called.
func (d *Driver) IsClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}
