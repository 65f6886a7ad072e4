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
	queued       bool
	hasGoroutine bool // a goroutine of the watch's own has it
	over         bool // the last call is made, or about to be
}

// dispatcher calls the functions of a client's watches. A watch has one owner at a time, which
// alone takes its events and calls its function: the dispatcher's goroutine, or one of its own
// while a stream has to be opened.
//
// Locks: the mutexes of watches and of their table may be held when dispatcher.mu is taken. Nothing
// is taken under it.
type dispatcher struct {
	wake chan struct{} // capacity 1

	start sync.Once

	mu     sync.Mutex
	closed bool                // the owners of the remaining watches end them
	ready  []*watch            // to be looked at, each once
	all    map[*watch]struct{} // that are not over
}

func newDispatcher() *dispatcher {
	return &dispatcher{wake: make(chan struct{}, 1), all: make(map[*watch]struct{})}
}

// watch starts a watch whose events a function takes.
func (t *dispatcher) watch(ctx context.Context, n *Node, name string, prefix bool, step func(Event, error)) {
	c := n.c
	w := newWatch(n, name, prefix)
	w.callback = &watchCallback{ctx: ctx, step: step, hasGoroutine: true}
	w.callback.stopAfterFunc = context.AfterFunc(ctx, w.notify)
	// Before the watch is there: when there is no loop any more, it has nothing to end.
	t.start.Do(func() {
		if !c.run(t.loop(c)) {
			t.close()
		}
	})
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
	h := w.callback
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.queued || h.hasGoroutine || h.over || t.closed {
		return
	}
	h.queued = true
	t.ready = append(t.ready, w)
	if len(t.ready) == 1 {
		wake(t.wake)
	}
}

// loop is the dispatcher's goroutine, from the first WatchFunc to the client's end.
func (t *dispatcher) loop(c *Client) func() {
	return func() {
		var list []*watch
		for {
			select {
			case <-t.wake:
			case <-c.ctx.Done():
				for _, w := range t.close() {
					w.finish(ErrClientClosed)
				}
				return
			}
			t.mu.Lock()
			list, t.ready = t.ready, list[:0]
			for _, w := range list {
				w.callback.queued = false // what comes from here on is looked at once more
			}
			t.mu.Unlock()
			for i, w := range list {
				list[i] = nil
				if t.owns(w) && !w.deliver() {
					t.startGoroutine(w)
				}
			}
		}
	}
}

// owns says whether a queued watch is still the dispatcher's.
func (t *dispatcher) owns(w *watch) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !w.callback.hasGoroutine && !w.callback.over
}

// close leaves it to the watches' own goroutines to end, and returns the watches that have none.
func (t *dispatcher) close() (left []*watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.ready = true, nil
	for w := range t.all {
		if !w.callback.hasGoroutine {
			left = append(left, w)
		}
	}
	return left
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
	for range maxStepsPerDelivery {
		if w.callback.ctx.Err() != nil {
			w.finish(interrupted(w.callback.ctx, nil))
			return true
		}
		ev, ok, err := w.next()
		if err != nil {
			w.finish(err)
			return true
		}
		if !ok {
			return !w.isIdle()
		}
		w.callback.step(ev, nil)
	}
	w.n.c.dispatcher.queue(w)
	return true
}

// openAndDeliver opens a watch's streams, and gives it back to the dispatcher.
func (w *watch) openAndDeliver() {
	h, t := w.callback, w.n.c.dispatcher
	for {
		if err := w.open(h.ctx); err != nil {
			w.finish(err)
			return
		}
		if w.deliver() {
			break
		}
		if err := w.wait(h.ctx); err != nil {
			w.finish(err)
			return
		}
	}
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
	h, t := w.callback, w.n.c.dispatcher
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
