package logging

import (
	"sync"
	"time"
)

// Bounds of a Limiter.
const (
	limiterPeriod = 10 * time.Second
	limiterLines  = 10 // of a period
)

// Limiter bounds the lines that strangers can cause: 10 in 10 seconds. The zero value is ready.
type Limiter struct {
	mu       sync.Mutex
	from     time.Time
	lines    int
	withheld int // since the last line
}

// Allow reports whether a line may be logged now. More is the attribute "withheld", for this line,
// with the number of lines that were not logged since the last one; nothing if all were.
func (l *Limiter) Allow(now time.Time) (more []any, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.from) > limiterPeriod {
		l.from, l.lines = now, 0
	}
	if l.lines >= limiterLines {
		l.withheld++
		return nil, false
	}
	l.lines++
	if l.withheld > 0 {
		more = []any{"withheld", l.withheld}
	}
	l.withheld = 0
	return more, true
}
