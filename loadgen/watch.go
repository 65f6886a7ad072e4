// How long until watchers see the changes of many values?

package loadgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
)

// watchStream: each caller changes a name of its own, and waits until all watchers of it have seen
// the change. A watcher's delay counts from the call that changes the value, so that it includes
// making the change durable.
var watchStream = &Scenario{
	Name:      "watch-stream",
	Short:     "change a value that --watchers streams watch",
	Series:    []string{"seen", "seen-by-all", "round"},
	Operation: 2,
	Build:     buildWatch,
}

func buildWatch(ctx context.Context, c *Env) (Workload, error) {
	n := max(1, c.Callers)
	list := c.names(n).all()
	if len(list) != n {
		return nil, fmt.Errorf("each caller changes one name that is its own; give %d keys, or none", n)
	}
	c.Watchers = cmp.Or(c.Watchers, 1000)
	if c.Watchers < n {
		return nil, fmt.Errorf("%d watchers are too few for %d names", c.Watchers, n)
	}
	c.watchers = c.Watchers
	c.setConnections(c.Watchers)
	handles := c.Watchers
	if c.Connections != Each {
		handles = min(handles, c.Connections)
	}
	observers, err := c.StartObservers(ctx, handles)
	if err != nil {
		return nil, err
	}
	watchers, err := sessionsAs[CanWatch](c.Target, "watch", observers)
	if err != nil {
		return nil, err
	}
	writers, err := c.StartSessions(ctx, min(n, handles))
	if err != nil {
		return nil, err
	}
	keepers, err := sessionsAs[CanStore](c.Target, "change a value", writers)
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &watchWorkload{keepers: keepers, names: list, stop: stop}
	if err := createNames(ctx, keepers, list, make([]byte, max(c.DataSize, 8))); err != nil {
		closeWorkload(ctx, w)
		return nil, err
	}
	begun := newReadyGroup("watches", c.Watchers)
	lost := make(chan error, c.Watchers)
	for i, name := range list {
		own := c.Watchers / n
		if i < c.Watchers%n {
			own++
		}
		f := newFanout(c, keepers[i%len(keepers)], name, own)
		w.callers = append(w.callers, f)
		for j := range own {
			s := watchers[(i+j*n)%len(watchers)] // watchers of one name sit on all connections
			w.wg.Add(1)
			ready := begun.member()
			f.watch(watching, j, s, ready, func(err error) {
				defer w.wg.Done()
				defer ready()
				if watching.Err() != nil {
					return
				}
				err = cmp.Or(err, errors.New("it ended by itself"))
				err = fmt.Errorf("a watch is over: %w", err)
				f.fail(err)
				lost <- err
			})
		}
	}
	if err := begun.wait(ctx); err != nil {
		closeWorkload(ctx, w)
		return nil, err
	}
	select {
	case err := <-lost:
		closeWorkload(ctx, w)
		return nil, err
	default:
		return w, nil
	}
}

// watch runs watcher i until ctx ends. It calls ready whenever the watcher has begun to watch, and
// over once when it has ended, which may be after watch returns.
func (f *fanout) watch(ctx context.Context, i int, s CanWatch, ready func(), over func(error)) {
	last := uint64(0)
	notify := func(data []byte) {
		last = f.observe(i, data, last)
		ready()
	}
	if t, ok := s.(CanSubscribe); ok {
		t.Subscribe(ctx, f.name, notify, over)
		return
	}
	go func() {
		own, cancel := context.WithCancel(ctx) // thousands that wait on one context would queue up on its channel
		defer cancel()
		over(s.Watch(own, f.name, notify))
	}()
}

// watchWorkload are fan-outs and the goroutines of their watchers.
type watchWorkload struct {
	callers
	keepers []CanStore
	names   []string
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// Close ends the watchers before their names go, so that none of them sees it.
func (w *watchWorkload) Close(ctx context.Context) error {
	w.stop()
	w.wg.Wait()
	deleteNames(ctx, w.keepers, w.names)
	return nil
}
