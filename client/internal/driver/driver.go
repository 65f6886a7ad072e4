package driver

import (
	"context"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/protocol/boottime"
)

// Driver is the engine of one client at work.
type Driver struct {
	cfg Config

	// mu is the only mutex of the SDK's engine. Nothing is waited for while it is held.
	mu     sync.Mutex
	engine *core.Engine
	ready  core.Ready // scratch
	timer  *time.Timer
	armed  time.Duration // when the timer fires; 0: it is not armed
	links  map[*link]struct{}
	closed bool // no goroutine is started any more

	events    []core.Event // that the program is to be notified of
	notifying bool         // a goroutine does

	ctx        context.Context // ends when the driver is closed
	stop       context.CancelFunc
	goroutines sync.WaitGroup
}

// lock begins a step, and returns its time.
func (d *Driver) lock() time.Duration {
	d.mu.Lock()
	return boottime.Now()
}

// unlock ends a step, and does what it asks for.
func (d *Driver) unlock(now time.Duration) {
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
		if behind := c.TakeOut(nil); !d.closed {
			d.goroutines.Go(func() { _ = d.connect(d.ctx, c, behind) })
		}
	}
	r.Dial = r.Dial[:0]
	if len(r.Event) > 0 && d.cfg.Notify != nil {
		d.events = append(d.events, r.Event...)
		if !d.notifying && !d.closed {
			d.notifying = true
			d.goroutines.Go(d.notify)
		}
	}
	clear(r.Event)
	r.Event = r.Event[:0]
	if at, ok := d.engine.Next(); ok && (d.armed == 0 || at < d.armed) && !d.closed {
		d.armed = at
		d.timer.Reset(max(at-now, 0))
	}
	if len(r.Done)+len(r.Close) == 0 {
		r.Flush = r.Flush[:0]
		d.mu.Unlock()
	} else {
		mine := readyPool.Get().(*core.Ready)
		*mine, d.ready = d.ready, *mine
		d.mu.Unlock()
		d.act(mine)
		mine.Reset()
		readyPool.Put(mine)
	}
	if writes != nil {
		writes.write(out)
	}
}

var readyPool = sync.Pool{New: func() any { return new(core.Ready) }}

// act does what does not need the mutex.
func (d *Driver) act(r *core.Ready) {
	for _, x := range r.Done {
		x.Waiter.Done()
	}
	for _, c := range r.Close {
		if l, ok := c.Owner.(*link); ok {
			l.wire.Close()
		}
	}
}

// notify notifies the program of events, in order. It lives as long as there are any.
func (d *Driver) notify() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.events) > 0 {
		v := d.events[0]
		d.events = d.events[1:]
		d.mu.Unlock()
		d.cfg.Notify(v)
		d.mu.Lock()
	}
	d.events, d.notifying = nil, false
}

// tick is called by the timer.
func (d *Driver) tick() {
	now := d.lock()
	d.armed = 0
	if !d.closed {
		d.engine.Clocks(now, wall())
		d.engine.Tick(now)
	}
	d.unlock(now)
}

// wall is the time of day. A jump of it forward against the other clock is a hint that the machine
// slept in a way that that cannot see. It is used for nothing else.
func wall() time.Duration { return time.Duration(time.Now().UnixNano()) }
