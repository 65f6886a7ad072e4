package fanout

import (
	"testing"
	"time"
)

// TestWindows: a window grows with the connections, by doubling, up to the longest.
func TestWindows(t *testing.T) {
	const base = 2500 * time.Microsecond
	p := New(nil)
	for _, x := range []struct {
		connections int
		want        time.Duration
	}{{1, 2500}, {625, 2500}, {626, 5000}, {2500, 10_000}, {2501, 20_000}, {5000, 20_000}, {5001, 160_000},
		{20_000, 160_000}, {90_000, 160_000}} {
		if got := p.Window(base, x.connections); got != x.want*time.Microsecond {
			t.Errorf("%d connections: %v, want %v us", x.connections, got, int(x.want))
		}
	}
	if got := p.Window(-1, 1e5); got != 0 {
		t.Errorf("without a window there is one of %v", got)
	}
	if p.PerConnection = -1; p.Window(base, 1e5) != base {
		t.Errorf("a window that never grows is %v", p.Window(base, 1e5))
	}
}

// TestRests: a writer rests three times as long as it wrote, and no longer than the longest rest. A
// short fan-out of another writer does not shorten that.
func TestRests(t *testing.T) {
	now := time.Second
	p := New(func() time.Duration { return now })
	a, b := p.Writer(), p.Writer()
	waits := func(when string, want bool) {
		t.Helper()
		if got := p.Wait() > 0; got != want {
			t.Errorf("%s: waits %v, want %v", when, got, want)
		}
	}
	write := func(w *Writer, took time.Duration) {
		t.Helper()
		if !w.Begin() || w.Begin() {
			t.Error("a fan-out does not begin once")
		}
		waits("with something to write", true)
		w.Start()
		now += took
		w.Wrote()
		waits("while it is written", true)
		w.End()
	}
	waits("before all", false)
	write(a, 100*time.Millisecond)
	end := now + 300*time.Millisecond
	write(b, time.Millisecond)
	now = end - 1
	waits("within the rest", true)
	now = end
	waits("after the rest", false)
	write(a, time.Hour)
	now += longestRest - 1
	waits("within the longest rest", true)
	now++
	waits("after the longest rest", false)
}

// TestPause: the pause between announcements grows with the connections, up to the longest.
func TestPause(t *testing.T) {
	for connections, want := range map[int]time.Duration{0: 0, 10: time.Millisecond, 1000: 100 * time.Millisecond,
		5000: longestPause, 100_000: longestPause} {
		if got := Pause(connections); got != want {
			t.Errorf("%d connections: %v, want %v", connections, got, want)
		}
	}
}
