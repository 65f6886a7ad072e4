package discovery

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
)

type copyKey struct {
	node, service string
	hold          time.Duration
}

// sharedCopy runs a list: it watches the service, keeps the time, and wakes the handles.
type sharedCopy struct {
	c   *client.Client
	key copyKey

	mu      sync.Mutex
	list    *list
	updated chan struct{} // closed when the list announces a change
	handles map[*Endpoints]struct{}
	timer   *time.Timer // calls tick
	linger  *time.Timer // ends the copy; nil while there are handles
	cancel  context.CancelFunc
	over    bool
}

func newSharedCopy(c *client.Client, key copyKey) *sharedCopy {
	return &sharedCopy{c: c, key: key, list: newList(time.Now(), key.hold), updated: make(chan struct{}),
		handles: map[*Endpoints]struct{}{}}
}

// add is false if the copy has ended.
func (x *sharedCopy) add(e *Endpoints) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return false
	}
	x.handles[e] = struct{}{}
	if x.linger != nil {
		x.linger.Stop()
		x.linger = nil
	}
	if x.cancel == nil {
		var ctx context.Context
		d := access.Client(x.c).Driver
		ctx, x.cancel = context.WithCancel(d.Context())
		if run := func() { x.run(ctx) }; !d.Run(run) {
			go run() // ctx has ended
		}
	}
	return true
}

func (x *sharedCopy) remove(e *Endpoints) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.handles, e)
	if len(x.handles) == 0 && !x.over {
		x.linger = time.AfterFunc(lingerTime, x.end)
	}
}

// end ends the copy, if it has no handles.
func (x *sharedCopy) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.handles) == 0 && x.linger != nil {
		x.over = true
		x.cancel()
	}
}

func (x *sharedCopy) now() (out *published, updated <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.list.current(), x.updated
}

// run watches until the copy or the client ends.
func (x *sharedCopy) run(ctx context.Context) {
	var last error
	retry(ctx, func() (progress bool, err error) {
		n, err := x.c.Node(ctx, x.key.node)
		if err == nil {
			progress, err = x.watch(ctx, n)
		}
		last = err
		if passes(err) { // that is no reason to say: nothing is known yet, or the list stays
			x.step(func(now time.Time) { x.list.event(now, &client.Event{Kind: client.EventInterrupted}) })
		} else {
			x.step(func(now time.Time) { x.list.failed(now, err) })
		}
		return progress, err
	})
	if cause := context.Cause(ctx); errors.Is(cause, client.ErrClientClosed) {
		last = cause
	}
	x.step(func(now time.Time) { x.list.ended(now, last) })
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	if x.timer != nil {
		x.timer.Stop()
	}
	if x.linger != nil {
		x.linger.Stop()
	}
	x.cancel()
	access.Client(x.c).Values.CompareAndDelete(x.key, x)
}

// watch is one watch, until it ends with an error. progress says that it was live.
func (x *sharedCopy) watch(ctx context.Context, n *client.Node) (progress bool, err error) {
	x.step(func(time.Time) { x.list.begin() })
	ended := make(chan struct{})
	n.WatchFunc(ctx, x.key.service, func(ev client.Event, failure error) {
		if failure != nil {
			err = failure
			close(ended)
			return
		}
		progress = progress || ev.Kind == client.EventSynced
		x.step(func(now time.Time) { x.list.event(now, &ev) })
	})
	<-ended
	return progress, err
}

// step steps the list, and tells the handles of what came of it.
func (x *sharedCopy) step(input func(now time.Time)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.list.announcements
	input(time.Now())
	if x.list.announcements != before {
		close(x.updated)
		x.updated = make(chan struct{})
		for e := range x.handles {
			select {
			case e.changed <- struct{}{}:
			default:
			}
		}
	}
	next := x.list.next()
	switch {
	case next.IsZero() || x.over:
	case x.timer == nil:
		x.timer = time.AfterFunc(time.Until(next), x.tick)
	default:
		x.timer.Reset(time.Until(next))
	}
}

func (x *sharedCopy) tick() { x.step(x.list.tick) }
