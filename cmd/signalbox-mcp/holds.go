package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

const (
	maxHolds   = 32              // of all agents, with names that are waited for
	placeKept  = time.Minute     // how long the place in a queue is kept when no call waits
	answerTime = 8 * time.Second // how long a call waits for the cluster beyond its wait
)

// want is how names are wanted.
type want struct {
	shared bool
	units  uint64 // of a semaphore that exists; 0: the names are locks
	labels string // of its slots
}

// claim is an agent's place in the queue of a name or, with a lease, its hold.
type claim struct {
	*attempt
	lease     *client.Lease // nil: it waits
	since     time.Time
	preempted bool      // the agent was told so
	ending    time.Time // the end that it was warned of
}

// attempt is an acquire, of one name or of several, that calls wait for.
type attempt struct {
	names []string
	want
	keeps    bool               // its place, of a single name, is kept for a while when no call waits
	leave    context.CancelFunc // the queue
	done     chan struct{}      // closed at its end
	err      error              // after done; nil: the names are held
	answered bool               // a call has got the end
	left     bool
	waiting  int // calls
	// until is how long the place, or what was granted meanwhile, is kept; zero: a call waits. The
	// agent was told what was granted if announced.
	until     time.Time
	announced bool
}

// begin finds which of the names are held already, and the attempt at the others: nil if there are
// none. It goes on with the place of a single name.
func (a *agent) begin(
	s *client.Session, names []string, w want, keeps bool, opts []client.AcquireOption,
) (held []*claim, t *attempt, err error) {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.sweep()
	var missing []string
	for _, name := range names {
		switch c := a.claims[name]; {
		case c == nil:
			missing = append(missing, name)
		case c.want != w || !c.answered && (!c.keeps || len(names) > 1):
			return nil, nil, refuse("This agent has %s, or waits for it, in another way. Release it, then lock it again.", quote(name))
		case !c.answered:
			c.waiting, c.until = c.waiting+1, time.Time{}
			return nil, c.attempt, nil
		default:
			held = append(held, c)
		}
	}
	n := len(missing)
	for _, other := range a.all.list {
		n += len(other.claims)
	}
	if n > maxHolds {
		return nil, nil, refuse("That would be %d names that this server holds or waits for, of %d: release some first.", n, maxHolds)
	}
	if len(missing) == 0 {
		return held, nil, nil
	}
	ctx, leave := context.WithCancel(a.all.ctx)
	t = &attempt{names: missing, want: w, keeps: keeps, leave: leave, done: make(chan struct{}), waiting: 1}
	wants := make([]client.Want, len(missing))
	for i, name := range missing {
		wants[i].Name, a.claims[name] = a.all.prefix+name, &claim{attempt: t}
	}
	go func() {
		g, err := s.AcquireAll(ctx, wants, opts...)
		a.end(t, g, err)
	}()
	return held, t, nil
}

// end takes in what an attempt has come to.
func (a *agent) end(t *attempt, g *client.LeaseGroup, err error) {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	close(t.done)
	t.leave()
	switch t.err = err; {
	case t.left && err == nil:
		a.all.background(g.Release)
	case err == nil:
		for _, name := range t.names {
			a.claims[name].lease, a.claims[name].since = g.Lease(a.all.prefix+name), time.Now()
		}
	case !t.left:
		a.forget(t)
		a.report(t)
	}
}

// report notifies the agent of an attempt that failed, unless a call was told or will be.
func (a *agent) report(t *attempt) {
	if t.waiting == 0 && closed(t.done) && t.err != nil && !t.answered {
		a.notice(t.names[0], "its place in the queue, "+lossReason(t.err), true)
	}
}

// forget leaves the queues of an attempt, whose names are not held.
func (a *agent) forget(t *attempt) {
	t.leave()
	for _, name := range t.names {
		delete(a.claims, name)
	}
}

// await waits for an attempt until ctx or the time ends. Until then the place of a single name is
// kept, so that a call that the host cancelled can be repeated; zero: it is not.
func (a *agent) await(ctx context.Context, t *attempt, wait time.Duration) (until time.Time, err error) {
	if !t.keeps {
		wait += answerTime // the server ends the wait
	}
	select {
	case <-t.done:
	case <-time.After(wait):
	case <-ctx.Done():
	}
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	t.waiting--
	switch canceled := ctx.Err() != nil; {
	case t.left:
		return until, refuse("Another call of this agent released what this call waited for. Call lock again.")
	case closed(t.done) && !canceled:
		t.answered = true
		return until, t.err
	case !t.keeps:
		a.drop(t)
		return until, cmp.Or(ctx.Err(), context.DeadlineExceeded) // the cluster should have answered
	}
	if until = time.Now().Add(placeKept); t.waiting == 0 {
		t.until = until
	}
	time.AfterFunc(placeKept, func() { a.expire(t, until) })
	a.report(t)
	return until, ctx.Err()
}

// expire ends a place that was kept until then, unless a call has waited for it since.
func (a *agent) expire(t *attempt, until time.Time) {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	if t.until.Equal(until) && a.drop(t) {
		a.notice(t.names[0], "it was granted, and given back since lock was not called again", true)
	}
}

// drop ends an attempt that no call waits for, and gives back what it was granted if no call was
// told so; it reports whether there was any.
func (a *agent) drop(t *attempt) (granted bool) {
	if t.waiting > 0 || t.left || t.answered {
		return false
	}
	if !closed(t.done) {
		t.left = true
		a.forget(t)
	}
	for name, c := range a.claims {
		if c.attempt == t {
			granted = true
			delete(a.claims, name)
			a.all.background(c.lease.Release)
		}
	}
	return granted
}

func (a *agent) notice(name, why string, lost bool) {
	a.notices = addNotice(a.notices, notice{time.Now(), []string{name}, why, lost})
}

// sweep looks what has become of the holds: each second, and before an answer. It reads the clock,
// so it is right in the first moment after a pause.
func (a *agent) sweep() {
	for _, name := range slices.Sorted(maps.Keys(a.claims)) {
		c := a.claims[name]
		if c.lease == nil {
			continue
		}
		if ctx := c.lease.Context(); ctx.Err() != nil {
			delete(a.claims, name)
			a.notice(name, lossReason(context.Cause(ctx)), true)
			continue
		}
		until := c.end()
		if !c.answered && !c.announced && c.waiting == 0 {
			c.announced = true // once, of a single name
			a.notice(name, "this agent holds it now. Call lock on it by "+stamp(until)+" to keep it.", false)
		}
		if !c.preempted && closed(c.lease.Preempted()) {
			c.preempted = true
			a.notice(name, "a waiter wants this back. Save your work and release it by "+stamp(until)+".", false)
		} else if closed(c.lease.Ending()) && until.Sub(c.ending).Abs() > time.Second {
			c.ending = until
			a.notice(name, "its longest time is nearly over: it is released by "+stamp(until)+". Call lock on it to keep it longer.", false)
		}
	}
}

// end is when a hold ends by itself: at its longest time, or when nobody asks for what was granted.
func (c *claim) end() time.Time {
	if until := c.lease.Until(); c.answered || c.waiting > 0 || until.Before(c.until) {
		return until
	}
	return c.until
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// takeNotices returns what the agent has not been told.
func (a *agent) takeNotices() (lines []string) {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.sweep()
	lines, a.notices = takeNotices(a.notices)
	return lines
}

// release gives a name back, and says what became of it.
func (a *agent) release(ctx context.Context, n string) name {
	a.all.mu.Lock()
	c := a.claims[n]
	delete(a.claims, n)
	if c != nil && c.lease == nil {
		c.left = true
		a.forget(c.attempt)
	}
	a.all.mu.Unlock()
	switch {
	case c == nil:
		return name{Name: n, State: "not_held", Why: []string{quote(n) + " was not held by this agent."}}
	case c.lease == nil:
		return name{Name: n, State: "left_queue", Why: []string{"Left the queue of " + quote(n) + "."}}
	}
	text := "Released " + quote(n) + "."
	if c.lease.Release(ctx) != nil {
		text = "Released " + quote(n) + ", but the cluster has not confirmed it yet: this server goes on asking for it."
	}
	if lost := c.lease.Lost(); lost != nil { // before the release
		a.all.mu.Lock()
		defer a.all.mu.Unlock()
		a.notice(n, lossReason(lost), true)
		return name{Name: n, State: "not_held", Why: []string{quote(n) + " was lost before it was released."}}
	}
	return name{Name: n, State: "released", Why: []string{text}}
}

// own returns the agent's claim on a name.
func (a *agent) own(n string) name {
	a.sweep()
	x, suffix := name{Name: n, Agent: a.name, State: "not_held"}, "."
	if a.name != "" {
		suffix = " for the agent " + quote(a.name) + "."
	}
	switch c := a.claims[n]; {
	case c == nil:
		x.Why = []string{"You do NOT hold " + quote(n) + suffix}
	case c.lease == nil:
		x.State, x.Until, x.Why = "waiting", stamp(c.until), []string{"Waiting for " + quote(n) + suffix}
	default:
		x.State, x.Token, x.Slots = "held", c.lease.Token(), c.lease.Slots()
		x.Since, x.Until = stamp(c.since), stamp(c.end())
		text := fmt.Sprintf("You hold %s with token %d since %s, until %s at the latest", quote(n), x.Token, x.Since, x.Until)
		if len(x.Slots) > 0 {
			text += ", slots " + quoteAll(x.Slots[:min(maxEntries, len(x.Slots))])
		}
		x.Why = []string{text + suffix}
	}
	return x
}
