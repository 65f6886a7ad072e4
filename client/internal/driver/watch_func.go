package driver

import (
	"context"

	"github.com/signalbox-dev/signalbox/client/internal/core"
)

// delivery calls the functions of watches. Its goroutine runs while there is something to deliver.
// The driver's mu guards it, but for the batch.
type delivery struct {
	d       *Driver
	running bool // the goroutine is there
	queue   []*watchFunc
	next    int         // in the queue: what is before it was taken
	batch   []delivered // taken under mu, delivered without it: the goroutine's own
	done    int         // of the batch
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

// delivered is an event for the function of a watch, or why there is none any more.
type delivered struct {
	to  *watchFunc
	ev  core.WatchEvent
	err error
}

// Done implements core.Waiter: there is something to deliver. The end of the context calls it.
func (x *watchFunc) Done() {
	x.d.mu.Lock()
	defer x.d.mu.Unlock()
	x.d.deliver.add(x)
}

// wake has the watches among those who are woken looked at, and returns the others. mu is held.
func (d *delivery) wake(list []core.Waiter) []core.Waiter {
	others := list[:0]
	for _, w := range list {
		if x, ok := w.(*watchFunc); ok {
			d.add(x)
		} else {
			others = append(others, w)
		}
	}
	clear(list[len(others):])
	return others
}

// add has a watch looked at. It may come when Close waits for the delivery: Close has had every
// watch woken by then. mu is held.
func (d *delivery) add(x *watchFunc) {
	if !x.queued && !d.d.waiting {
		x.queued = true
		if len(d.queue) == cap(d.queue) && d.next > len(d.queue)/2 {
			n := copy(d.queue, d.queue[d.next:])
			clear(d.queue[n:])
			d.queue, d.next = d.queue[:n], 0
		}
		d.queue = append(d.queue, x)
		d.start()
	}
}

// start starts the goroutine if there is something to deliver. mu is held.
func (d *delivery) start() {
	if !d.running && (d.next < len(d.queue) || d.done < len(d.batch)) {
		d.running = true
		d.d.goroutines.Go(d.all)
	}
}

// maxBatch is how many events are taken at once. One step for each would double what a change that
// thousands of watches see costs the client.
const maxBatch = 16

// take fills the batch, each watch in its turn: one that changes all the time is not the only one.
// It reports whether there is anything; the goroutine ends otherwise.
func (d *delivery) take() bool {
	now := d.d.beginStep()
	clear(d.batch)
	d.batch, d.done = d.batch[:0], 0
	for d.next < len(d.queue) && len(d.batch) < maxBatch {
		x := d.queue[d.next]
		d.queue[d.next] = nil
		d.next++
		x.queued = false // what comes from here on is looked at once more
		if x.over {
			continue
		}
		n := len(d.batch)
		d.batch = append(d.batch, delivered{to: x})
		y := &d.batch[n]
		var ok bool
		if ok, y.err = x.next(&y.ev); ok {
			d.add(x) // there may be more
		} else if y.err == nil && !isClosed(x.ctx.Done()) {
			d.batch = d.batch[:n]
		}
	}
	more := len(d.batch) > 0
	if !more {
		d.queue, d.next = d.queue[:0], 0
	}
	d.d.endStep(now) // what was taken may make room
	return more
}

// all delivers as long as there is something. A function may end the goroutine, as FailNow of
// a test does: another one goes on then.
func (d *delivery) all() {
	defer func() {
		d.d.mu.Lock()
		defer d.d.mu.Unlock()
		d.running = false
		d.start()
	}()
	for more := true; more; more = d.take() {
		for d.done < len(d.batch) {
			y := &d.batch[d.done]
			d.done++
			y.deliver()
		}
	}
}

func (y *delivered) deliver() {
	switch x := y.to; {
	case x.over:
	case x.ctx.Err() != nil:
		x.finish(x.interrupted(x.ctx))
	case y.err != nil:
		x.finish(y.err)
	default:
		x.step(y.ev, nil)
	}
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
