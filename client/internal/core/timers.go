package core

import "time"

// timer is something that is due at a time. Its owner has it as a field.
type timer struct {
	at    time.Duration
	place int // in the heap, from 1; 0: it is not armed
	of    interface{ due(*Engine) }
}

// timers are the armed timers of an engine: a 4-ary heap, the next one first. Times stand in its
// slots, so that comparing reads no timer: sessions by the thousand have some each.
type timers struct{ heap []timerSlot }

type timerSlot struct {
	at time.Duration
	x  *timer
}

// set arms a timer, or moves it.
func (t *timers) set(x *timer, at time.Duration) {
	x.at = at
	if x.place == 0 {
		t.heap = append(t.heap, timerSlot{})
		x.place = len(t.heap)
	}
	t.move(x.place-1, timerSlot{at, x})
}

// stop disarms a timer.
func (t *timers) stop(x *timer) {
	if x.place == 0 {
		return
	}
	i, last := x.place-1, len(t.heap)-1
	moved := t.heap[last]
	t.heap[last] = timerSlot{}
	t.heap = t.heap[:last]
	if x.place = 0; i != last {
		t.move(i, moved)
	}
}

// stopAll disarms all.
func (t *timers) stopAll() {
	for _, s := range t.heap {
		s.x.place = 0
	}
	t.heap = nil
}

func (t *timers) next() (at time.Duration, ok bool) {
	if len(t.heap) == 0 {
		return 0, false
	}
	return t.heap[0].at, true
}

// due takes a timer whose time has come, or returns nil.
func (t *timers) due(now time.Duration) *timer {
	if len(t.heap) == 0 || t.heap[0].at > now {
		return nil
	}
	x := t.heap[0].x
	t.stop(x)
	return x
}

// move puts a slot where it belongs, from a place whose slot counts no more.
func (t *timers) move(i int, s timerSlot) {
	for i > 0 && s.at < t.heap[(i-1)/4].at {
		t.put(i, t.heap[(i-1)/4])
		i = (i - 1) / 4
	}
	for {
		first := 4*i + 1 // of the children
		for c, end := first+1, min(first+4, len(t.heap)); c < end; c++ {
			if t.heap[c].at < t.heap[first].at {
				first = c
			}
		}
		if first >= len(t.heap) || t.heap[first].at >= s.at {
			break
		}
		t.put(i, t.heap[first])
		i = first
	}
	t.put(i, s)
}

func (t *timers) put(i int, s timerSlot) {
	t.heap[i], s.x.place = s, i+1
}
