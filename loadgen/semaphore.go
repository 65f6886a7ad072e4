// How fast is a semaphore with fewer units than callers?

package loadgen

import (
	"cmp"
	"context"
)

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
