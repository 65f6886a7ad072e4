package sim

import (
	"errors"

	"github.com/signalbox-dev/signalbox/client/internal/core"
)

// Package driver keeps the records of calls in pools, with what wakes their callers, and a program
// that is woken uses its record for another call. The programs here do so too. What is returned to a
// pool is scribbled over; a second return, a second wake and a wake of what is in a pool are
// violations.

// waiter is what wakes a caller, with room for one wake, as in package driver.
type waiter struct {
	w     *simulation
	owner *call // nil: its record is in the pool
	woken int
}

// Done implements core.Waiter.
func (x *waiter) Done() {
	switch x.woken++; {
	case x.owner == nil:
		x.w.fail("the record of a call is in the pool, and its caller is woken")
	case x.woken > 1 || x.owner.done:
		x.w.fail("a caller is woken twice")
	}
}

// pool keeps records. The one that was returned last is taken first.
type pool[T any] struct{ free []*T }

func (p *pool[T]) take() *T {
	n := len(p.free) - 1
	if n < 0 {
		return new(T)
	}
	x := p.free[n]
	p.free = p.free[:n]
	return x
}

func (p *pool[T]) put(w *simulation, x *T) {
	for _, other := range p.free {
		if other == x {
			w.fail("the record of a call is returned to the pool twice")
		}
	}
	p.free = append(p.free, x)
}

var errScribbled = errors.New("this is the result of a call that was over")

// callOf is the call of a record of a pool. back is called with a waiter that nobody waits for.
func (c *client) callOf(r *core.Request, back func(core.Request)) *call {
	x := &call{request: r, waiter: &waiter{w: c.w}}
	x.waiter.owner, r.Waiter = x, x.waiter
	x.back = func() {
		x.waiter.owner = nil
		back(core.Request{Waiter: x.waiter, Result: core.Result{Err: errScribbled}})
		c.w.counts["record reused"]++
	}
	return x
}

func (c *client) takeAcquire() (*core.Acquire, *call) {
	a := c.acquires.take()
	x := c.callOf(&a.Request, func(scribbled core.Request) {
		*a = core.Acquire{Request: scribbled, Lease: &core.Lease{}, Token: 1 << 60}
		c.acquires.put(c.w, a)
	})
	x.acquire = a
	return a, x
}

func (c *client) takeRelease() (*core.Release, *call) {
	r := c.releases.take()
	x := c.callOf(&r.Request, func(scribbled core.Request) {
		*r = core.Release{Request: scribbled, Released: true, Transferred: true}
		c.releases.put(c.w, r)
	})
	r.Msg.To = 0
	return r, x
}

func (c *client) takeCall() (*core.Call, *call) {
	a := c.calls.take()
	return a, c.callOf(&a.Request, func(scribbled core.Request) {
		*a = core.Call{Request: scribbled}
		c.calls.put(c.w, a)
	})
}
