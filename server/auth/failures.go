package auth

import (
	"sync"
	"time"
)

// Failures are the hosts whose credentials were refused lately.
type Failures struct {
	mu    sync.Mutex
	hosts map[string]*hostFailures
}

type hostFailures struct {
	count int
	last  time.Time
}

const (
	firstDelay = 10 * time.Millisecond // after the first failure of a host; each further one doubles it
	maxDelay   = 2 * time.Second
	failureTTL = time.Minute // without a failure, then a host's are forgotten
	maxHosts   = 4096        // that failures are kept of; beyond, all are forgotten
)

// Delay counts a failure, and says how late it is to be answered.
func (s *Failures) Delay(host string, now time.Time) (d time.Duration, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.hosts[host]
	if f == nil {
		if s.hosts == nil || len(s.hosts) >= maxHosts {
			s.hosts = make(map[string]*hostFailures)
		}
		f = new(hostFailures)
		s.hosts[host] = f
	}
	if now.Sub(f.last) > failureTTL {
		f.count = 0
	}
	f.last = now
	f.count++
	return min(firstDelay<<min(f.count-1, 10), maxDelay), f.count
}
