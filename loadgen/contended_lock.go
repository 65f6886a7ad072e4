// How long does a lock take from one owner to the next?

package loadgen

import (
	"context"
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
