package core

import (
	"container/heap"
	"time"
)

// timer is something that is due at a time. Its owner has it as a field.
type timer struct {
	at    time.Duration
	place int // in the heap, from 1; 0: it is not armed
	of    interface{ due(*Engine) }
}

// timers are the armed timers of an engine, the next one first.
type timers struct{ heap timerHeap }

// set arms a timer, or moves it.
func (t *timers) set(x *timer, at time.Duration) {
	was := x.at
	x.at = at
	switch {
	case x.place == 0:
		heap.Push(&t.heap, x)
	case was != at:
		heap.Fix(&t.heap, x.place-1)
	}
}

func (t *timers) stop(x *timer) {
	if x.place != 0 {
		heap.Remove(&t.heap, x.place-1)
	}
}

// stopAll disarms all.
func (t *timers) stopAll() {
	for _, x := range t.heap {
		x.place = 0
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
	return heap.Pop(&t.heap).(*timer)
}

type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}
func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	*h = append(*h, t)
	t.place = len(*h)
}
func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	t.place = 0
	return t
}
