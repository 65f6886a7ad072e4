package core

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestTimers: timers come in the order of their times, each once, as of a list that is searched.
func TestTimers(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var h timers
		all := make([]timer, 1+r.IntN(200))
		var armed []*timer
		for now := time.Duration(0); now < 2000; now++ {
			x := &all[r.IntN(len(all))]
			switch r.IntN(4) {
			case 0:
				h.stop(x)
				armed = slices.DeleteFunc(armed, func(y *timer) bool { return x == y })
			default:
				h.set(x, now+time.Duration(r.IntN(300)))
				if !slices.Contains(armed, x) {
					armed = append(armed, x)
				}
			}
			for {
				next := slices.MinFunc(append(armed, &timer{at: 1 << 40}),
					func(a, b *timer) int { return int(a.at - b.at) })
				if at, ok := h.next(); ok != (len(armed) > 0) || ok && at != next.at {
					t.Fatalf("seed %d at %d: next is %d, %v; want %d of %d", seed, now, at, ok, next.at, len(armed))
				}
				due := h.due(now)
				if (due != nil) != (next.at <= now) {
					t.Fatalf("seed %d at %d: due is %v, next %d", seed, now, due, next.at)
				}
				if due == nil {
					break
				}
				if due.at != next.at || due.place != 0 || !slices.Contains(armed, due) {
					t.Fatalf("seed %d at %d: due is %+v, want one of %d", seed, now, due, next.at)
				}
				armed = slices.DeleteFunc(armed, func(y *timer) bool { return due == y })
			}
		}
		h.stopAll()
		if _, ok := h.next(); ok || slices.ContainsFunc(all, func(x timer) bool { return x.place != 0 }) {
			t.Fatalf("seed %d: a timer is armed after all were stopped", seed)
		}
	}
}

// BenchmarkTimers moves timers of 60,000 sessions.
func BenchmarkTimers(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	var h timers
	all := make([]*timer, 60_000)
	for i := range all {
		all[i] = new(timer)
		h.set(all[i], time.Duration(r.IntN(1e9)))
	}
	now := time.Duration(0)
	for b.Loop() {
		x := h.heap[0].x
		now = x.at
		h.due(now)
		h.set(x, now+time.Duration(r.IntN(1e9)))
	}
}
