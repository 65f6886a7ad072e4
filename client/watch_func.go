package client

import (
	"context"
	"sync"
)

// watchCallback is the state of a watch that calls a function.
type watchCallback struct {
	ctx           context.Context
	step          func(Event, error)
	stopAfterFunc func() bool // of what wakes the watch when ctx ends

	// Guarded by dispatcher.mu.
	next         *watch // in the dispatcher's queue
	queued       bool
	hasGoroutine bool // a goroutine of the watch's own has it
	over         bool // the last call is made, or about to be
}

// dispatcher calls the functions of a client's watches. A watch has one owner at a time, which
// alone takes its events and calls its function: the dispatcher's goroutine, or one of its own
// while a stream has to be opened.
//
// The dispatcher's goroutine runs while there is something to deliver. A program may have thousands
// of clients, for each of which a change is rare: a goroutine that starts has memory that was just
// in use, one that slept has to be fetched from all over the heap.
//
// Locks: the mutexes of watches and of their table may be held when dispatcher.mu is taken. None is
// taken under it.
type dispatcher struct {
	mu          sync.Mutex
	running     bool                // the goroutine is there
	closed      bool                // the owners of the remaining watches end them
	stopped     chan struct{}       // closed by the last goroutine, for end, which makes it
	first, last *watch              // to be looked at, each once, linked by next
	all         map[*watch]struct{} // that are not over
}

func newDispatcher() *dispatcher { return &dispatcher{all: make(map[*watch]struct{})} }

// watch starts a watch whose events a function takes.
func (t *dispatcher) watch(ctx context.Context, n *Node, name string, prefix bool, step func(Event, error)) {
	c := n.c
	w := newWatch(n, name, prefix)
	w.dispatcher, w.callback = t, watchCallback{ctx: ctx, step: step, hasGoroutine: true}
	w.callback.stopAfterFunc = context.AfterFunc(ctx, w.notify)
	t.mu.Lock()
	t.all[w] = struct{}{}
	t.mu.Unlock()
	c.watches.add(w)
	if !c.run(w.openAndDeliver) {
		go w.finish(ErrClientClosed) // the caller may hold what its function wants
	}
}

// queue has a watch delivered. Locks of the client and of watches may be held.
func (t *dispatcher) queue(w *watch) {
	h := &w.callback
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case h.hasGoroutine:
		wake(w.wake)
	case !h.queued && !h.over && !t.closed:
		h.queued = true
		if t.first == nil {
			t.first = w
		} else {
			t.last.callback.next = w
		}
		t.last = w
		if !t.running {
			t.running = true
			go t.deliverReady()
		}
	}
}

// deliverReady is the dispatcher's goroutine, until nothing is ready or the client ends.
func (t *dispatcher) deliverReady() {
	var w *watch // in delivery
	defer func() {
		if w != nil { // its function has ended the goroutine, as FailNow of a test does
			t.queue(w) // for what it has not got
			t.mu.Lock()
			t.goroutineEnds()
			t.mu.Unlock()
		}
	}()
	for {
		t.mu.Lock()
		if w = t.first; t.closed || w == nil {
			w = nil
			t.goroutineEnds()
			t.mu.Unlock()
			return
		}
		h := &w.callback
		t.first, h.next = h.next, nil
		h.queued = false // what comes from here on is looked at once more
		own := !h.hasGoroutine && !h.over
		t.mu.Unlock()
		if own && !w.deliver() {
			t.startGoroutine(w)
		}
	}
}

// goroutineEnds notes that the dispatcher's goroutine ends. Another one takes what is ready. mu is
// held.
func (t *dispatcher) goroutineEnds() {
	switch {
	case t.closed:
		close(t.stopped)
	case t.first != nil:
		go t.deliverReady()
	default:
		t.running, t.last = false, nil
	}
}

// end makes the last calls of all watches but those with a goroutine of their own, which makes it
// by itself. It waits for the dispatcher's goroutine. The client's end calls it, once.
func (t *dispatcher) end() {
	t.mu.Lock()
	t.closed, t.first = true, nil
	if t.running {
		t.stopped = make(chan struct{})
		t.mu.Unlock()
		<-t.stopped
		t.mu.Lock()
	}
	var left []*watch
	for w := range t.all {
		if !w.callback.hasGoroutine {
			left = append(left, w)
		}
	}
	t.mu.Unlock()
	for _, w := range left {
		w.finish(ErrClientClosed)
	}
}

// startGoroutine gives a watch to a goroutine of its own.
func (t *dispatcher) startGoroutine(w *watch) {
	t.mu.Lock()
	w.callback.hasGoroutine = true
	t.mu.Unlock()
	if !w.n.c.run(w.openAndDeliver) {
		w.finish(ErrClientClosed)
	}
}

// maxStepsPerDelivery is how many steps of a watch are delivered before others have their turn: one
// that changes all the time must not be the only one.
const maxStepsPerDelivery = 16

// deliver calls the function for the events there are. It is false when all are delivered and a
// stream has to be opened. The watch's owner calls it.
func (w *watch) deliver() bool {
	var ev Event
	for range maxStepsPerDelivery {
		if w.callback.ctx.Err() != nil {
			w.finish(w.interrupted(w.callback.ctx))
			return true
		}
		ok, err := w.next(&ev)
		if err != nil {
			w.finish(err)
			return true
		}
		if !ok {
			return !w.isIdle()
		}
		w.callback.step(ev, nil)
	}
	w.dispatcher.queue(w)
	return true
}

// openAndDeliver opens a watch's streams, and gives it back to the dispatcher: also when its
// function ends the goroutine, as FailNow of a test does.
func (w *watch) openAndDeliver() {
	defer w.giveBack()
	for {
		if err := w.open(w.callback.ctx); err != nil {
			w.finish(err)
			return
		}
		if w.deliver() {
			return
		}
		if err := w.wait(w.callback.ctx); err != nil {
			w.finish(err)
			return
		}
	}
}

func (w *watch) giveBack() {
	h, t := &w.callback, w.dispatcher
	t.mu.Lock()
	h.hasGoroutine = false
	left := t.closed && !h.over
	t.mu.Unlock()
	if left {
		w.finish(ErrClientClosed)
		return
	}
	t.queue(w) // for what came meanwhile
}

// finish makes the last call. The watch's owner calls it; a second call does nothing.
func (w *watch) finish(err error) {
	h, t := &w.callback, w.dispatcher
	t.mu.Lock()
	over := h.over
	h.over = true
	delete(t.all, w)
	t.mu.Unlock()
	if over {
		return
	}
	h.stopAfterFunc()
	w.close()
	h.step(Event{}, withOp("watch", w.name, err))
}
