// How fast are locks that nobody else wants, hand-offs of one lock, and semaphores with few units?

package loadgen

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
)

// contendedLock: all callers want the same few locks. What counts is the hand-off: from the
// holder's call of release to the next one's grant.
var contendedLock = &Scenario{
	Name:      "contended-lock",
	Short:     "many callers pass one lock on (hand-offs); more with --keys",
	Series:    []string{"handoff", "pair"},
	Operation: 1,
	Build: func(ctx context.Context, c *Env) (Workload, error) {
		n := c.callerCount()
		list := c.names(1).all()
		// A session holds a name once, so that each caller needs one of its own.
		acquirers, _, err := c.acquirers(ctx, n, n, "lock", 0)
		if err != nil {
			return nil, err
		}
		cum := zipf(len(list), c.Skew)
		locks := make([]handoff, len(list))
		w := make(callers, n)
		for i := range w {
			w[i] = &contender{c: c, acquirer: acquirers[i], names: list, locks: locks,
				pick: newPicker(c.Seed, i, len(list), cum)}
		}
		return w, nil
	},
}

// handoff is the callers' common knowledge about one lock.
type handoff struct {
	waiting  atomic.Int64 // callers inside acquire
	released atomic.Int64 // when the last holder called release with others waiting, else 0
}

type contender struct {
	c        *Env
	acquirer Acquirer
	names    []string
	locks    []handoff
	pick     *picker
}

func (c *contender) Do(ctx context.Context, rec *Recorder) error {
	k := c.pick.next()
	l := &c.locks[k]
	l.waiting.Add(1)
	held, err := c.c.acquire(ctx, c.acquirer, c.names[k])
	waiting := l.waiting.Add(-1)
	if err != nil {
		return err
	}
	now := c.c.Now()
	if t := l.released.Load(); t > 0 {
		rec.Note(0, now, now-t)
	}
	if waiting > 0 {
		now = c.c.Now()
	} else {
		now = 0
	}
	l.released.Store(now)
	return c.c.release(ctx, held)
}

// lockPairs: locks that nobody else wants. A pair is lock and unlock, each answered before the next
// begins. Each caller has names of its own.
var lockPairs = &Scenario{
	Name:   "lock-pairs",
	Short:  "lock and unlock names that nobody else wants",
	Series: []string{"pair"},
	Build: func(ctx context.Context, c *Env) (Workload, error) {
		n := c.callerCount()
		names := c.names(n)
		if names.n < n {
			return nil, fmt.Errorf("%d callers need at least as many keys to lock names of their own; %d are given", n,
				names.n)
		}
		acquirers, _, err := c.acquirers(ctx, n, c.sessionCount(n), "lock", 0)
		if err != nil {
			return nil, err
		}
		small, large := zipf(names.n/n, c.Skew), zipf(names.n/n+1, c.Skew)
		w := make(callers, n)
		for i := range w {
			// The names i, i+n, i+2n ... are this caller's.
			own, cum := names.n/n, small
			if i < names.n%n {
				own, cum = own+1, large
			}
			pick := newPicker(c.Seed, i, own, cum)
			w[i] = &pairCaller{c: c, acquirer: acquirers[i], name: func() string { return names.name(i + n*pick.next()) }}
		}
		return w, nil
	},
}

type pairCaller struct {
	c        *Env
	acquirer Acquirer
	name     func() string // the next one
}

func (p *pairCaller) Do(ctx context.Context, _ *Recorder) error {
	held, err := p.c.acquire(ctx, p.acquirer, p.name())
	if err != nil {
		return err
	}
	return p.c.release(ctx, held)
}

// countingSemaphore: a semaphore with fewer units than callers.
var countingSemaphore = &Scenario{
	Name:   "semaphore",
	Short:  "acquire and release one of --limit units",
	Series: []string{"pair"},
	Build: func(ctx context.Context, c *Env) (Workload, error) {
		n := c.callerCount()
		list := c.names(1).all()
		c.Limit = cmp.Or(c.Limit, uint64(max(1, n/2)))
		// A session holds a name once, so that each caller needs one of its own.
		acquirers, sessions, err := c.acquirers(ctx, n, n, "acquire", c.Limit)
		if err != nil {
			return nil, err
		}
		cum := zipf(len(list), c.Skew)
		w := &semaphoreWorkload{names: list}
		if w.keepers, err = sessionsAs[CanStore](c.Target, "delete semaphores", sessions); err != nil {
			return nil, err
		}
		for i := range n {
			pick := newPicker(c.Seed, i, len(list), cum)
			w.callers = append(w.callers, &pairCaller{c: c, acquirer: acquirers[i],
				name: func() string { return list[pick.next()] }})
		}
		return w, nil
	},
}

// semaphoreWorkload removes its names when it ends: semaphores with a limit stay by themselves.
type semaphoreWorkload struct {
	callers
	keepers []CanStore
	names   []string
}

func (w *semaphoreWorkload) Close(ctx context.Context) error {
	deleteNames(ctx, w.keepers, w.names)
	return nil
}
