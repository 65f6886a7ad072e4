package transport

import (
	"net"
	"sync"
)

// addressLimit counts the connections of each client address, if they are bounded.
type addressLimit struct {
	limit int // 0: nothing is counted

	mu     sync.Mutex
	counts map[string]int
}

// Host is the address without the port.
func Host(remote string) string {
	h, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return h
}

// full says whether one more from there would be too many.
func (a *addressLimit) full(remote string) bool {
	if a.limit == 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts[Host(remote)] >= a.limit
}

// acquire counts one more; false: it would be too many.
func (a *addressLimit) acquire(remote string) bool {
	if a.limit == 0 {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	h := Host(remote)
	if a.counts[h] >= a.limit {
		return false
	}
	if a.counts == nil {
		a.counts = make(map[string]int)
	}
	a.counts[h]++
	return true
}

// release takes one off.
func (a *addressLimit) release(remote string) {
	if a.limit == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	h := Host(remote)
	if a.counts[h]--; a.counts[h] <= 0 {
		delete(a.counts, h)
	}
}
