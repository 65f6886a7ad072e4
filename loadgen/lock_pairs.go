// How fast are locks that nobody else wants?

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
