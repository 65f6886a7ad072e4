package client

import (
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
)

// WatchResult is how a one-shot watch ended. If both are false, a change may have been missed,
// because the connection was lost, another watch replaced this one, or the shard's leader changed:
// describe the semaphore again.
type WatchResult struct {
	DataChanged   bool
	OwnersChanged bool
}

// WatchMask selects what a one-shot watch looks for.
type WatchMask uint8

const (
	OnData   WatchMask = WatchMask(protocol.WatchData)   // other bytes; deletion
	OnOwners WatchMask = WatchMask(protocol.WatchOwners) // an owner more or less, a count lowered, an owner's data; deletion
)

// oneShot is one sending of a one-shot watch.
type oneShot struct {
	id        uint64
	c         *Client
	cn        *conn
	tier      uint8
	bucket    uint32
	lastWrite *lastWrite       // of the shard then; nil: the map does not have it
	ch        chan WatchResult // capacity 1
	over      atomic.Bool
	stop      atomic.Pointer[func() bool] // of what fires it with the session's end
}

func (o *oneShot) fire(f WatchResult) {
	if !o.over.CompareAndSwap(false, true) {
		return
	}
	// A RELAXED read that follows must not miss the change. The instance that fired the watch has
	// it; a change that may have been missed can be anywhere, and in another shard if the bucket
	// has moved.
	var instance uint64
	if f != (WatchResult{}) {
		instance = o.cn.instance
	} else if w := o.c.routes.Load().forBucket(o.tier, o.bucket); w != nil {
		w.lastWrite.record(o.cn.clock.now(), 0)
	}
	if o.lastWrite != nil {
		o.lastWrite.record(o.cn.clock.now(), instance)
	}
	o.ch <- f
	if stop := o.stop.Load(); stop != nil {
		(*stop)()
	}
}

// arm makes the shot known to its connection, before the server can fire it.
func (o *oneShot) arm() {
	o.cn.mu.Lock()
	defer o.cn.mu.Unlock()
	if o.cn.err == nil {
		put(&o.cn.oneShots, o.id, o)
	}
}

func (o *oneShot) disarm() {
	if o == nil {
		return
	}
	o.cn.mu.Lock()
	defer o.cn.mu.Unlock()
	delete(o.cn.oneShots, o.id)
}
