package transport

import "testing"

// TestIdleLoopRests: an event loop without traffic feels one beat in five, one with traffic or
// without a sign of life each of them.
func TestIdleLoopRests(t *testing.T) {
	var l eventLoop
	felt := func(beats int, before func()) (n int) {
		for range beats {
			before()
			if !l.rests() {
				n++
			}
		}
		return n
	}
	if n := felt(20, func() {}); n != 4 {
		t.Errorf("an idle loop felt %d of 20 beats, want 4", n)
	}
	if n := felt(20, l.noteTraffic); n != 20 {
		t.Errorf("a loop with traffic felt %d of 20 beats", n)
	}
	if n := felt(20, func() { l.missedBeats.Add(1) }); n != 20 {
		t.Errorf("a loop without a sign of life felt %d of 20 beats", n)
	}
	if l.missedBeats.Store(0); felt(20, func() {}) != 4 {
		t.Error("a loop that is idle again does not rest")
	}
}
