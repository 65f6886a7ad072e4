package replica

import (
	"testing"
	"time"
)

func TestSystemClockAdvances(t *testing.T) {
	c := SystemClock()
	a := c.Now()
	if a <= 0 || c.Now() < a || c.Wall().IsZero() {
		t.Errorf("clock shows %v", a)
	}
}

func TestManualClockGoesInSteps(t *testing.T) {
	start := time.Unix(1_000, 0)
	c := NewManualClock(start)
	var at []time.Duration
	zero := c.Now()
	remove := c.OnTick(func(bool) { at = append(at, c.Now()-zero) })
	c.Advance(600 * time.Millisecond)
	c.Jump(time.Hour)
	remove()
	c.Advance(time.Second)
	want := []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, 600 * time.Millisecond}
	if len(at) != len(want) || at[0] != want[0] || at[1] != want[1] || at[2] != want[2] {
		t.Errorf("ticked at %v, want %v", at, want)
	}
	if got := c.Wall().Sub(start); got != time.Hour+1600*time.Millisecond {
		t.Errorf("wall clock moved by %v", got)
	}
}
