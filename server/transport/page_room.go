package transport

import (
	"sync"
	"sync/atomic"
)

// MaxPages is how many bytes of snapshots' pages may wait for all connections together. Above it no
// page is read from a shard. So a client that reads nothing holds others' pages up for OutAge.
const MaxPages = 32 << 20

// pageRoom counts the pages that wait, and says when there is room for more.
//
// Invariant: waiting is the sum of outgoing.pages of all connections.
type pageRoom struct {
	waiting atomic.Int64
	awaited atomic.Bool // wakes is not empty

	mu    sync.Mutex
	wakes map[chan<- struct{}]struct{}
}

// PageRoom reports whether more pages may be appended. If not, wake, of capacity 1, gets a value
// once there is room.
func (t *Transport) PageRoom(wake chan<- struct{}) bool {
	r := &t.pages
	if r.waiting.Load() < MaxPages {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wakes == nil {
		r.wakes = make(map[chan<- struct{}]struct{})
	}
	r.wakes[wake] = struct{}{}
	r.awaited.Store(true)
	if r.waiting.Load() >= MaxPages {
		return false // pageRoom.add sees awaited once there is room
	}
	delete(r.wakes, wake)
	return true
}

// add counts bytes that have come to wait, or that wait no longer.
func (r *pageRoom) add(bytes int64) {
	if r.waiting.Add(bytes) >= MaxPages || !r.awaited.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.wakes {
		wake(c)
	}
	clear(r.wakes)
	r.awaited.Store(false)
}

// PageBytes is how many bytes of pages wait for all connections.
func (t *Transport) PageBytes() int64 { return t.pages.waiting.Load() }
