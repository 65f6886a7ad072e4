package ratelimit

import (
	"context"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Together admits calls within several limits at once.
type Together struct {
	list []*Limiter
	err  error
}

// All makes limits that a call needs together, such as one on requests and one on tokens. A call is
// admitted by all or takes nothing of any: nobody holds units of one while it waits for another.
// Where the server gives out the units, it decides about all resources of a tree at once. The
// limiters stay the caller's; all are of one client.
func All(limiters ...*Limiter) *Together {
	x := &Together{}
	for _, l := range limiters {
		if len(x.list) > 0 && l.e != x.list[0].e {
			x.err = protocol.Errorf(protocol.StatusBadRequest,
				"limiters of several clients cannot admit a call together; join with one client")
		}
		if !slices.ContainsFunc(x.list, func(y *Limiter) bool { return y.l == l.l }) {
			x.list = append(x.list, l)
		}
	}
	if len(x.list) > protocol.MaxLimitTogether {
		x.err = protocol.Errorf(protocol.StatusBadRequest, "a call needs %d limits together; at most %d are allowed", len(x.list), protocol.MaxLimitTogether)
	}
	return x
}

// Allow takes n units of each now, or none of any. It never blocks, as [Limiter.Allow].
func (x *Together) Allow(n uint64) bool {
	amount, ok := amountOf(n)
	if x.err != nil {
		return false
	}
	for _, l := range x.list {
		if l.ctx.Err() != nil {
			return false
		}
		l.l.attempt(amount)
	}
	if amount == 0 {
		return true
	}
	short := x.list[:0:0]
	at := now()
	if ok {
		short = x.take(at, amount)
	}
	if ok && len(short) == 0 {
		for _, l := range x.list {
			l.l.allowed.Add(amount)
		}
		return true
	}
	for _, l := range x.list {
		if !ok || slices.Contains(short, l) {
			l.denied(amount, ok)
		}
	}
	return false
}

// take takes an amount of each, or returns those that have too little.
func (x *Together) take(at int64, amount uint64) (short []*Limiter) {
	took := make([]*bucket, 0, 8)
	for _, l := range x.list {
		if l.l.shadow.Load() {
			continue
		}
		if b := l.l.deciding(at); b != nil && l.l.queued.Load() == 0 && b.take(at, amount) == admitted {
			took = append(took, b)
			continue
		}
		short = append(short, l)
	}
	if len(short) > 0 {
		for _, b := range took {
			b.giveBack(amount)
		}
	}
	return short
}

// Wait takes n units of each, and waits until all have them, in the order of calls of each. Errors:
// those of Limiter.Wait.
func (x *Together) Wait(ctx context.Context, n uint64) error {
	r, err := x.Reserve(n)
	if err != nil {
		return err
	}
	return r.Wait(ctx)
}

// WaitAtMost is [Limiter.WaitAtMost] for all.
func (x *Together) WaitAtMost(ctx context.Context, n uint64, most time.Duration) (ok bool, err error) {
	r, err := x.reserve(n, most <= 0)
	if err != nil {
		return false, err
	}
	return r.waitAtMost(ctx, most)
}

// Reserve takes a place in the queues of all for n units of each. Errors: those of Wait that come
// at once.
func (x *Together) Reserve(n uint64) (*Reservation, error) { return x.reserve(n, false) }

func (x *Together) reserve(n uint64, try bool) (*Reservation, error) {
	amount, ok := amountOf(n)
	if x.err != nil {
		return nil, x.err
	}
	for _, l := range x.list {
		if err := context.Cause(l.ctx); err != nil {
			return nil, err
		}
		if (!ok || amount > l.l.most.Load()) && !l.l.shadow.Load() {
			l.l.impossible.Add(amount)
			return nil, impossible(l.l, amount)
		}
	}
	if amount == 0 || len(x.list) == 0 {
		return &Reservation{}, nil
	}
	c := &call{amount: amount, try: try}
	for _, l := range x.list {
		l.l.attempt(amount)
		c.leaves = append(c.leaves, l.l)
	}
	if len(x.take(now(), amount)) == 0 {
		for _, l := range x.list {
			l.l.allowed.Add(amount)
		}
		return &Reservation{}, nil
	}
	return enqueue(x.list[0].e, c, x.list[0].ctx)
}
