package leader

import (
	"math/rand/v2"
	"testing"
)

// TestSkipTime: log time leaps without a pause, once, and times before and after the leap keep
// their log times.
func TestSkipTime(t *testing.T) {
	l := New(Config{Shard: 1, Route: func(uint8, uint32) (uint64, uint64) { return 0, 0 }})
	heard := func(uint64) (uint64, bool) { return 0, false }
	l.Start(10_000, 1<<16, 500, nil)
	l.Tick(10_100, heard, 9_000_000, true)
	l.Take()
	l.SkipTime(10_100, 3_600_000)
	if got := l.LogTime(10_100); got != 3_600_600 || !l.LogTimeRuns() {
		t.Errorf("log time is %d, and may be stamped: %v", got, l.LogTimeRuns())
	}
	l.Tick(10_200, heard, 9_000_000, true)
	if !l.Take().Tick {
		t.Error("the log does not hear of the leap although a deadline is to come")
	}
	l.Tick(10_300, heard, 9_000_000, true)
	if l.Take().Tick {
		t.Error("the log hears of it twice")
	}
	if before, after := l.clock.at(10_050), l.clock.at(10_250); before != 550 || after != 3_600_750 {
		t.Errorf("log time was %d before and is %d after", before, after)
	}
	if s := l.Stats(); s.Pauses != 0 {
		t.Errorf("%d pauses", s.Pauses)
	}
}

// TestLogTimeNeverOutrunsTheClock: over random calls and pauses, log time as a function of the
// monotonic clock is monotone, never faster than that clock, and what was stamped once stays true:
// the driver's own stamps of up to MaxExtrapolation after a call included.
func TestLogTimeNeverOutrunsTheClock(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		var c clock
		now := uint64(5_000)
		c.start(now, 100)
		type stamp struct{ at, log uint64 }
		stamps := []stamp{{now, 100}}
		for range 600 {
			switch x := r.IntN(100); {
			case x < 10:
				now += PauseGap + uint64(r.IntN(60_000))
			case x < 30 && c.paused:
				c.resume()
			default:
				now += uint64(r.IntN(PauseGap))
			}
			c.observe(now)
			stamps = append(stamps, stamp{now, c.now()})
			if !c.paused {
				ahead := uint64(r.IntN(MaxExtrapolation + 1))
				stamps = append(stamps, stamp{now + ahead, c.now() + ahead})
				now += ahead
			}
		}
		for i := 1; i < len(stamps); i++ {
			a, b := stamps[i-1], stamps[i]
			if b.log < a.log || b.log-a.log > b.at-a.at {
				t.Fatalf("seed %d: log time went from %d to %d while the clock went from %d to %d",
					seed, a.log, b.log, a.at, b.at)
			}
			if b.at > c.segments[0].mono && c.at(b.at) != b.log {
				t.Fatalf("seed %d: at %d log time was %d, and is said to have been %d", seed, b.at, b.log, c.at(b.at))
			}
			if c.at(b.at) < b.log {
				t.Fatalf("seed %d: what was heard at %d in log time %d is dated %d", seed, b.at, b.log, c.at(b.at))
			}
		}
	}
}
