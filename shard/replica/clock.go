package replica

import (
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol/boottime"
)

// Clock is the time of this machine.
type Clock interface {
	// Now is a monotonic time since an arbitrary start. It should advance while the machine sleeps.
	Now() time.Duration
	// Wall is the time of day, for display only.
	Wall() time.Time
}

// SystemClock is the machine's clock: CLOCK_BOOTTIME on Linux, which advances while the machine is
// suspended, elsewhere the runtime's monotonic clock.
func SystemClock() Clock { return systemClock{} }

type systemClock struct{}

func (systemClock) Now() time.Duration { return boottime.Now() }
func (systemClock) Wall() time.Time    { return time.Now() }

// ManualClock is a clock for tests that moves only by hand. A host with one has no ticker: each
// step of [ManualClock.Advance] ticks its shards and waits until they are quiet.
type ManualClock struct {
	mu        sync.Mutex
	now       time.Duration
	wall      time.Time
	next      int
	ticks     map[int]func(thorough bool)
	skipHosts map[int]skipper
	skips     []timeSkip // oldest first
}

// skipper is a host whose idle time can be skipped.
type skipper interface {
	due() (in time.Duration, has bool)
	skipTime(d time.Duration)
}

type timeSkip struct {
	to    time.Duration // the clock after it
	d     time.Duration
	total time.Duration // of this skip and all before
}

// ManualStep is the longest step of [ManualClock.Advance], below the gap at which a leader takes
// its process for paused.
const ManualStep = 250 * time.Millisecond

// NewManualClock returns a clock that shows one hour and the given time of day.
func NewManualClock(wall time.Time) *ManualClock {
	return &ManualClock{now: time.Hour, wall: wall, ticks: make(map[int]func(bool)), skipHosts: make(map[int]skipper)}
}

func (c *ManualClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *ManualClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

// SetWall sets the time of day, which is for display only.
func (c *ManualClock) SetWall(wall time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = wall
}

// Advance moves the clock by d in steps of at most [ManualStep], and ticks all its hosts after each
// step.
func (c *ManualClock) Advance(d time.Duration) {
	for d > 0 {
		step := min(d, ManualStep)
		d -= step
		c.Jump(step)
		c.Tick()
	}
}

// Jump moves the clock at once, without a tick, like a pause of the process.
func (c *ManualClock) Jump(d time.Duration) {
	c.mu.Lock()
	c.now += d
	c.wall = c.wall.Add(d)
	c.mu.Unlock()
}

// Tick ticks all hosts, as each step of Advance does.
func (c *ManualClock) Tick() { c.tick(true) }

// Step moves the clock by d, at most [ManualStep], and ticks all hosts. If nothing was due it does
// not wait until the shards are quiet, which is most of the cost of a Tick.
func (c *ManualClock) Step(d time.Duration) {
	c.Jump(d)
	c.tick(false)
}

// Due returns the time until the next deadline of any shard; has is false without one. The time is
// 0 for a deadline that is due, and for a host that is too busy to tell.
func (c *ManualClock) Due() (in time.Duration, has bool) {
	for _, h := range c.skippers() {
		if d, ok := h.due(); ok && (!has || d < in) {
			in, has = d, true
		}
	}
	return in, has
}

// SkipIdle moves the clock by d at once, in which nothing is due: see Due. Log time moves too, the
// process does not count as paused, and periodic work of leaders is skipped. Between is called
// after the clock has moved and before any host sees it.
func (c *ManualClock) SkipIdle(d time.Duration, between func()) {
	c.mu.Lock()
	c.now += d
	c.wall = c.wall.Add(d)
	total := d
	if n := len(c.skips); n > 0 {
		total += c.skips[n-1].total
	}
	c.skips = append(c.skips, timeSkip{c.now, d, total})
	c.mu.Unlock()
	for _, h := range c.skippers() {
		h.skipTime(d)
	}
	between()
	c.Tick()
}

func (c *ManualClock) skippers() []skipper {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]skipper, 0, len(c.skipHosts))
	for i := range c.next {
		if h := c.skipHosts[i]; h != nil {
			list = append(list, h)
		}
	}
	return list
}

// withoutSkips returns a time of this clock less the skipped time before it.
func (c *ManualClock) withoutSkips(t time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.skips) - 1; i >= 0; i-- {
		switch l := &c.skips[i]; {
		case t >= l.to:
			return t - l.total
		case t > l.to-l.d: // within the skip
			return l.to - l.total
		}
	}
	return t
}

// register adds an entry to a table of the clock; the result removes it.
func register[T any](c *ManualClock, table map[int]T, entry T) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.next
	c.next++
	table[id] = entry
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(table, id)
	}
}

func (c *ManualClock) tick(thorough bool) {
	c.mu.Lock()
	fns := make([]func(bool), 0, len(c.ticks))
	for i := range c.next {
		if fn := c.ticks[i]; fn != nil {
			fns = append(fns, fn)
		}
	}
	c.mu.Unlock()
	for _, fn := range fns {
		fn(thorough)
	}
}

// OnTick adds a function that each step calls, in the order of addition; the result removes it.
// thorough is false for [ManualClock.Step].
func (c *ManualClock) OnTick(fn func(thorough bool)) (remove func()) {
	return register(c, c.ticks, fn)
}
