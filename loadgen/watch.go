package loadgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
)

// Watch fan-out: each caller changes a name of its own, and waits until all watchers of it have
// seen the change. A watcher's delay counts from the call that changes the value, so that it
// includes making the change durable.
var (
	watchStream = &Scenario{
		Name:      "watch-stream",
		Short:     "change a value that --watchers streams watch",
		Series:    []string{"seen", "seen-by-all", "round"},
		Operation: 2,
		Build:     streamWatches.build,
	}
	watchOneShot = &Scenario{
		Name:      "watch-oneshot",
		Short:     "change a value with --watchers one-shot watches, each renewed when it fires",
		Series:    []string{"seen", "seen-by-all", "round"},
		Operation: 2,
		Build:     oneShotWatches.build,
	}
)

// watchKind is how a watcher runs.
type watchKind struct {
	check func(t Target, s []Session) error
	once  bool // watches end with a change, and each watcher needs a session of its own

	// run is watcher i of f until ctx ends. ready is called whenever it has begun to watch. over is
	// called once when it has ended, and need not be before run returns.
	run func(ctx context.Context, f *fanout, i int, s Session, ready func(), over func(error))
}

var streamWatches = watchKind{
	check: func(t Target, s []Session) error { _, err := sessionsAs[CanWatch](t, "watch", s); return err },
	run: func(ctx context.Context, f *fanout, i int, s Session, ready func(), over func(error)) {
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
			over(s.(CanWatch).Watch(own, f.name, notify))
		}()
	},
}

var oneShotWatches = watchKind{
	check: func(t Target, s []Session) error { _, err := sessionsAs[CanWatchOnce](t, "watch once", s); return err },
	once:  true,
	run: func(ctx context.Context, f *fanout, i int, s Session, ready func(), over func(error)) {
		go func() {
			own, cancel := context.WithCancel(ctx)
			defer cancel()
			over(rewatch(own, f, i, s.(CanWatchOnce), ready))
		}()
	},
}

func rewatch(ctx context.Context, f *fanout, i int, s CanWatchOnce, ready func()) error {
	last, armed := uint64(0), uint64(math.MaxUint64)
	for {
		data, wait, err := f.c.watchOnce(ctx, s, f.name)
		if err != nil {
			return err
		}
		ready()
		// The reading tells of a change when the watch before was lost without one.
		last = f.observe(i, data, last)
		if armed != last {
			armed = last
			f.rearmed.arrive()
		}
		changed, err := wait(ctx)
		if err != nil {
			return err
		}
		if changed {
			last = f.observeSeq(i, f.seq.Load(), last)
		}
	}
}

func (k watchKind) build(ctx context.Context, c *Env) (Workload, error) {
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
	start, handles := c.StartObservers, c.Watchers
	if k.once {
		start = c.StartSessions
	} else if c.Connections != Each {
		handles = min(handles, c.Connections)
	}
	watchers, err := start(ctx, handles)
	if err != nil {
		return nil, err
	}
	if err := k.check(c.Target, watchers); err != nil {
		return nil, err
	}
	writers := watchers
	if !k.once {
		if writers, err = c.StartSessions(ctx, min(n, handles)); err != nil {
			return nil, err
		}
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
		if k.once {
			f.rearmed = newBarrier(own)
		}
		w.callers = append(w.callers, f)
		for j := range own {
			s := watchers[(i+j*n)%len(watchers)] // watchers of one name sit on all connections
			w.wg.Add(1)
			ready := begun.member()
			k.run(watching, f, j, s, ready, func(err error) {
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
