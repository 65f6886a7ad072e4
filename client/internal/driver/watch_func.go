package driver

import (
	"context"

	"github.com/signalbox-dev/signalbox/client/core"
)

// delivery calls the functions of watches. Its goroutine runs while there is something to deliver.
// The driver's mu guards it.
type delivery struct {
	d       *Driver
	running bool // the goroutine is there
	queue   []*watchFunc
}

// watchFunc is a watch whose events a function takes.
type watchFunc struct {
	subscription[core.WatchEvent]
	ctx  context.Context
	step func(core.WatchEvent, error)
	stop func() bool // of what wakes it when ctx ends

	queued bool // guarded by the driver's mu
	over   bool // the last call is made; only the delivery's goroutine looks at it
}

// Done implements core.Waiter: there is something to deliver. The end of the context calls it too,
// and may come when Close waits for the delivery: Close has had every watch woken by then.
func (x *watchFunc) Done() {
	x.d.mu.Lock()
	defer x.d.mu.Unlock()
	if !x.d.waiting {
		x.d.deliver.add(x)
	}
}

// start starts the goroutine if there is something to deliver. mu is held.
func (d *delivery) start() {
	if !d.running && len(d.queue) > 0 {
		d.running = true
		d.d.goroutines.Go(d.all)
	}
}

// add has a watch delivered. mu is held.
func (d *delivery) add(x *watchFunc) {
	if !x.queued {
		x.queued = true
		d.queue = append(d.queue, x)
		d.start()
	}
}

// all delivers as long as there is something. A function may end the goroutine, as FailNow of
// a test does: another one goes on then.
func (d *delivery) all() {
	var x *watchFunc // in delivery
	defer func() {
		d.d.mu.Lock()
		defer d.d.mu.Unlock()
		d.running = false
		if x != nil && !x.over {
			d.add(x) // for what it has not got
		}
		d.start()
	}()
	for {
		d.d.mu.Lock()
		if x = nil; len(d.queue) == 0 {
			d.queue = nil
			d.d.mu.Unlock()
			return
		}
		x = d.queue[0]
		d.queue = d.queue[1:]
		x.queued = false // what comes from here on is looked at once more
		d.d.mu.Unlock()
		if !x.over {
			x.deliver()
		}
	}
}

// maxSteps is how many events of a watch are delivered before others have their turn: one that
// changes all the time must not be the only one.
const maxSteps = 16

func (x *watchFunc) deliver() {
	for range maxSteps {
		var ev core.WatchEvent
		if x.ctx.Err() != nil {
			x.finish(x.interrupted(x.ctx))
			return
		}
		ok, err := x.take(&ev)
		switch {
		case err != nil:
			x.finish(err)
			return
		case !ok:
			return
		}
		x.step(ev, nil)
	}
	x.Done()
}

// finish makes the last call.
func (x *watchFunc) finish(err error) {
	x.over = true
	x.d.mu.Lock()
	stop := x.stop
	x.d.mu.Unlock()
	if stop != nil {
		stop()
	}
	x.end()
	x.step(core.WatchEvent{}, err)
}
