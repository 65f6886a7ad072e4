package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol/boottime"
)

const (
	maxHolds   = 32              // of all agents, with names that are waited for
	placeKept  = time.Minute     // how long the place in a queue is kept when no call waits
	answerTime = 8 * time.Second // how long a call waits for the cluster beyond its wait
	ticks      = 5 * time.Second // how often a call that waits says so
)

// want is how names are wanted.
type want struct {
	shared bool
	units  uint64 // of a semaphore that exists; 0: the names are locks
	labels string // of its slots
}

// hold is a name that an agent holds.
type hold struct {
	lease         *client.Lease
	want          want
	since         time.Time
	of            *attempt
	got           bool // a call has got it: it is not given back when nobody asks for it
	saidPreempted bool
	saidEnding    bool
}

// attempt is an acquire, of one name or of several, that calls wait for.
type attempt struct {
	names   []string
	want    want
	keeps   bool               // its place is kept for a while when no call waits
	leave   context.CancelFunc // the queue
	done    chan struct{}      // closed at its end
	err     error              // after done; nil: the names are held
	left    bool
	waiting int       // calls
	until   time.Time // how long the place, or what was granted meanwhile, is kept
}

// errReleased is the answer of a call that waits for what another call releases.
var errReleased = refuse("Another call of this agent released what this call waited for. Call lock again.")

// begin finds which of the names are held already, and the attempt at the others: nil if there are
// none. It goes on with the place of a single name.
func (a *agent) begin(
	s *client.Session, names []string, w want, keeps bool, opts []client.AcquireOption,
) (held []*hold, t *attempt, err error) {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.sweep()
	var missing []string
	for _, name := range names {
		h, other := a.holds[name], a.attempts[name]
		switch {
		case h != nil && h.want != w:
			return nil, nil, refuse("This agent holds %s in another way. Release it, then lock it again.", quote(name))
		case h != nil:
			h.got = true
			held = append(held, h)
		case other != nil && (other.want != w || !other.keeps || len(names) > 1):
			return nil, nil, refuse("This agent waits for %s already. Lock it with the same arguments, or release it first.",
				quote(name))
		case other != nil:
			other.waiting++
			return nil, other, nil
		default:
			missing = append(missing, name)
		}
	}
	if n := a.all.count() + len(missing); n > maxHolds {
		return nil, nil, refuse("That would be %d names that this server holds or waits for. It takes at most %d: release "+
			"some first.", n, maxHolds)
	}
	if len(missing) == 0 {
		return held, nil, nil
	}
	t = &attempt{names: missing, want: w, keeps: keeps, done: make(chan struct{}), waiting: 1}
	wants := make([]client.Want, len(missing))
	for i, name := range missing {
		a.attempts[name] = t
		wants[i].Name = a.all.prefix + name
	}
	var ctx context.Context
	ctx, t.leave = context.WithCancel(a.all.ctx)
	go func() {
		g, err := s.AcquireAll(ctx, wants, opts...)
		a.end(t, g, err)
	}()
	return held, t, nil
}

// count is the number of names that agents hold or wait for.
func (all *agents) count() (n int) {
	for _, a := range all.list {
		n += len(a.holds) + len(a.attempts)
	}
	return n
}

// end takes in what an attempt has come to.
func (a *agent) end(t *attempt, g *client.LeaseGroup, err error) {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	defer close(t.done)
	if t.left {
		if err == nil {
			a.all.background(g.Release)
		}
		return
	}
	a.forget(t)
	if t.err = err; err != nil {
		if t.waiting == 0 {
			a.notice(t.names[0], "its place in the queue, "+a.all.reason(err), true)
		}
		return
	}
	for _, name := range t.names {
		h := &hold{lease: g.Lease(a.all.prefix + name), want: t.want, since: time.Now(), of: t}
		a.holds[name] = h
		context.AfterFunc(h.lease.Context(), func() {
			a.all.mu.Lock()
			defer a.all.mu.Unlock()
			a.lost(name, h)
		})
	}
	if t.waiting == 0 {
		a.notice(t.names[0], "this agent holds it now. Call lock on it by "+stamp(t.until)+" to keep it.", false)
	}
}

func (a *agent) forget(t *attempt) {
	t.leave()
	for _, name := range t.names {
		delete(a.attempts, name)
	}
}

// await waits for an attempt until ctx or the time ends; tick is called now and then. kept: the
// names are not held, and the place is kept.
func (a *agent) await(
	ctx context.Context, t *attempt, wait time.Duration, tick func(waited time.Duration),
) (kept bool, err error) {
	if !t.keeps {
		wait += answerTime // the server ends the wait
	}
	began, over, ticker := time.Now(), time.NewTimer(wait), time.NewTicker(ticks)
	defer over.Stop()
	defer ticker.Stop()
	for waits := true; waits; {
		select {
		case <-ticker.C:
			tick(time.Since(began))
			continue
		case <-t.done:
		case <-over.C:
		case <-ctx.Done():
		}
		waits = false
	}
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	t.waiting--
	switch {
	case ctx.Err() != nil:
		a.drop(t)
		return false, ctx.Err()
	case t.left:
		return false, errReleased
	case t.err != nil:
		return false, t.err
	case closed(t.done):
		for _, h := range a.holds {
			h.got = h.got || h.of == t
		}
		return false, nil
	case !t.keeps:
		a.drop(t)
		return false, context.DeadlineExceeded // the cluster should have answered
	}
	until := time.Now().Add(placeKept)
	t.until = until
	time.AfterFunc(placeKept, func() { a.expire(t, until) })
	return true, nil
}

// expire ends a place that was kept until then, unless a call has waited for it since.
func (a *agent) expire(t *attempt, until time.Time) {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	if t.until.Equal(until) && a.drop(t) {
		a.notice(t.names[0], "it was granted, and given back since lock was not called again", true)
	}
}

// drop ends an attempt that no call waits for, and gives back what it was granted if no call has
// got it; it reports whether there was any.
func (a *agent) drop(t *attempt) (granted bool) {
	if t.waiting > 0 || t.left {
		return false
	}
	if !closed(t.done) {
		t.left = true
		a.forget(t)
	}
	for name, h := range a.holds {
		if h.of == t && !h.got {
			granted = true
			delete(a.holds, name)
			a.all.background(h.lease.Release)
		}
	}
	return granted
}

// lost notices that a hold has ended, unless it was released.
func (a *agent) lost(name string, h *hold) {
	if ctx := h.lease.Context(); ctx.Err() != nil && a.holds[name] == h {
		delete(a.holds, name)
		a.notice(name, a.all.reason(context.Cause(ctx)), true)
	}
}

func (all *agents) reason(cause error) string {
	return lossReason(cause, all.pauses.look(boottime.Now()))
}

func (a *agent) notice(name, why string, lost bool) {
	a.notices = addNotice(a.notices, notice{time.Now(), []string{name}, why, lost})
}

// sweep looks what has become of the holds. It reads the clock, so it is right in the first moment
// after a pause.
func (a *agent) sweep() {
	for _, name := range slices.Sorted(maps.Keys(a.holds)) {
		h := a.holds[name]
		a.lost(name, h)
		if a.holds[name] != h {
			continue
		}
		if !h.saidPreempted && closed(h.lease.Preempted()) {
			h.saidPreempted = true
			a.notice(name, "a waiter wants this back. Save your work and release it"+by(h.lease)+".", false)
		} else if !h.saidEnding && closed(h.lease.Ending()) {
			h.saidEnding = true
			a.notice(name, "its longest time is nearly over: it is released"+by(h.lease)+
				". Call lock on it to keep it longer.", false)
		}
	}
}

func by(l *client.Lease) string {
	if until := l.Until(); !until.IsZero() {
		return " by " + stamp(until)
	}
	return ""
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

// prolong asks for more time for a hold, and says why there is no more.
func (a *agent) prolong(ctx context.Context, h *hold) []string {
	if err := h.lease.Extend(ctx, a.all.maxHold); err != nil {
		return []string{quote(h.lease.Name()[len(a.all.prefix):]) +
			" is not held longer: a waiter wants it, or its semaphore does not allow it."}
	}
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	h.saidEnding = false
	return nil
}

// release gives a name back, and says what became of it.
func (a *agent) release(ctx context.Context, name string) (state, text string) {
	a.all.mu.Lock()
	h, t := a.holds[name], a.attempts[name]
	delete(a.holds, name)
	if t != nil {
		t.left = true
		a.forget(t)
	}
	a.all.mu.Unlock()
	switch {
	case t != nil:
		return "left_queue", "Left the queue of " + quote(name) + "."
	case h == nil || h.lease.Lost() != nil:
		return "not_held", quote(name) + " was not held by this agent."
	}
	err := h.lease.Release(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrOutcomeUnknown) {
		return "released", fmt.Sprintf("Released %s, but the cluster has not confirmed it: it is free %s after the cluster "+
			"was last heard from.", quote(name), client.DefaultTimeout)
	}
	return "released", "Released " + quote(name) + "."
}

// pauses notices that the process did not run: its machine slept, or it was stopped.
type pauses struct {
	mu                    sync.Mutex
	looked, ended, length time.Duration // by a clock that goes on while the machine sleeps
}

const (
	shortestPause = 5 * time.Second  // looks come each second, and a session is lost after 6 s or more
	pauseCounts   = 30 * time.Second // after which a loss is not laid to it
)

// look is called each second, and when something was lost. It returns the length of a pause that
// ended lately, 0 without one.
func (p *pauses) look(now time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.looked > 0 && now-p.looked >= shortestPause {
		p.ended, p.length = now, now-p.looked
	}
	if p.looked = now; now-p.ended > pauseCounts {
		p.length = 0
	}
	return p.length
}
