package transport

import (
	"sync"

	"github.com/signalbox-dev/signalbox/server/clienthost"
)

// addressLimit counts the connections of each host, if they are bounded.
type addressLimit struct {
	limit int // 0: addresses are not counted

	mu     sync.Mutex
	counts map[string]int
}

// full reports whether one more from there would be too many.
func (a *addressLimit) full(remote string) bool {
	if a.limit == 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts[clienthost.Of(remote)] >= a.limit
}

// acquire counts one more; false: it would be too many.
func (a *addressLimit) acquire(remote string) bool {
	if a.limit == 0 {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	h := clienthost.Of(remote)
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
	h := clienthost.Of(remote)
	if a.counts[h]--; a.counts[h] <= 0 {
		delete(a.counts, h)
	}
}
