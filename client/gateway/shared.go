package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// idleHandle is how long a handle that nobody uses is kept.
	idleHandle = time.Minute
	// maxHandles bounds those of one connection to the cluster.
	maxHandles = 10_000
)

// Shared are handles of the cluster that calls share, by key: each is opened by the first call that
// needs it, and closed some time after the last.
type Shared[K comparable, V any] struct {
	Context context.Context // bounds what is opened
	Open    func(ctx context.Context, key K) (V, error)
	Ended   func(V) bool // it is of no use any more
	Close   func(V)

	mu   sync.Mutex
	list map[K]*sharedHandle[V]
}

// sharedHandle is one that is open, or being opened.
type sharedHandle[V any] struct {
	ready chan struct{} // closed when value or err is set
	value V
	err   error
	users int
	idle  *time.Timer // nil: it is used
}

// Use gives the handle of a key. The caller calls release when it does not use it any more.
func (t *Shared[K, V]) Use(ctx context.Context, key K) (value V, release func(), err error) {
	h, err := t.take(key)
	if err != nil {
		return value, nil, err
	}
	release = sync.OnceFunc(func() { t.giveBack(key, h) })
	select {
	case <-h.ready:
	case <-ctx.Done():
		release()
		return value, nil, context.Cause(ctx)
	}
	if h.err != nil {
		release()
		return value, nil, h.err
	}
	return h.value, release, nil
}

func (t *Shared[K, V]) take(key K) (*sharedHandle[V], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.list[key]
	if h != nil && h.isReady() && t.Ended(h.value) {
		t.remove(key, h)
		h = nil
	}
	switch {
	case h != nil:
		if h.idle != nil {
			h.idle.Stop()
			h.idle = nil
		}
	case len(t.list) >= maxHandles:
		return nil, protocol.Errorf(protocol.StatusOverloaded,
			"%d resources are in use with this token, the most that may be; use another gateway", maxHandles)
	default:
		h = &sharedHandle[V]{ready: make(chan struct{})}
		if t.list == nil {
			t.list = make(map[K]*sharedHandle[V])
		}
		t.list[key] = h
		go t.make(key, h)
	}
	h.users++
	return h, nil
}

// make opens a handle, for all that wait for it.
func (t *Shared[K, V]) make(key K, h *sharedHandle[V]) {
	ctx, cancel := context.WithTimeout(t.Context, connectTimeout)
	defer cancel()
	h.value, h.err = t.Open(ctx, key)
	close(h.ready)
	if h.err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.remove(key, h)
	}
}

func (h *sharedHandle[V]) isReady() bool {
	select {
	case <-h.ready:
		return h.err == nil
	default:
		return false
	}
}

// giveBack closes the handle in a while, if nobody uses it then.
func (t *Shared[K, V]) giveBack(key K, h *sharedHandle[V]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.users--; h.users > 0 {
		return
	}
	if t.list[key] != h { // it was replaced, or could not be opened
		go t.drop(h)
		return
	}
	h.idle = time.AfterFunc(idleHandle, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if h.users == 0 && t.list[key] == h {
			t.remove(key, h)
		}
	})
}

// remove forgets a handle, and closes it if nobody uses it. mu is held.
func (t *Shared[K, V]) remove(key K, h *sharedHandle[V]) {
	if t.list[key] == h {
		delete(t.list, key)
	}
	if h.users == 0 {
		go t.drop(h)
	}
}

func (t *Shared[K, V]) drop(h *sharedHandle[V]) {
	<-h.ready
	if h.err == nil {
		t.Close(h.value)
	}
}
