package logging

import (
	"slices"
	"testing"
	"time"
)

// TestLimiter: so many lines of a period are logged, and the first one of the next period says how
// many were not.
func TestLimiter(t *testing.T) {
	var l Limiter
	now := time.Unix(1_000_000, 0)
	for period := range 3 {
		for n := range limiterLines {
			more, ok := l.Allow(now.Add(time.Duration(n)))
			var want []any
			if n == 0 && period > 0 {
				want = []any{"withheld", 7}
			}
			if !ok || !slices.Equal(more, want) {
				t.Errorf("line %d of period %d: %v, with %v, want %v", n, period, ok, more, want)
			}
		}
		for range 7 {
			if _, ok := l.Allow(now.Add(limiterPeriod)); ok {
				t.Errorf("more than %d lines in period %d", limiterLines, period)
			}
		}
		now = now.Add(limiterPeriod + time.Second)
	}
}
