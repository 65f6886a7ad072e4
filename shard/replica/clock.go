package replica

import (
	"sync"
	"time"
)

// Clock is the time of this machine.
type Clock interface {
	// Now is a monotonic time since an arbitrary start. It should go on while the machine sleeps.
	Now() time.Duration
	// Wall is the time of day, for display only.
	Wall() time.Time
}

// SystemClock is the machine's clock: CLOCK_BOOTTIME on Linux, which goes on while the machine is suspended, the runtime's monotonic clock
// elsewhere.
func SystemClock() Clock { return systemClock{} }

type systemClock struct{}

func (systemClock) Now() time.Duration { return bootTime() }
func (systemClock) Wall() time.Time    { return time.Now() }

var processStart = time.Now()

// monotonic is the fallback: it stands still while the machine is suspended.
func monotonic() time.Duration { return time.Since(processStart) }

// ManualClock moves only when told to, for tests. A host opened with one has no ticker of its own: each step of [ManualClock.Advance] ticks its
// shards and waits until they are quiet.
type ManualClock struct {
	mu    sync.Mutex
	now   time.Duration
	wall  time.Time
	next  int
	ticks map[int]func(thorough bool)
}

// ManualStep is the longest step of [ManualClock.Advance]: it is below the gap at which a leader takes its process for paused.
const ManualStep = 250 * time.Millisecond

// NewManualClock starts a clock at an hour after its own start and the given time of day.
func NewManualClock(wall time.Time) *ManualClock {
	return &ManualClock{now: time.Hour, wall: wall, ticks: make(map[int]func(bool))}
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

// SetWall sets the time of day, which nothing but what is shown goes by.
func (c *ManualClock) SetWall(wall time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = wall
}

// Advance moves the clock by d in steps of at most [ManualStep], and ticks every host that uses it after each step.
func (c *ManualClock) Advance(d time.Duration) {
	for d > 0 {
		step := min(d, ManualStep)
		d -= step
		c.Jump(step)
		c.Tick()
	}
}

// Jump moves the clock at once, without a tick, as a pause of the process does.
func (c *ManualClock) Jump(d time.Duration) {
	c.mu.Lock()
	c.now += d
	c.wall = c.wall.Add(d)
	c.mu.Unlock()
}

// Tick has every host look at the clock, as each step of Advance does.
func (c *ManualClock) Tick() { c.tick(true) }

// Step moves the clock by d, at most [ManualStep], and has every host look at it. Where nothing was due it does not make sure that the shards are quiet, which is most of what a
// Tick costs.
func (c *ManualClock) Step(d time.Duration) {
	c.Jump(d)
	c.tick(false)
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

// OnTick adds a function that each step calls, in the order they were added; the result takes it away again. thorough is false for [ManualClock.Step].
func (c *ManualClock) OnTick(fn func(thorough bool)) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.next
	c.next++
	c.ticks[id] = fn
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.ticks, id)
	}
}
