package busiest

import (
	"sync"
	"time"
)

// HistoryPeriod is the time from one point of a History to the next, and historyPoints how many it
// keeps: a quarter of an hour.
const (
	HistoryPeriod = 15 * time.Second
	historyPoints = 60
)

// Point is a moment of what an instance led.
type Point struct {
	Grants            float64 // a second, since the point before
	Waiters, Sessions int
	LongestWait       time.Duration
}

// History keeps the last quarter of an hour of what an instance led. Any goroutine may use it.
type History struct {
	mu      sync.Mutex
	points  [historyPoints]Point // a ring
	taken   int
	at      time.Duration // of the last sample
	granted uint64        // at the last sample
	begun   bool
}

// Sample adds a point if HistoryPeriod has passed since the last one. now is monotonic. read returns
// the grants since the process began, and the other figures of the point; it is called only for a
// point that is due.
func (h *History) Sample(now time.Duration, read func() (granted uint64, p Point)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begun && now-h.at < HistoryPeriod {
		return
	}
	granted, p := read()
	if h.begun {
		p.Grants = float64(granted-min(granted, h.granted)) / (now - h.at).Seconds()
		h.points[h.taken%historyPoints] = p
		h.taken++
	}
	h.begun, h.at, h.granted = true, now, granted
}

// Points returns the points, the oldest first.
func (h *History) Points() (list []Point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := max(0, h.taken-historyPoints); i < h.taken; i++ {
		list = append(list, h.points[i%historyPoints])
	}
	return list
}
