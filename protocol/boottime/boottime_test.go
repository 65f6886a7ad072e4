package boottime

import (
	"flag"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Properties are checked with the same random numbers each time; -rapid.seed on the command line
// gives others.
func init() { _ = flag.Set("rapid.seed", "20261126") }

// machine is the clocks of a machine that can be suspended.
type machine struct {
	mono, slept, day time.Duration
	asked            int
	lag              time.Duration // between the two clocks of ask
}

func (m *machine) suspend(d time.Duration) { m.slept, m.day = m.slept+d, m.day+d }

func (m *machine) run(d time.Duration) { m.mono, m.day = m.mono+d, m.day+d }

func (m *machine) ask() (boot, mono time.Duration) {
	m.asked++
	boot = m.mono + m.slept
	m.run(m.lag)
	return boot, m.mono
}

func (m *machine) read(c *clock) time.Duration { return c.at(m.mono, m.day-m.mono, m.ask) }

func TestSystemIsAskedOncePerMaxAge(t *testing.T) {
	m, c := &machine{mono: time.Second, slept: time.Hour, day: 1e6 * time.Hour}, &clock{}
	for _, step := range []struct {
		run   time.Duration
		asked int
	}{{0, 1}, {0, 1}, {maxAge - 1, 1}, {1, 2}, {maxAge / 2, 2}, {time.Minute, 3}} {
		m.run(step.run)
		if got, want := m.read(c), m.mono+m.slept; got != want || m.asked != step.asked {
			t.Fatalf("%v later the clock shows %v after asking %d times, want %v after %d", step.run, got, m.asked, want, step.asked)
		}
	}
}

func TestSuspensionIsSeenAtOnce(t *testing.T) {
	m, c := &machine{mono: time.Second, day: time.Hour}, &clock{}
	m.read(c)
	m.run(maxAge / 4)
	m.suspend(time.Hour)
	m.run(maxAge / 4)
	if got, want := m.read(c), m.mono+time.Hour; got != want {
		t.Errorf("after an hour of sleep the clock shows %v, want %v", got, want)
	}
	// A set clock has the system asked, and changes nothing.
	asked := m.asked
	m.day -= 24 * time.Hour
	if got, want := m.read(c), m.mono+time.Hour; got != want || m.asked != asked+1 {
		t.Errorf("the day before, the clock shows %v after asking %d times, want %v after %d", got, m.asked, want, asked+1)
	}
}

// TestRandomMachine: whatever the machine does, the clock never goes back and is never ahead of the
// system's. It is behind by no more than a sleep that is too short to be seen for a maxAge, and a
// lag between the two clocks that is as short, however long the machine holds up who asks.
func TestRandomMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, c := &machine{mono: 1, day: time.Hour}, &clock{}
		upTo := func(d time.Duration, what string) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(d)).Draw(t, what))
		}
		var last time.Duration
		step := func() {
			m.lag = upTo(rapid.SampledFrom([]time.Duration{maxMove, time.Second}).Draw(t, "most"), "lag")
			now := m.mono + m.slept
			got := m.read(c)
			if got < last || got > now || got < now-2*maxMove {
				t.Fatalf("the clock shows %v after %v, the system's %v", got, last, now)
			}
			last = got
		}
		t.Repeat(map[string]func(*rapid.T){
			"run":     func(*rapid.T) { m.run(upTo(maxAge/3, "running")); step() },
			"suspend": func(*rapid.T) { m.suspend(upTo(time.Minute, "asleep")); step() },
			"nap":     func(*rapid.T) { m.suspend(upTo(maxMove, "asleep")); step() },
			"set":     func(*rapid.T) { m.day += upTo(2*time.Hour, "ahead") - time.Hour; step() },
		})
	})
}

func TestNowNeverGoesBack(t *testing.T) {
	var latest atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50_000 {
				seen := latest.Load()
				now := int64(Now())
				if now < seen || now <= 0 {
					t.Errorf("the clock shows %v after %v", time.Duration(now), time.Duration(seen))
					return
				}
				for was := latest.Load(); now > was && !latest.CompareAndSwap(was, now); was = latest.Load() {
				}
			}
		})
	}
	wg.Wait()
	if now, limit := Now(), system(); now > limit {
		t.Errorf("the clock shows %v, the system's then %v", now, limit)
	}
}

// TestBubble: the clock of a bubble is the bubble's, and changes nothing outside.
func TestBubble(t *testing.T) {
	before := Now()
	synctest.Test(t, func(t *testing.T) {
		began := Now()
		time.Sleep(time.Hour)
		if went := Now() - began; went != time.Hour {
			t.Errorf("in a bubble an hour took %v", went)
		}
	})
	if now, limit := Now(), system(); now < before || now > limit {
		t.Errorf("after the bubble the clock shows %v, before it %v, the system's then %v", now, before, limit)
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}

func BenchmarkSystem(b *testing.B) {
	for b.Loop() {
		system()
	}
}
