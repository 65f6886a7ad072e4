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
func (f *Failures) Delay(host string, now time.Time) (d time.Duration, count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	failures := f.hosts[host]
	if failures == nil {
		if f.hosts == nil || len(f.hosts) >= maxHosts {
			f.hosts = make(map[string]*hostFailures)
		}
		failures = new(hostFailures)
		f.hosts[host] = failures
	}
	if now.Sub(failures.last) > failureTTL {
		failures.count = 0
	}
	failures.last = now
	failures.count++
	return min(firstDelay<<min(failures.count-1, 10), maxDelay), failures.count
}
