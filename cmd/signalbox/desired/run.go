package desired

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Cluster reads objects and carries changes out.
type Cluster interface {
	// Get reads an object; nil if it is not there.
	Get(ctx context.Context, k Key) (*Object, error)
	// Do makes a change. It makes it only if the object is as the change has it, as far as the
	// request can say that.
	Do(ctx context.Context, c *Change) error
	// Classify says what an error of Do means.
	Classify(err error) Verdict
}

// Verdict classifies the error of a change.
type Verdict uint8

const (
	Failed  Verdict = iota // others would fail too
	Refused                // it cannot be as things are; others may
	Lost                   // it may have been made or not; it may be tried again
)

// Workers is how many lanes are worked on at once.
const Workers = 256

// attempts is how often an object is compared before it counts as one that does not come to rest.
const attempts = 3

// Each calls do for each of n items, several at once, until one fails, and returns the first error.
func Each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, Workers) {
		wg.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// Run makes changes, in their order, and calls done with each that was made, in the same order.
// What the cluster refuses is kept, and the rest goes on; another error ends it.
func Run(ctx context.Context, changes []*Change, cluster Cluster, done func(*Change) error) (kept []Kept, err error) {
	for len(changes) > 0 && err == nil {
		n := 1
		for n < len(changes) && changes[n].stage == changes[0].stage {
			n++
		}
		stage := changes[:n]
		changes = changes[n:]
		lanes, index := [][]int(nil), map[string]int{}
		for i, c := range stage {
			at, ok := index[c.lane]
			if !ok {
				at = len(lanes)
				index[c.lane], lanes = at, append(lanes, nil)
			}
			lanes[at] = append(lanes[at], i)
		}
		made, why := make([]bool, n), make([]string, n)
		err = Each(ctx, len(lanes), func(ctx context.Context, lane int) error {
			for _, i := range lanes[lane] {
				var err error
				if made[i], why[i], err = make1(ctx, stage[i], cluster); err != nil {
					return fmt.Errorf("%s: %w", stage[i].Key, err)
				}
			}
			return nil
		})
		for i, c := range stage {
			switch {
			case why[i] != "":
				kept = append(kept, Kept{c.Key, why[i]})
			case made[i]:
				if failed := done(c); err == nil {
					err = failed
				}
			}
		}
	}
	return kept, err
}

// make1 makes a change. If the object has changed since it was read, it is compared again. why is
// the reason for leaving it as it is; made is also false if somebody else has made the change.
func make1(ctx context.Context, c *Change, cluster Cluster) (made bool, why string, err error) {
	for n := 1; ; n++ {
		err := cluster.Do(ctx, c)
		if err == nil {
			return true, "", nil
		}
		verdict := cluster.Classify(err)
		if verdict == Failed || verdict == Lost && n == attempts {
			return false, "", err
		}
		have, failed := cluster.Get(ctx, c.Key)
		if failed != nil {
			return false, "", failed
		}
		next := changeOf(c.Want, have)
		switch {
		case next == nil:
			return verdict == Lost, "", nil
		case verdict == Refused && (n == attempts || next.same(c)):
			return false, err.Error(), nil
		}
		c.Op, c.Fields, c.Have = next.Op, next.Fields, next.Have
	}
}

// same reports whether two changes of an object are of the same state of it.
func (c *Change) same(o *Change) bool {
	return c.Op == o.Op && slices.Equal(c.Fields, o.Fields) && (c.Have == nil) == (o.Have == nil) &&
		(c.Have == nil || c.Have.Revision == o.Have.Revision)
}
