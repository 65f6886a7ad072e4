package gateway

import (
	"context"
	"sync"
	"time"
)

// orderPatience is how long a request waits for those of other sessions on its connection and name.
// It bounds what a session that cannot reach its shard costs the others.
const orderPatience = time.Second

// nameOrder is the order in which the requests of one connection on a name take effect: that in which
// they came, as at YDB's tablet. Reads between the same writes take effect side by side.
type nameOrder struct {
	mu    sync.Mutex
	turns map[nameKey]*turn // the newest
}

type nameKey struct{ node, name string }

// turn is a write, or reads side by side. nameOrder.mu guards it.
type turn struct {
	after <-chan struct{} // closed when the turn before is over; nil: there is none
	reads bool
	open  int           // requests that were not answered
	over  chan struct{} // closed when there are none
}

// join gives a request its place. leave is called once, when it was answered.
func (o *nameOrder) join(key nameKey, reads bool) (after <-chan struct{}, leave func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.turns == nil {
		o.turns = make(map[nameKey]*turn)
	}
	t := o.turns[key]
	if t == nil || !t.reads || !reads {
		next := &turn{reads: reads, over: make(chan struct{})}
		if t != nil {
			next.after = t.over
		}
		o.turns[key], t = next, next
	}
	t.open++
	return t.after, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if t.open--; t.open > 0 {
			return
		}
		close(t.over)
		if o.turns[key] == t {
			delete(o.turns, key)
		}
	}
}

// awaitTurn waits until the turn before is over, or for orderPatience.
func awaitTurn(ctx context.Context, after <-chan struct{}) {
	if after == nil {
		return
	}
	late := time.NewTimer(orderPatience)
	defer late.Stop()
	select {
	case <-after:
	case <-late.C:
	case <-ctx.Done():
	}
}
