package loadgen

import (
	"context"
	"fmt"
)

// lockPairs: locks that nobody else wants. A pair is lock and unlock, each answered before the next
// begins. Each caller has names of its own.
var lockPairs = &Scenario{
	Name:   "lock-pairs",
	Short:  "lock and unlock names that nobody else wants",
	Series: []string{"pair"},
	Build: func(ctx context.Context, c *Env) (Workload, error) {
		n := c.callerCount()
		list := c.names(n)
		if len(list) < n {
			return nil, fmt.Errorf("%d callers need at least as many keys to lock names of their own; %d are given", n, len(list))
		}
		acquirers, _, err := c.acquirers(ctx, n, c.sessionCount(n), "lock", 0)
		if err != nil {
			return nil, err
		}
		small, large := zipf(len(list)/n, c.Skew), zipf(len(list)/n+1, c.Skew)
		w := make(callers, n)
		for i := range w {
			// The names i, i+n, i+2n ... are this caller's.
			own, cum := len(list)/n, small
			if i < len(list)%n {
				own, cum = own+1, large
			}
			w[i] = &pairCaller{acquirer: acquirers[i], names: list, first: i, step: n, pick: newPicker(c.Seed, i, own, cum)}
		}
		return w, nil
	},
}

type pairCaller struct {
	acquirer    Acquirer
	names       []string
	first, step int
	pick        *picker
}

func (p *pairCaller) Do(ctx context.Context, _ *Recorder) error {
	held, err := p.acquirer.Acquire(ctx, p.names[p.first+p.step*p.pick.next()])
	if err != nil {
		return err
	}
	return held.Release(ctx)
}
