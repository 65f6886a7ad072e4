// Package dial makes one connection when several addresses may do. The address of a machine that is
// off is silent, so attempts overlap: the next address is tried while those before it have not
// answered yet, and the first connection counts. A name that has several IP addresses is several
// addresses.
//
// A client with one address, or whose first address answers at once, costs no goroutine and no
// timer. The next address is tried at once when an attempt fails. An attempt that was overtaken is
// not waited for; who waits for Race.Go waits for it. Where the caller brings its own dialer, names
// are left to it: it may reach them through a proxy that alone can look them up.
package dial

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"
)

// Stagger is how long an attempt is waited for before the next one begins beside it. One that fails
// is followed at once.
const Stagger = 300 * time.Millisecond

// Target is the address of one attempt.
type Target struct {
	Address string // host:port as it was given: a certificate has to be good for its host
	Dial    string // the same, or with one of the IP addresses that the host has
}

// String names the target in errors.
func (t Target) String() string {
	if t.Address == t.Dial {
		return t.Address
	}
	return t.Address + " (" + t.Dial + ")"
}

// Race is a way to connect. C is a connection.
type Race[C any] struct {
	// Connect makes a connection. It returns soon after its context has ended, and bounds the time
	// for one target.
	Connect func(ctx context.Context, to Target) (C, error)
	// Discard gets each connection that was made too late.
	Discard func(C)
	// Lookup finds the IP addresses of a host, the preferred one first, and bounds the time. Nil:
	// Connect gets names.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Go starts a goroutine, unless none may start any more.
	Go func(func()) bool
}

// errOvertaken ends attempts that are not needed any more.
var errOvertaken = errors.New("another address answered first")

// Run tries addresses in their order until a connection is made, all have failed, or ctx ends.
// failed has the error of each attempt, in the order in which they ended. An address that was not
// tried because ctx ended has none.
//
// The first attempt, and each that follows one that failed, runs on the goroutine of the caller:
// where no address is silent, there is no other.
func (r *Race[C]) Run(ctx context.Context, addresses []string) (c C, ok bool, failed []error) {
	if len(addresses) == 0 {
		return c, false, nil
	}
	x := &race[C]{Race: r, over: make(chan struct{})}
	for _, a := range addresses {
		x.queue = append(x.queue, Target{Address: a})
	}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	defer x.cancel(errOvertaken)
	x.work()
	<-x.over
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.won, x.hasWon, x.failed
}

// race is one Run. Each of its goroutines makes one attempt after the other.
type race[C any] struct {
	*Race[C]
	ctx    context.Context
	cancel context.CancelCauseFunc
	over   chan struct{} // closed with the outcome

	mu     sync.Mutex
	queue  []Target // not tried yet; without Dial: not looked up either
	active int      // attempts under way
	ended  bool     // over is closed
	next   *time.Timer
	won    C
	hasWon bool
	failed []error
}

func (x *race[C]) work() {
	x.mu.Lock()
	to, ok := x.take()
	x.mu.Unlock()
	for ok {
		c, err := x.attempt(to)
		to, ok = x.finish(c, err)
	}
}

// take begins the next attempt, if there is one to begin. mu is held.
func (x *race[C]) take() (to Target, ok bool) {
	if x.ended || len(x.queue) == 0 || x.ctx.Err() != nil {
		if x.active == 0 && !x.ended {
			x.end()
		}
		return to, false
	}
	to, x.queue = x.queue[0], x.queue[1:]
	x.active++
	x.arm()
	return to, true
}

// arm has the next attempt begin after Stagger. mu is held.
func (x *race[C]) arm() {
	switch {
	case len(x.queue) == 0:
		if x.next != nil {
			x.next.Stop()
		}
	case x.next == nil:
		x.next = time.AfterFunc(Stagger, func() { x.Go(x.work) })
	default:
		x.next.Reset(Stagger)
	}
}

// end ends the race. mu is held.
func (x *race[C]) end() {
	x.ended, x.queue = true, nil
	x.arm()
	x.cancel(errOvertaken)
	close(x.over)
}

// attempt connects to a target, or, if its host has several IP addresses, to the first of them: the
// others go to the head of the queue.
func (x *race[C]) attempt(to Target) (c C, err error) {
	if to.Dial == "" {
		list, err := addressesOf(x.ctx, to.Address, x.Lookup)
		if err != nil {
			return c, err
		}
		to.Dial = list[0]
		if len(list) > 1 {
			x.mu.Lock()
			if !x.ended {
				var others []Target
				for _, a := range list[1:] {
					others = append(others, Target{Address: to.Address, Dial: a})
				}
				x.queue = append(others, x.queue...)
				x.arm()
			}
			x.mu.Unlock()
		}
	}
	return x.Connect(x.ctx, to)
}

// finish takes the outcome of an attempt, and begins the next one.
func (x *race[C]) finish(c C, err error) (to Target, ok bool) {
	x.mu.Lock()
	x.active--
	late := err == nil && x.ended
	switch {
	case x.ended:
	case err != nil:
		x.failed = append(x.failed, err)
		to, ok = x.take()
	default:
		x.won, x.hasWon = c, true
		x.end()
	}
	x.mu.Unlock()
	if late {
		x.Discard(c)
	}
	return to, ok
}
