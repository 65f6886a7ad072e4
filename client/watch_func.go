package client

import (
	"context"
	"sync"
)

// WatchFunc is [Node.Watch] for programs with thousands of watches: instead of a goroutine that waits for each of them, a function is called with each step. It returns
// at once. The watch goes on until ctx ends; the last call carries the error that ended it, as the last pair of Watch does, and none comes behind it.
//
// The calls of one watch come one after the other; those of different watches may overlap. The functions of a client share a goroutine most of the time, so one that waits
// for something holds up other watches' steps, and the client's Close and Abandon, which return after the last calls: a function may use the client, but not close it,
// nor wait for who does. A watch that is begun on a closed client has its last call at once.
func (n *Node) WatchFunc(ctx context.Context, name string, step func(Event, error)) {
	n.watchFunc(ctx, name, false, step)
}

// WatchPrefixFunc is WatchFunc for all semaphores whose name begins with prefix, as [Node.WatchPrefix].
func (n *Node) WatchPrefixFunc(ctx context.Context, prefix string, step func(Event, error)) {
	n.watchFunc(ctx, prefix, true, step)
}

// WatchFunc is Node.WatchFunc on the session's node. It does not end with the session.
func (s *Session) WatchFunc(ctx context.Context, name string, step func(Event, error)) {
	s.node.WatchFunc(ctx, name, step)
}

// WatchPrefixFunc is Node.WatchPrefixFunc on the session's node. It does not end with the session.
func (s *Session) WatchPrefixFunc(ctx context.Context, prefix string, step func(Event, error)) {
	s.node.WatchPrefixFunc(ctx, prefix, step)
}

// handler is what a watch needs that calls a function.
type handler struct {
	ctx  context.Context
	step func(Event, error)
	undo func() bool // of what wakes the watch when ctx ends

	// Guarded by teller.mu.
	queued bool
	lent   bool // a goroutine of the watch's own has it
	over   bool // the last call is made, or about to be
}

// teller calls the functions of a client's watches. A watch has one owner at a time, who alone asks it what there is to tell and calls its function: the teller's
// goroutine, or, while a stream of it has to be opened, which may take its time, one of its own (lent).
//
// Locks: client.mu and watch.mu may be held when teller.mu is taken, and nothing is taken under it.
type teller struct {
	wake chan struct{} // capacity 1

	begin sync.Once

	mu     sync.Mutex
	closed bool                // what is left ends by whoever has it
	ready  []*watch            // to be looked at, each once
	all    map[*watch]struct{} // that are not over
}

func newTeller() *teller {
	return &teller{wake: make(chan struct{}, 1), all: make(map[*watch]struct{})}
}

func (n *Node) watchFunc(ctx context.Context, name string, prefix bool, step func(Event, error)) {
	c, t := n.c, n.c.teller
	w := newWatch(n, name, prefix)
	w.handler = &handler{ctx: ctx, step: step, lent: true}
	w.handler.undo = context.AfterFunc(ctx, w.poke)
	// Before the watch is there: when there is no loop any more, it has nothing to end.
	t.begin.Do(func() {
		if !c.run(t.loop(c)) {
			t.close()
		}
	})
	t.mu.Lock()
	t.all[w] = struct{}{}
	t.mu.Unlock()
	c.follow(w)
	if !c.run(w.drive) {
		go w.finish(ErrClientClosed) // the caller may hold what its function wants
	}
}

// queue has a watch looked at. Any locks of the client's and of watches may be held.
func (t *teller) queue(w *watch) {
	h := w.handler
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.queued || h.lent || h.over || t.closed {
		return
	}
	h.queued = true
	t.ready = append(t.ready, w)
	if len(t.ready) == 1 {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// loop is the teller's goroutine, from the first WatchFunc to the client's end.
func (t *teller) loop(c *Client) func() {
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
				w.handler.queued = false // what comes from here on is looked at once more
			}
			t.mu.Unlock()
			for i, w := range list {
				list[i] = nil
				if t.owns(w) && !w.turn() {
					t.lend(w)
				}
			}
		}
	}
}

// owns says whether a watch that was queued is the teller's still: it may have been lent for what another look at it found.
func (t *teller) owns(w *watch) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !w.handler.lent && !w.handler.over
}

// close leaves it to the watches' own goroutines to end, and returns those that have none.
func (t *teller) close() (left []*watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.ready = true, nil
	for w := range t.all {
		if !w.handler.lent {
			left = append(left, w)
		}
	}
	return left
}

// lend gives a watch to a goroutine of its own.
func (t *teller) lend(w *watch) {
	t.mu.Lock()
	w.handler.lent = true
	t.mu.Unlock()
	if !w.n.c.run(w.drive) {
		w.finish(ErrClientClosed)
	}
}

// stepsATurn is how many steps of a watch are told before others have their turn: one that changes all the time must not be the only one.
const stepsATurn = 16

// turn tells what there is to tell. False: all is told, and a stream has to be opened. It is called by the watch's owner.
func (w *watch) turn() bool {
	for range stepsATurn {
		if w.handler.ctx.Err() != nil {
			w.finish(interrupted(w.handler.ctx, nil))
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
		w.handler.step(ev, nil)
	}
	w.n.c.teller.queue(w)
	return true
}

// drive opens a watch's streams, and gives it back to the teller.
func (w *watch) drive() {
	h, t := w.handler, w.n.c.teller
	for {
		if err := w.open(h.ctx); err != nil {
			w.finish(err)
			return
		}
		if w.turn() {
			break
		}
		if err := w.wait(h.ctx); err != nil {
			w.finish(err)
			return
		}
	}
	t.mu.Lock()
	h.lent = false
	left := t.closed && !h.over
	t.mu.Unlock()
	if left {
		w.finish(ErrClientClosed)
		return
	}
	t.queue(w) // for what came meanwhile
}

// finish makes the last call. It is called by the watch's owner, and does nothing the second time.
func (w *watch) finish(err error) {
	h, t := w.handler, w.n.c.teller
	t.mu.Lock()
	over := h.over
	h.over = true
	delete(t.all, w)
	t.mu.Unlock()
	if over {
		return
	}
	h.undo()
	w.close()
	h.step(Event{}, about("watch", w.name, err))
}
