package auth

import (
	"fmt"
	"testing"
	"time"
)

// TestFailuresAreDelayed: each failure of a host is answered later than the one before, up to a
// bound, and is forgotten; other hosts are not.
func TestFailuresAreDelayed(t *testing.T) {
	var s Failures
	now := time.Unix(1_000_000, 0)
	last := time.Duration(0)
	for i := range 20 {
		d, n := s.Delay("a", now)
		if n != i+1 || d < last || d > maxDelay || i < 5 && d <= last {
			t.Errorf("failure %d is answered after %v, the one before after %v", n, d, last)
		}
		last = d
	}
	if last != maxDelay {
		t.Errorf("the longest pause is %v", last)
	}
	if d, _ := s.Delay("b", now); d != firstDelay {
		t.Errorf("another host waits %v", d)
	}
	if d, _ := s.Delay("a", now.Add(2*failureTTL)); d != firstDelay {
		t.Errorf("after a while the host waits %v", d)
	}
	for i := range 3 * maxHosts {
		s.Delay(fmt.Sprint(i), now)
	}
	if len(s.hosts) > maxHosts {
		t.Errorf("%d hosts are remembered", len(s.hosts))
	}
}
