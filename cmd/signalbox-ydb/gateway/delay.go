package gateway

import (
	"context"
	"sync"
	"time"
)

// Some SDKs start a session again at once when a start fails with NOT_FOUND or SESSION_EXPIRED,
// thousands of times a second. The answer to a start that fails is delayed, by more with each
// failure of the same host. So is that to any call whose token is refused or cannot be checked, and to
// one of a method that the gateway does not have.
const (
	firstDelay = 100 * time.Millisecond
	maxDelay   = 2 * time.Second
	// delayMemory is how long a host's failures count after the last one.
	delayMemory = 10 * time.Second
	// maxDelayHosts bounds the memory for hosts.
	maxDelayHosts = 10_000
)

// delayTable remembers the failures of hosts.
type delayTable struct {
	mu    sync.Mutex
	hosts map[string]hostDelay
}

type hostDelay struct {
	next time.Duration
	last time.Time
}

func newDelayTable() *delayTable { return &delayTable{hosts: make(map[string]hostDelay)} }

// wait holds back the answer to a call that failed, until the call or the gateway ends.
func (t *delayTable) wait(call, gateway context.Context) {
	timer := time.NewTimer(t.failed(hostOf(call), time.Now()))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-call.Done():
	case <-gateway.Done():
	}
}

// failed is how long the answer to a start that failed is delayed.
func (t *delayTable) failed(host string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, known := t.hosts[host]
	if !known && len(t.hosts) >= maxDelayHosts {
		t.forget(now)
	}
	if !known || now.Sub(h.last) > delayMemory {
		h.next = firstDelay
	}
	d := h.next
	h.next, h.last = min(2*d, maxDelay), now
	t.hosts[host] = h
	return d
}

// forget makes room for many: hosts whose failures no longer count go, or else any.
func (t *delayTable) forget(now time.Time) {
	for host, h := range t.hosts {
		if now.Sub(h.last) > delayMemory {
			delete(t.hosts, host)
		}
	}
	for host := range t.hosts {
		if len(t.hosts) <= maxDelayHosts/2 {
			return
		}
		delete(t.hosts, host)
	}
}
